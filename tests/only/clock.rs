//! Workers whose clock is wrong. Not on SQLite: there the worker's clock is the database's.

use crate::suite::main_job::{Job, assert_done, count, faults, report};

#[test]
fn workers_a_day_behind_and_a_day_ahead_keep_the_databases_schedule() {
    const PAYMENTS: i64 = 2000;
    let job = Job::new(PAYMENTS);
    let mut session = job.database.connect();
    // The process whose clock is a day behind enqueues. By its own clock its rows would never be overdue; by the other's, all.
    let mut behind = job.start_at("-1d");
    behind.await_answer("the payments are enqueued", || {
        (count(&mut session, "SELECT COUNT(*) FROM imports") == Ok(1)).then_some(())
    });
    let ahead = job.start_at("+1d");
    let reports = [behind, ahead].map(|program| report(&program.end().well()));
    assert_eq!(faults(&mut session), [0; 6]);
    assert_done(&mut session, &reports[0], PAYMENTS);
    // The rows that failed once waited for their second try, and no process wrote its own time.
    let off = "SELECT COUNT(*) FROM payments WHERE id > 1000 \
        AND (last_attempt_time < CURRENT_TIMESTAMP - INTERVAL '1' HOUR OR last_attempt_time > CURRENT_TIMESTAMP + INTERVAL '1' HOUR)";
    assert_eq!(count(&mut session, off), Ok(0));
    let retried = "SELECT COUNT(*) FROM payments WHERE id > 1000 AND try_count = 2";
    assert!(count(&mut session, retried).unwrap() > 0);
}
