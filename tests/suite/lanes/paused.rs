//! The rows of one value are paused, and those of other values go on.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Error, Explanation, Lease, Message, Migrations, Outcome, Pause, Poller, Queueable, Status};

use super::kinds::{ByCode, CODES, documents, documents_of};
use super::refused::for_jobs;
use super::{enqueue, job, jobs, jobs_of};
use crate::db::{Conn, Database, NAME, REFUSE_SEVEN};
use crate::suite::warnings::{await_warning, keep_warnings, times_told};

job!(Fair, fair_paused_queue, fair_by = company_id);
job!(Serial, serial_paused_queue, serial_by = company_id);
job!(SerialGroup, serial_group_paused_queue, serial_by = company_id, group = 8);
job!(SerialLease, serial_lease_paused_queue, serial_by = company_id, lease = "60s");
job!(FairLease, fair_lease_paused_queue, fair_by = company_id, lease = "60s");
job!(Strict, strict_paused_queue, serial_by(company_id, strict));
job!(Ordered, ordered_paused_queue, fair_by = company_id, order_by = rank);
job!(Pairs, pairs_paused_queue, at_most(2, by = company_id));
job!(Plain, plain_paused_queue, report_index);

const BY: &str = "ops@example.org";

const PATIENCE: Duration = Duration::from_secs(60);

/// Five due rows of company 7 come before three of others.
const DUE: [Option<i64>; 8] = [Some(7), Some(7), Some(7), Some(7), Some(7), Some(8), None, Some(8)];

fn with_control(database: Database) -> Database {
    database.connect().run_pending_migrations(Migrations::new().control()).unwrap();
    database
}

fn of_status(database: &Database, status: Status) -> i64 {
    jobs::table.filter(fair_paused_queue::status.eq(status)).count().get_result(&mut database.connect()).unwrap()
}

/// Pauses one company, runs what is due, and ends the pause.
macro_rules! leaves_one_alone {
    ($entity:ident, $handler:expr) => {{
        let database = with_control(jobs_of::<$entity>());
        enqueue(&database, DUE);
        let connection = &mut database.connect();
        $entity::pause_where(connection, jobs::company_id, 7, Pause::new("their bank is down", BY)).unwrap();
        let run = || $entity::poller(database.pool(4), $handler).workers(2).control().run_until_idle().unwrap();
        assert_eq!(run().succeeded, 3, stringify!($entity));
        assert_eq!(of_status(&database, Status::NotAttempted), 5, stringify!($entity));
        let explained = $entity::explain(connection, &1).unwrap();
        let Explanation::Paused { pause } = &explained else { panic!("{explained:?}") };
        assert_eq!((pause.value.as_deref(), &*pause.by), (Some("company_id = 7"), BY));
        assert!(explained.to_string().starts_with("company_id = 7 paused since "), "{explained}");
        let reasons = $entity::queue().explain(connection).unwrap().reasons;
        assert_eq!((reasons.len(), reasons[0].rows), (1, 5), "{reasons:?}");
        let backlog = $entity::queue().backlog(connection).unwrap();
        assert_eq!((backlog.due, backlog.paused_due), (5, Some(5)));
        assert!($entity::unpause_where(connection, jobs::company_id, 7).unwrap());
        assert!(!$entity::unpause_where(connection, jobs::company_id, 7).unwrap(), "it was ended already");
        assert_eq!(run().succeeded, 5, stringify!($entity));
    }};
}

macro_rules! done {
    ($entity:ident) => {
        |_: &$entity, _: &mut Message<'_, Conn>| Ok(Outcome::Done)
    };
}

macro_rules! called {
    ($entity:ident) => {
        (|_: &$entity, _: &Lease| Ok(()), |_: &$entity, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done))
    };
}

#[test]
fn the_rows_of_a_paused_value_are_left_alone_in_each_mode() {
    leaves_one_alone!(Fair, done!(Fair));
    leaves_one_alone!(Serial, done!(Serial));
    leaves_one_alone!(SerialGroup, done!(SerialGroup));
    leaves_one_alone!(SerialLease, called!(SerialLease));
    leaves_one_alone!(FairLease, called!(FairLease));
    leaves_one_alone!(Strict, done!(Strict));
    leaves_one_alone!(Ordered, done!(Ordered));
    leaves_one_alone!(Pairs, done!(Pairs));
}

