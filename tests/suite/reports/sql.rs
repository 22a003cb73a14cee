//! The SQL of the reports on each backend.

use diesel::prelude::*;
use queue_core::internals::QueueSql;
use queue_core::internals::backend::{Sql, Statement};
use queue_core::internals::statement::{
    And, Claimable, Condition, IfAny, SplitBy, StateCondition, WithTexts, count_by_value, count_finished,
    count_pending, error_texts, inspect, is_archived, is_same, sum_by_value, texts_after,
};
use queueable::Status;

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
    let company = Some(SplitBy::Column("company_id"));
    let pending = [StateCondition::Pending, StateCondition::In(&Status::ALL)];
    let failed = [StateCondition::In(&[Status::Failed])];
    let troubled = [StateCondition::WithFailure, StateCondition::NotIn(&[Status::Skipped])];
    let texts = ["no route".to_owned(), "no account".to_owned()];
    fn plain<'a>(queue: &'static QueueSql<Backend>, states: &'a [StateCondition]) -> Condition<'a, Backend> {
        Condition::new(queue, None, states)
    }
    let condition = plain(queue::<Order>(), &troubled);
    add("errors", &error_texts(condition, None, 20_000));
    let of_company = Condition::new(queue::<Order>(), Some(&filter), &troubled);
    add("errors by company", &error_texts(of_company, company, 20_000));
    add("texts", &texts_after(condition, None, 5_000));
    add("further texts", &texts_after(condition, Some("no route"), 5_000));
    let texts = And(IfAny(Some(&filter)), WithTexts(queue::<Order>(), &texts));
    let condition = Condition::new(queue::<Order>(), Some(&texts), &[]);
    add("a filter and texts", &count_by_value(condition, None, 1));
    let condition = plain(queue::<Parcel>(), &failed);
    add("statistics without durations", &count_finished(condition, None, 3_600, (10, 1_000)));
    let condition = plain(queue::<Order>(), &failed);
    add("statistics by company", &count_finished(condition, company, 86_400, (10, 1_000)));
    add("pending", &count_pending(plain(queue::<Order>(), &pending), None, 10));
    add("pending, with a condition, by company", &count_pending(plain(queue::<Invoice>(), &pending), company, 10));
    add("failed", &count_by_value(condition, None, 10));
    add("failed by company", &count_by_value(condition, company, 10));
    add("the sum of what has failed", &sum_by_value(condition, None, ("id", None), 1));
    add("the same by company", &sum_by_value(condition, company, ("id", None), 10));
    let due = Claimable::new(queue::<Invoice>(), None);
    add("the sum of what is due", &sum_by_value(plain(queue::<Invoice>(), &pending), None, ("id", Some(due)), 1));
    add("inspect", &inspect(row::<Order>(&7)));
    add("inspect with a condition", &inspect(row::<Invoice>(&7)));
    add("is the same", &is_same(row::<Order>(&7), row::<Order>(&8).is_key));
    add("is archived", &is_archived(row::<Order>(&7), "orders_done"));
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("{NAME}_reports"), listing);
    });
}
