//! A condition as the filter of a queue's operations.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queue_core::internals::backend::Holds;
use queue_core::{Entity, QueueTable};
use queueable::{Migrations, Queueable};

use crate::db::Database;
use crate::filter::{Column, Columns, Condition, parse};

diesel::table! {
    jobs (id) {
        id -> BigInt,
        company_id -> BigInt,
    }
}

#[allow(dead_code, reason = "the queue's calls read the rows")]
#[derive(Queryable, Selectable, Queueable)]
struct Job {
    id: i64,
    company_id: i64,
}

#[test]
fn a_condition_is_a_filter_of_reports_and_of_changes() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute("CREATE TABLE jobs (id BIGINT PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)").unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Job>()).unwrap();
    connection
        .batch_execute(
            "INSERT INTO jobs (id, company_id, status, try_count)
             VALUES (1, 7, 'FAILED', 3), (2, 7, 'SUCCESS', 1), (3, 8, 'FAILED', 1)",
        )
        .unwrap();
    let filter = |text| condition(text).on(<Job as Entity>::Queue::TABLE);
    let failed = Job::queue().filter(filter("company_id = 7 and status = 'FAILED' and try_count > 2"));
    assert_eq!(failed.count(&mut connection).unwrap(), 1);
    let unsettled = Job::queue().filter(filter("next_attempt_time is null")).filter(filter("company_id in (7, 8)"));
    assert_eq!(unsettled.clone().load(&mut connection).unwrap().len(), 3);
    assert_eq!(unsettled.failed().retry_now(&mut connection).unwrap(), 2);
    assert_eq!(Job::queue().filter(filter("next_attempt_time <= now() + 1d")).count(&mut connection).unwrap(), 2);
}

fn condition(text: &str) -> Condition {
    let columns = [
        ("id", Holds::Integers(8)),
        ("company_id", Holds::Integers(8)),
        ("status", Holds::Texts),
        ("try_count", Holds::Integers(4)),
        ("next_attempt_time", Holds::Instants),
    ];
    let column = |(name, holds): (&str, _)| Column { name: name.to_owned(), nullable: true, holds, values: None };
    let columns = Columns { table: "jobs".to_owned(), list: columns.map(column).into() };
    parse(text, &columns, chrono::Utc::now()).unwrap_or_else(|refused| panic!("{refused}"))
}