#[test]
fn very_many_rows_of_a_paused_value_hold_nobody_back() {
    let database = with_control(jobs_of::<Fair>());
    enqueue(&database, (0..3000).map(|i| Some(if i < 2990 { 7 } else { i })));
    let connection = &mut database.connect();
    Fair::pause_where(connection, jobs::company_id, 7, Pause::new("their bank is down", BY)).unwrap();
    let tally = Fair::poller(database.pool(4), done!(Fair)).workers(2).control().run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 10);
}

#[test]
fn a_refused_row_beside_a_paused_value_lets_a_run_end() {
    let database = with_control(jobs_of::<Fair>());
    enqueue(&database, [Some(7), Some(8), Some(8)]);
    let connection = &mut database.connect();
    diesel::update(jobs::table.find(2)).set(jobs::rank.eq(7)).execute(connection).unwrap();
    connection.batch_execute(&for_jobs(REFUSE_SEVEN)).unwrap();
    Fair::pause_where(connection, jobs::company_id, 7, Pause::new("their bank is down", BY)).unwrap();
    let tally = Fair::poller(database.pool(4), done!(Fair)).workers(2).control().run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 1);
    assert_eq!(of_status(&database, Status::NotAttempted), 2);
}

/// Serves the jobs, and tells which begin. The first one waits until it is told to go on.
fn told(database: &Database) -> (Poller<Conn>, mpsc::Receiver<i64>, mpsc::Sender<()>) {
    let ((begin, begun), (go_on, is_told)) = (mpsc::channel(), mpsc::channel());
    let is_told = Arc::new(Mutex::new(is_told));
    let call = move |job: &FairLease, _: &Lease| {
        begin.send(job.id)?;
        let _ = is_told.lock().unwrap().recv_timeout(PATIENCE);
        Ok(())
    };
    let apply = |_: &FairLease, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let poller = FairLease::poller(database.pool(4), (call, apply)).workers(1).claim_batch(8).control();
    (poller, begun, go_on)
}

#[test]
fn a_running_poller_begins_no_row_of_a_value_that_is_paused_not_even_one_that_it_has_claimed() {
    keep_warnings();
    let database = with_control(jobs_of::<FairLease>());
    enqueue(&database, DUE);
    let (poller, begun, go_on) = told(&database);
    let handle = poller.start().unwrap();
    let first = begun.recv_timeout(PATIENCE).unwrap();
    let connection = &mut database.connect();
    let reason = "while it has claimed them";
    FairLease::pause_where(connection, jobs::company_id, 7, Pause::new(reason, BY)).unwrap();
    await_warning(&["INFO", "paused", "company_id = 7", reason]);
    drop(go_on);
    let company = |id: i64| -> Option<i64> {
        jobs::table.find(id).select(jobs::company_id).get_result(&mut database.connect()).unwrap()
    };
    let others = usize::from(company(first) == Some(7)) + 2;
    for _ in 0..others {
        let next = begun.recv_timeout(PATIENCE).unwrap();
        assert_ne!(company(next), Some(7));
    }
    FairLease::unpause_where(connection, jobs::company_id, 7).unwrap();
    await_warning(&["INFO", "no longer paused", "company_id = 7", reason]);
    for _ in 0..7 - others {
        assert_eq!(company(begun.recv_timeout(PATIENCE).unwrap()), Some(7));
    }
    assert_eq!(handle.shutdown(PATIENCE).tally.succeeded, 8);
}

