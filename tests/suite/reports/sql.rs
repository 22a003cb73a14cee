//! The SQL of the reports on each backend.

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use queueable::Status;
use queueable::internals::QueueSql;
use queueable::internals::backend::{Sql, Statement};
use queueable::internals::statement::{
    And, Condition, CountByValue, CountFinished, CountPending, ErrorTexts, IfAny, Inspect, IsArchived, IsSame,
    StateCondition, TextsAfter, WithTexts,
};

use super::{Invoice, Order, Parcel, orders};
use crate::db::{Conn, NAME};
use crate::suite::keyed::{queue, row};

type Backend = <Conn as diesel::Connection>::Backend;

#[test]
fn the_sql_of_reports() {
    let mut listing = String::new();
    let mut add = |title: &str, statement: &dyn Statement<Backend>| {
        listing += &format!("{title}:\n{}\n\n", diesel::debug_query::<Backend, _>(&Sql::new(statement)));
    };
    let filter = orders::company_id.eq(3345);
    let company: Option<&dyn QueryFragment<Backend>> = Some(&orders::company_id);
    let pending = [StateCondition::Pending, StateCondition::In(&Status::ALL)];
    let failed = [StateCondition::In(&[Status::Failed])];
    let troubled = [StateCondition::WithFailure, StateCondition::NotIn(&[Status::Skipped])];
    let texts = ["no route".to_owned(), "no account".to_owned()];
    fn plain<'a>(queue: &'static QueueSql<Backend>, states: &'a [StateCondition]) -> Condition<'a, Backend> {
        Condition::new(queue, None, states)
    }
    let condition = plain(queue::<Order>(), &troubled);
    add("errors", &ErrorTexts { condition, split: None, limit: 20_000 });
    let of_company = Condition::new(queue::<Order>(), Some(&filter), &troubled);
    add("errors by company", &ErrorTexts { condition: of_company, split: company, limit: 20_000 });
    add("texts", &TextsAfter { condition, after: None, limit: 5_000 });
    add("further texts", &TextsAfter { condition, after: Some("no route"), limit: 5_000 });
    let texts = And(IfAny(Some(&filter)), WithTexts(queue::<Order>(), &texts));
    let condition = Condition::new(queue::<Order>(), Some(&texts), &[]);
    add("a filter and texts", &CountByValue { condition, split: None, limit: 1 });
    let condition = plain(queue::<Parcel>(), &failed);
    add("statistics without durations", &CountFinished { condition, split: None, seconds: 3_600, limit: 10 });
    let condition = plain(queue::<Order>(), &failed);
    add("statistics by company", &CountFinished { condition, split: company, seconds: 86_400, limit: 10 });
    add("pending", &CountPending::new(plain(queue::<Order>(), &pending), None, 10));
    add("pending, with a condition, by company", &CountPending::new(plain(queue::<Invoice>(), &pending), company, 10));
    add("failed", &CountByValue { condition, split: None, limit: 10 });
    add("failed by company", &CountByValue { condition, split: company, limit: 10 });
    add("inspect", &Inspect::new(row::<Order>(&7)));
    add("inspect with a condition", &Inspect::new(row::<Invoice>(&7)));
    add("is the same", &IsSame(row::<Order>(&7), row::<Order>(&8).is_key));
    add("is archived", &IsArchived(row::<Order>(&7), "orders_done"));
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("{NAME}_reports"), listing);
    });
}
