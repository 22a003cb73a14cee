//! The SQL of the reports on each backend.

use diesel::prelude::*;
use queueable::internals::backend::{Sql, Statement};
use queueable::internals::statement::{
    And, Condition, CountByValue, CountFinished, CountPending, ErrorTexts, IfAny, Inspect, IsArchived, IsSame,
    StateCondition, TextsAfter, WithTexts,
};
use queueable::{NoFilter, QueueTable, Status};

use super::{Invoice, Order, Parcel, orders};
use crate::db::{Conn, NAME};

type Backend = <Conn as diesel::Connection>::Backend;
type Queue = <Order as queueable::Entity>::Queue;

#[test]
fn the_sql_of_reports() {
    let mut listing = String::new();
    let mut add = |title: &str, statement: &dyn Statement<Backend>| {
        listing += &format!("{title}:\n{}\n\n", diesel::debug_query::<Backend, _>(&Sql::new(statement)));
    };
    let filter = orders::company_id.eq(3345);
    let company = Some(&orders::company_id);
    let pending = [StateCondition::Pending, StateCondition::In(&Status::ALL)];
    let failed = [StateCondition::In(&[Status::Failed])];
    let troubled = [StateCondition::WithFailure, StateCondition::NotIn(&[Status::Skipped])];
    let texts = ["no route".to_owned(), "no account".to_owned()];
    fn plain<T: QueueTable>(states: &[StateCondition]) -> Condition<'_, T, NoFilter> {
        Condition::new(None, states)
    }
    add("errors", &ErrorTexts::<Order, _, ()>::new(plain(&troubled), None, 20_000));
    add(
        "errors by company",
        &ErrorTexts::<Order, _, _>::new(Condition::new(Some(&filter), &troubled), company, 20_000),
    );
    add("texts", &TextsAfter::<Queue, _>::new(plain(&troubled), None, 5_000));
    add("further texts", &TextsAfter::<Queue, _>::new(plain(&troubled), Some("no route"), 5_000));
    let texts = And(IfAny(Some(&filter)), WithTexts::<Queue>::new(&texts));
    add("a filter and texts", &CountByValue::<Queue, _, ()>::new(Condition::new(Some(&texts), &[]), None, 1));
    add(
        "statistics without durations",
        &CountFinished::<<Parcel as queueable::Entity>::Queue, _, ()>::new(plain(&failed), None, 3_600, 10),
    );
    add("statistics by company", &CountFinished::<Queue, _, _>::new(plain(&failed), company, 86_400, 10));
    add("pending", &CountPending::<Order, _, (), Backend>::new(plain(&pending), None, 10));
    add(
        "pending, with a condition, by company",
        &CountPending::<Invoice, _, _, Backend>::new(plain(&pending), company, 10),
    );
    add("failed", &CountByValue::<Queue, _, ()>::new(plain(&failed), None, 10));
    add("failed by company", &CountByValue::<Queue, _, _>::new(plain(&failed), company, 10));
    add("inspect", &Inspect::<Order, Backend>::new(&7));
    add("inspect with a condition", &Inspect::<Invoice, Backend>::new(&7));
    add("is the same", &IsSame::<Order>::new(&7, &8));
    add("is archived", &IsArchived::<Order>::new(&7, "orders_done"));
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("{NAME}_reports"), listing);
    });
}