#[test]
fn a_value_is_known_by_what_its_column_calls_equal() {
    // Longer than what names a value in the table.
    let long = "x".repeat(if NAME == "mysql" { 150 } else { 700 });
    for code in CODES.into_iter().chain([&*long, "Acme"]) {
        let database = with_control(documents_of::<ByCode>());
        let rows: Vec<_> = [code, "another"]
            .map(|code| {
                (
                    documents::code.eq(code.to_owned()),
                    documents::token.eq(vec![1_u8]),
                    documents::number.eq(1),
                    ByCode::due_now(),
                )
            })
            .into();
        diesel::insert_into(documents::table).values(rows).execute(&mut database.connect()).unwrap();
        let connection = &mut database.connect();
        ByCode::pause_where(connection, documents::code, code, Pause::new("bank down", BY)).unwrap();
        let run = || ByCode::poller(database.pool(3), done!(ByCode)).workers(1).control().run_until_idle().unwrap();
        assert_eq!(run().succeeded, 1, "{code:?}");
        let pauses = queueable::pauses(connection).unwrap();
        let shown = pauses[0].value.as_deref().unwrap();
        assert!(shown.starts_with("code = ") && shown.chars().count() < 250, "{shown:?}");
        assert!(!shown.contains('\n'), "{shown:?}");
        assert!(ByCode::unpause_where(connection, documents::code, code).unwrap(), "{code:?}");
        assert_eq!(run().succeeded, 1, "{code:?}");
    }
    // The default collations of these tests' tables: on MySQL and MariaDB, they tell no capital letters apart.
    let database = with_control(documents_of::<ByCode>());
    let connection = &mut database.connect();
    ByCode::pause_where(connection, documents::code, "ACME", Pause::new("bank down", BY)).unwrap();
    let are_equal: bool = NAME == "mysql" && {
        let insert = "INSERT INTO documents (code, number, next_attempt_time) VALUES ('acme', 1, '2020-01-01')";
        connection.batch_execute(insert).unwrap();
        assert_eq!(ByCode::queue().backlog(connection).unwrap().paused_due, Some(1));
        documents::table.filter(documents::code.eq("ACME")).count().get_result::<i64>(connection).unwrap() == 1
    };
    assert_eq!(ByCode::unpause_where(connection, documents::code, "acme").unwrap(), are_equal);
}

#[test]
fn a_pause_of_what_is_no_value_of_the_column_is_refused() {
    let database = with_control(jobs_of::<Fair>());
    let connection = &mut database.connect();
    let pause = || Pause::new("bank down", BY);
    let column = Fair::pause_where(connection, jobs::rank, 7, pause());
    assert!(
        matches!(&column, Err(Error::Setting { setting: "the column of a pause", found, .. }) if found == "rank"),
        "{column:?}"
    );
    let null = Fair::pause_where(connection, jobs::company_id, None::<i64>, pause());
    assert!(matches!(&null, Err(Error::Setting { found, .. }) if found == "company_id is null"), "{null:?}");
    let none = Plain::pause_where(connection, jobs::company_id, 7, Pause::new("bank down", BY));
    assert!(matches!(none, Err(Error::Setting { setting: "the column of a pause", .. })), "{none:?}");
    assert_eq!(queueable::pauses(connection).unwrap(), []);
    connection.batch_execute("DROP TABLE queueable_control").unwrap();
    let without = Fair::pause_where(connection, jobs::company_id, 7, pause());
    assert!(matches!(without, Err(Error::Control(_))), "{without:?}");
}

#[test]
fn a_pause_by_hand_of_a_column_by_which_no_rows_take_turns_is_ignored_with_one_warning() {
    keep_warnings();
    let database = with_control(jobs_of::<Fair>());
    enqueue(&database, DUE);
    let connection = &mut database.connect();
    let insert = |scope: &str| {
        format!(
            "INSERT INTO queueable_control (queue, scope, paused_at, paused_by, pause_reason) \
             VALUES ('jobs.status', '{scope}', '2026-01-01 00:00:00', 'me', 'by hand')"
        )
    };
    connection.batch_execute(&insert("value tenant_of_jobs 7")).unwrap();
    connection.batch_execute(&insert("value company_id 8")).unwrap();
    let tally = Fair::poller(database.pool(3), done!(Fair)).workers(1).control().run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 6, "a row by hand pauses an integer");
    assert_eq!(times_told(&["WARN", "do not take turns by the column of `tenant_of_jobs 7`"]), 1);
}
