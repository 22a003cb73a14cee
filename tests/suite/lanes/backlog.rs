//! The backlog says which due rows wait for a turn, and why.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::report::Backlog;
use queueable::{Migrations, Pause, Queueable};

use super::{enqueue, job, jobs, jobs_of};

job!(Serial, serial_queue, serial_by = company_id);
job!(Pairs, pairs_queue, at_most(2, by = company_id), at_most(3));
job!(PairsLease, pairs_lease_queue, at_most(2, by = company_id), lease = "60s");
job!(One, one_queue, exclusive);
job!(Fair, fair_queue, fair_by = company_id);

/// Five due rows of company 7, two of company 8 and three without one.
const DUE: [Option<i64>; 10] = [Some(7), Some(7), None, Some(7), Some(8), Some(7), Some(7), Some(8), None, None];

/// The due rows; those behind others of their value; those over the queue's limit; those that are paused.
fn waiting(backlog: &Backlog) -> (i64, Option<i64>, Option<i64>, Option<i64>) {
    (backlog.due, backlog.behind_others, backlog.over_limit, backlog.paused_due)
}

#[test]
fn rows_behind_others_of_their_value_and_rows_over_the_limit_are_counted() {
    let database = jobs_of::<Serial>();
    enqueue(&database, DUE);
    let connection = &mut database.connect();
    let backlog = Serial::queue().backlog(connection).unwrap();
    assert_eq!(waiting(&backlog), (10, Some(5), None, None), "one of each company may run, and all without one");
    assert!(backlog.to_string().contains("behind others"), "{backlog}");
    let by = Serial::queue().backlog_by(connection, jobs::company_id).unwrap();
    let parts: Vec<_> = by.parts.iter().map(|part| (part.value.as_deref(), part.report.behind_others)).collect();
    assert_eq!(parts, [(None, Some(0)), (Some("7"), Some(4)), (Some("8"), Some(1))]);
    let by = Serial::queue().backlog_by(connection, jobs::rank).unwrap();
    assert_eq!(by.parts[0].report.behind_others, None, "a lane may have rows of several ranks");
    let of_one = Serial::queue().filter(jobs::company_id.eq(8)).backlog(connection).unwrap();
    assert_eq!(waiting(&of_one), (2, Some(1), None, None));
    connection.run_pending_migrations(Migrations::new().entity::<Pairs>()).unwrap();
    assert_eq!(waiting(&Pairs::queue().backlog(connection).unwrap()), (10, Some(3), Some(4), None));
    assert_eq!(waiting(&One::queue().backlog(connection).unwrap()), (10, None, Some(9), None));
    let backlog = Fair::queue().backlog(connection).unwrap();
    assert_eq!(waiting(&backlog), (10, None, None, None), "rows that take turns have no limit");
    assert!(!backlog.to_string().contains("behind"), "{backlog}");
}

#[test]
fn rows_under_a_lease_take_the_places_of_their_value() {
    let database = jobs_of::<PairsLease>();
    enqueue(&database, DUE);
    let connection = &mut database.connect();
    connection
        .batch_execute(
            "UPDATE jobs SET status = 'IN_PROGRESS', try_count = 1, next_attempt_time = '2100-01-01 00:00:00.000' WHERE id IN (1, 2)",
        )
        .unwrap();
    let backlog = PairsLease::queue().backlog(connection).unwrap();
    assert_eq!((waiting(&backlog), backlog.running), ((8, Some(3), None, None), Some(2)));
    connection.batch_execute("UPDATE jobs SET company_id = 8 WHERE id = 1").unwrap();
    let backlog = PairsLease::queue().backlog(connection).unwrap();
    assert_eq!(waiting(&backlog), (8, Some(3), None, None), "one place is free in each");
}

#[test]
fn rows_of_a_paused_queue_are_counted() {
    let database = jobs_of::<Serial>();
    enqueue(&database, DUE);
    let connection = &mut database.connect();
    connection.run_pending_migrations(Migrations::new().control()).unwrap();
    assert_eq!(Serial::queue().backlog(connection).unwrap().paused_due, None);
    Serial::pause(connection, Pause::new("bank down", "ops")).unwrap();
    let backlog = Serial::queue().backlog(connection).unwrap();
    assert_eq!((backlog.paused_due, backlog.paused.len()), (Some(10), 1));
    Serial::unpause(connection).unwrap();
    assert_eq!(Serial::queue().backlog(connection).unwrap().paused_due, None);
}
