//! Finished rows that the entity keeps no longer leave their table, and nothing else does.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queue_core::internals::backend::{Exclusion, LeadersDuty, Sql};
use queue_core::internals::statement::{QueueOn, next_rows};
use queueable::bounds::{HandlerFor, StoredIn};
use queueable::report::StatusCounts;
use queueable::{Error, Lease, Message, Migrations, Outcome, PollerHandle, Queueable, Status};

use super::on_finish;
use crate::db::{BIGINT, Conn, Database, NAME, TEXT, refuse_removal_of};
use crate::suite::bank::{Bank, NewPayment, Payment, payment_queue, payments};
use crate::suite::gauges::until as until_gauge;
use crate::suite::metrics::address;
use crate::suite::reports::odd_times;
use crate::suite::warnings::{await_warning, keep_warnings, times_told};

/// The bank's payments. Each test has an entity of its own, by whose name it finds its lines in the log.
macro_rules! payments {
    ($($name:ident $module:ident ($($key:tt)*);)*) => {$(
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        #[queue(module = $module, retry = fixed("1h"), timeout = "30s", $($key)*)]
        #[allow(dead_code, reason = "few of them run")]
        pub(super) struct $name {
            id: i64,
            amount_cents: i64,
        }
    )*};
}

payments! {
    KeptAlone kept_alone_queue (keep(success = "30d", failed = "1y", skipped = "7d"));
    KeptInGroup kept_in_group_queue (group = 20, keep(success = "30d", failed = "1y", skipped = "7d"));
    KeptLeased kept_leased_queue (lease = "60s", keep(success = "30d", failed = "1y", skipped = "7d"));
    KeptInPart kept_in_part_queue (keep(failed = "1d"));
    KeptMany kept_many_queue (keep(success = "1d", failed = "1d"));
    KeptOdd kept_odd_queue (keep(success = "1d", failed = "1d", skipped = "1d"));
    KeptReferred kept_referred_queue (keep(success = "1d"));
    KeptByTrigger kept_by_trigger_queue (keep(success = "1d"));
    KeptLocked kept_locked_queue (keep(success = "1d"));
    KeptByTwo kept_by_two_queue (keep(success = "1d"));
    KeptBehind kept_behind_queue (lease = "60s", keep(success = "1d"));
    KeptCounted kept_counted_queue (keep(success = "1d", failed = "1d"));
    KeptExclusive kept_exclusive_queue (exclusive, keep(success = "1d"));
    KeptPeriodic kept_periodic_queue (periodic, keep(success = "1d", failed = "1d"));
    KeptArchived kept_archived_queue (
        keep(success = "1d"), archive(success = payments_done, failed = payments_failed)
    );
}

type Backend = <Conn as diesel::Connection>::Backend;

const DAY: TimeDelta = TimeDelta::days(1);

/// Long enough on a machine that is busy with everything else.
const PATIENCE: Duration = Duration::from_secs(300);

fn done<Q>(_: &Q, _: &mut Message<'_, Conn>) -> queueable::HandlerResult {
    Ok(Outcome::Done)
}

fn start<Q: QueueOn<Conn>>(bank: &Bank, handler: impl HandlerFor<Q, Conn> + 'static) -> PollerHandle {
    keep_warnings();
    // Of the waiting connections the leases need one.
    Q::poller(bank.pool(2), handler).workers(1).start().unwrap()
}

/// Runs a poller until its upkeep has seen all rows. `seen`: what its line in the log says.
fn after_a_pass<Q: QueueOn<Conn>>(bank: &Bank, handler: impl HandlerFor<Q, Conn> + 'static, seen: &str) {
    let handle = start::<Q>(bank, handler);
    await_warning(&["the upkeep has seen all rows", &format!("entity=\"{}\"", Q::ENTITY), seen]);
    handle.shutdown(PATIENCE);
}

/// Inserts a row that was last attempted so long ago, not pending and without a text.
fn insert(bank: &Bank, amount_cents: i64, status: &str, ago: Option<TimeDelta>) -> i64 {
    let connection = &mut bank.connect();
    let ended = payment_queue::last_attempt_time.eq(ago.map(|ago| Utc::now() - ago));
    diesel::insert_into(payments::table)
        .values((NewPayment { company_id: 1, amount_cents }, ended))
        .execute(connection)
        .unwrap();
    let id =
        payments::table.select(diesel::dsl::max(payments::id)).get_result::<Option<i64>>(connection).unwrap().unwrap();
    connection.batch_execute(&format!("UPDATE payments SET status = '{status}' WHERE id = {id}")).unwrap();
    id
}

/// Inserts so many rows that succeeded long ago.
fn insert_old(bank: &Bank, rows: i64) {
    let old = payment_queue::last_attempt_time.eq(Utc::now() - DAY * 40);
    for amounts in (0..rows).collect::<Vec<_>>().chunks(1_000) {
        let row = |amount_cents: &i64| {
            (NewPayment { company_id: 1, amount_cents: *amount_cents }, payment_queue::status.eq(Status::Success), old)
        };
        let rows: Vec<_> = amounts.iter().map(row).collect();
        diesel::insert_into(payments::table).values(rows).execute(&mut bank.connect()).unwrap();
    }
}

fn execute(bank: &Bank, sql: &str) {
    bank.connect().batch_execute(sql).unwrap();
}

fn live(bank: &Bank) -> Vec<i64> {
    payments::table.order(payments::amount_cents).select(payments::amount_cents).load(&mut bank.connect()).unwrap()
}

fn id_of(bank: &Bank, amount: i64) -> i64 {
    payments::table.filter(payments::amount_cents.eq(amount)).select(payments::id).first(&mut bank.connect()).unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let (begun, (_nobody, pace)) = (Instant::now(), mpsc::channel::<()>());
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        let _ = pace.recv_timeout(Duration::from_millis(20));
    }
}

fn counts(expired: &StatusCounts) -> [i64; 3] {
    [Status::Success, Status::Failed, Status::Skipped].map(|status| expired.of(status))
}

/// Rows of every kind. Those with amounts below ten leave; 1, 2 and 3 have each status that ends.
fn rows_of_every_kind() -> Bank {
    let bank = Bank::new();
    let (hour, year) = (TimeDelta::hours(1), DAY * 365);
    for (amount, status, kept) in [(1, "SUCCESS", DAY * 30), (2, "FAILED", year), (3, "SKIPPED", DAY * 7)] {
        insert(&bank, amount, status, Some(kept + hour));
        insert(&bank, amount + 10, status, Some(kept - hour));
        insert(&bank, amount + 20, status, None);
        // Made due again by the application's own SQL: pending work, however old it is.
        insert(&bank, amount + 30, status, Some(year * 2));
    }
    execute(&bank, "UPDATE payments SET last_attempt_error_message = 'no route' WHERE amount_cents = 2");
    let old = Some(year * 2);
    insert(&bank, 41, "NOT_ATTEMPTED", old);
    insert(&bank, 42, "NOT_ATTEMPTED", None);
    // Stopped by an operator: before an attempt, after a failure, under a lease, and on its schedule.
    for (amount, status) in [(50, "NOT_ATTEMPTED"), (51, "ERROR"), (52, "IN_PROGRESS"), (53, "SUCCESS")] {
        insert(&bank, amount, status, old);
    }
    execute(
        &bank,
        "UPDATE payments SET last_attempt_error_message = 'queueable: stopped' WHERE amount_cents BETWEEN 50 AND 53",
    );
    // Pending, and running under a lease.
    insert(&bank, 60, "ERROR", old);
    insert(&bank, 61, "IN_PROGRESS", old);
    execute(
        &bank,
        "UPDATE payments SET next_attempt_time = '2201-02-03 04:05:06.000' \
         WHERE amount_cents BETWEEN 31 AND 33 OR amount_cents BETWEEN 60 AND 61",
    );
    insert(&bank, 70, "success", old);
    insert(&bank, 71, "WHATEVER", old);
    bank
}

const STAY: [i64; 19] = [11, 12, 13, 21, 22, 23, 31, 32, 33, 41, 42, 50, 51, 52, 53, 60, 61, 70, 71];

#[test]
fn rows_leave_by_their_status_and_age_and_all_others_stay_in_every_mode() {
    let of_each = "deleted=3 archived=0 stay=0 looked_at=22";
    let bank = rows_of_every_kind();
    let expired = |bank: &Bank| KeptAlone::queue().expired().counts_by_status(&mut bank.connect()).unwrap();
    assert_eq!((counts(&expired(&bank)), expired(&bank).total()), ([1, 1, 1], 3));
    let queue = KeptAlone::queue().filter(payments::amount_cents.le(2)).expired();
    assert_eq!(queue.count(&mut bank.connect()).unwrap(), 2);
    after_a_pass::<KeptAlone>(&bank, done, of_each);
    assert_eq!((live(&bank), expired(&bank).total()), (STAY.to_vec(), 0));
    let bank = rows_of_every_kind();
    after_a_pass::<KeptInGroup>(&bank, done, of_each);
    assert_eq!(live(&bank), STAY);
    let bank = rows_of_every_kind();
    let call =
        (|_: &KeptLeased, _: &Lease| Ok(()), |_: &KeptLeased, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    after_a_pass::<KeptLeased>(&bank, call, of_each);
    assert_eq!(live(&bank), STAY);
}

#[test]
fn rows_of_a_status_that_is_not_named_stay_for_good() {
    let bank = rows_of_every_kind();
    let expired = KeptInPart::queue().expired().counts_by_status(&mut bank.connect()).unwrap();
    assert_eq!(counts(&expired), [0, 2, 0]);
    after_a_pass::<KeptInPart>(&bank, done, "deleted=2");
    let left: Vec<_> = [1, 3].into_iter().chain(STAY.into_iter().filter(|amount| *amount != 12)).collect();
    assert_eq!(live(&bank), left);
}

#[test]
fn many_rows_leave_in_steps() {
    let bank = Bank::new();
    insert_old(&bank, 700);
    insert(&bank, 5_000, "SUCCESS", Some(TimeDelta::hours(23)));
    insert_old(&bank, 700);
    insert(&bank, 5_001, "FAILED", Some(TimeDelta::hours(25)));
    insert(&bank, 5_002, "SKIPPED", Some(DAY * 400));
    after_a_pass::<KeptMany>(&bank, done, "deleted=1401 archived=0 stay=0 looked_at=1403");
    assert_eq!(live(&bank), [5_000, 5_002]);
}

#[test]
fn a_time_that_is_none_tells_no_age() {
    let bank = Bank::new();
    let mode = if NAME == "mysql" { "SET SESSION sql_mode = ''; " } else { "" };
    let times = odd_times();
    for (amount, (odd, _)) in (10..).zip(&times) {
        insert(&bank, amount, "SUCCESS", None);
        execute(&bank, &format!("{mode}UPDATE payments SET last_attempt_time = {odd} WHERE amount_cents = {amount}"));
    }
    insert(&bank, 1, "SKIPPED", Some(DAY * 2));
    after_a_pass::<KeptOdd>(&bank, done, "deleted=1");
    assert_eq!(live(&bank).len(), times.len());
}

#[test]
fn rows_with_an_archive_stay_in_the_table_for_their_time_and_then_move() {
    let bank = on_finish::bank();
    let rows = bank.enqueue([5, 6, -1]);
    execute(&bank, "UPDATE payments SET note = 'für K.'");
    let judge = |row: &KeptArchived, _: &mut Message<'_, Conn>| match row.amount_cents {
        ..0 => Err(queueable::Failure::fatal("no such account")),
        _ => Ok(Outcome::Done),
    };
    let tally = KeptArchived::poller(bank.pool(1), judge).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.failed), (2, 1));
    // Failures are not kept, and leave at once.
    assert_eq!((on_finish::live(&bank), on_finish::done(&bank).len()), (rows[..2].to_vec(), 0));
    assert_eq!(on_finish::failed(&bank).len(), 1);
    diesel::update(payments::table.find(rows[0]))
        .set(payment_queue::last_attempt_time.eq(Utc::now() - DAY * 2))
        .execute(&mut bank.connect())
        .unwrap();
    after_a_pass::<KeptArchived>(&bank, judge, "deleted=0 archived=1 stay=0");
    assert_eq!(on_finish::live(&bank), rows[1..2]);
    let note = Some("für K.".to_owned());
    assert_eq!(on_finish::done(&bank), [(rows[0], 5, note, "SUCCESS".to_owned(), 1, None)]);
    assert_eq!(KeptArchived::queue().all_rows().redrive_succeeded(&mut bank.connect()).unwrap().rows, 1);
    assert_eq!(on_finish::live(&bank), rows[..2]);
}

#[test]
fn a_row_to_which_others_refer_stays_and_keeps_no_other_back() {
    let bank = Bank::new();
    insert_old(&bank, 40);
    execute(
        &bank,
        &format!(
            "CREATE TABLE refunds (payment_id {BIGINT} NOT NULL, FOREIGN KEY (payment_id) REFERENCES payments (id)); \
             INSERT INTO refunds SELECT id FROM payments WHERE amount_cents IN (7, 8, 31)"
        ),
    );
    after_a_pass::<KeptReferred>(&bank, done, "deleted=37 archived=0 stay=3");
    assert_eq!(live(&bank), [7, 8, 31]);
    let told = ["the upkeep leaves 3 rows in the table that have expired", "KeptReferred", "ON DELETE CASCADE"];
    await_warning(&told);
    assert_eq!(times_told(&told), 1);
}

#[test]
fn a_row_that_a_trigger_keeps_stays_alone() {
    let bank = Bank::new();
    insert_old(&bank, 9);
    execute(&bank, &refuse_removal_of(id_of(&bank, 4)));
    after_a_pass::<KeptByTrigger>(&bank, done, "deleted=8 archived=0 stay=1");
    assert_eq!(live(&bank), [4]);
}

#[test]
fn a_row_that_another_session_has_locked_stays_for_now() {
    // SQLite has one lock for all rows.
    if NAME == "sqlite" {
        return;
    }
    let bank = Bank::new();
    insert_old(&bank, 9);
    // Of few rows MariaDB would read all, and wait for the locked one.
    bank.enqueue(vec![-1; 500]);
    let waiting = payments::table.filter(payments::amount_cents.lt(0));
    diesel::update(waiting).set(KeptLocked::due_in(Duration::from_secs(3600))).execute(&mut bank.connect()).unwrap();
    let id = id_of(&bank, 4);
    let connection = &mut bank.connect();
    let locked = connection.transaction(|connection| {
        // By its key, or MariaDB would lock all rows.
        diesel::update(payments::table.find(id))
            .set(payment_queue::last_attempt_time.eq(Utc::now()))
            .execute(connection)?;
        after_a_pass::<KeptLocked>(&bank, done, "deleted=8");
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    assert!(locked.is_err());
    assert_eq!(live(&bank)[500..], [4]);
}

#[test]
fn one_process_at_a_time_removes_rows_and_another_takes_over() {
    address();
    let bank = Bank::new();
    let target = <KeptByTwo as QueueOn<Conn>>::QUEUE.target().unwrap();
    let (leader, mut lead) = (&mut bank.connect(), None);
    assert!(leader.try_lead(&target, LeadersDuty::Upkeep, &mut lead).unwrap());
    insert_old(&bank, 3);
    keep_warnings();
    let poller = KeptByTwo::poller(bank.pool(1), done::<KeptByTwo>).workers(1).metrics().gauges(Duration::from_secs(1));
    let handle = poller.start().unwrap();
    // A reading of the gauges follows a look at the lock, and has a lock of its own.
    until_gauge("queueable_rows", &[("entity", "KeptByTwo"), ("state", "due")], |rows| rows == 0.0);
    assert_eq!(live(&bank).len(), 3);
    (lead, *leader) = (None, bank.connect());
    until("the other has taken over", || live(&bank).is_empty());
    assert!(!leader.try_lead(&target, LeadersDuty::Upkeep, &mut lead).unwrap(), "it keeps the lock between its passes");
    handle.shutdown(PATIENCE);
    // The server ends the poller's session a little later.
    until("the lock is free", || leader.try_lead(&target, LeadersDuty::Upkeep, &mut lead).unwrap());
}

#[test]
fn the_upkeep_waits_while_the_claims_are_behind() {
    let bank = Bank::new();
    insert_old(&bank, 8_000);
    bank.enqueue([-1, -2]);
    let due = payments::table.filter(payments::amount_cents.lt(0));
    diesel::update(due).set(KeptBehind::due_at(Utc::now() - DAY)).execute(&mut bank.connect()).unwrap();
    let ((begun, has_begun), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel::<()>());
    let call = std::sync::Mutex::new(may_go_on);
    let hold = move |_: &KeptBehind, _: &Lease| {
        begun.send(()).unwrap();
        let _ = call.lock().unwrap().recv();
        Ok(())
    };
    let apply = |_: &KeptBehind, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let handle = start::<KeptBehind>(&bank, (hold, apply));
    has_begun.recv().unwrap();
    let before = live(&bank).len();
    let (_nobody, pace) = mpsc::channel::<()>();
    let _ = pace.recv_timeout(Duration::from_secs(3));
    let left = live(&bank).len();
    let removed = before - left;
    assert!(removed <= 1_000, "a step was on its way, and {removed} rows were removed");
    drop(go_on);
    // One more step shows it. All of them take minutes where a step is slow: then it is small, and has a long rest.
    until("the upkeep goes on", || live(&bank).len() < left);
    handle.shutdown(PATIENCE);
}

#[test]
fn what_the_upkeep_has_done_is_counted() {
    address();
    let bank = Bank::new();
    insert_old(&bank, 5);
    insert(&bank, 9, "FAILED", Some(DAY * 2));
    keep_warnings();
    let handle = KeptCounted::poller(bank.pool(1), done::<KeptCounted>).workers(1).metrics().start().unwrap();
    until("all rows are gone", || live(&bank).is_empty());
    handle.shutdown(PATIENCE);
    let text = ureq::get(address()).call().unwrap().body_mut().read_to_string().unwrap();
    let value = |status: &str, outcome: &str| {
        let labels =
            [r#"entity="KeptCounted""#.to_owned(), format!("status={status:?}"), format!("outcome={outcome:?}")];
        let is_it = |line: &&str| {
            line.starts_with("queueable_upkeep_rows_total{") && labels.iter().all(|label| line.contains(label))
        };
        text.lines().find(is_it).and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
    };
    let counted = [("SUCCESS", "deleted"), ("FAILED", "deleted"), ("FAILED", "refused")]
        .map(|(status, outcome)| value(status, outcome));
    assert_eq!(counted, [Some("5".to_owned()), Some("1".to_owned()), Some("0".to_owned())]);
}

#[test]
fn exclusive_and_periodic_rows_that_are_not_finished_stay() {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().entity::<KeptExclusive>()).unwrap();
    insert(&bank, 1, "SUCCESS", Some(DAY * 2));
    insert(&bank, 11, "SUCCESS", Some(TimeDelta::hours(1)));
    after_a_pass::<KeptExclusive>(&bank, done, "deleted=1");
    assert_eq!(live(&bank), [11]);

    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().entity::<KeptPeriodic>()).unwrap();
    // One that ran once, one that waits for its next run, one whose schedule was stopped.
    for amount in [1, 11, 12] {
        insert(&bank, amount, "SUCCESS", Some(DAY * 2));
    }
    let due = payments::table.filter(payments::amount_cents.ge(11));
    let next = (kept_periodic_queue::period.eq(60), KeptPeriodic::due_in(Duration::from_secs(3_000)));
    diesel::update(due).set(next).execute(&mut bank.connect()).unwrap();
    execute(&bank, "UPDATE payments SET status = 'SUCCESS' WHERE amount_cents >= 11");
    let stopped = KeptPeriodic::queue().filter(payments::amount_cents.eq(12)).stop(&mut bank.connect()).unwrap();
    assert_eq!(stopped, 1);
    after_a_pass::<KeptPeriodic>(&bank, done, "deleted=1");
    assert_eq!(live(&bank), [11, 12]);
}

diesel::table! { orders (company, number) { company -> Text, number -> BigInt, amount -> BigInt, } }

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = orders, primary_key(company, number))]
#[queue(timeout = "30s", keep(success = "1d", failed = "2d"))]
#[allow(dead_code, reason = "no row of it runs")]
struct KeptByBoth {
    number: i64,
    company: String,
    amount: i64,
}

fn create_orders(connection: &mut Conn) {
    connection
        .batch_execute(&format!(
            "CREATE TABLE orders (company {TEXT} NOT NULL, number {BIGINT} NOT NULL, amount {BIGINT} NOT NULL, PRIMARY KEY (company, number))"
        ))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<KeptByBoth>()).unwrap();
}

#[test]
fn rows_with_keys_of_several_columns_leave_too() {
    keep_warnings();
    let database = Database::new();
    let connection = &mut database.connect();
    create_orders(connection);
    for company in ["a", "a'b", "ß"] {
        for number in 0..400 {
            let state = if number % 100 == 7 { Status::Failed } else { Status::Success };
            let values = (orders::company.eq(company), orders::number.eq(number), orders::amount.eq(number));
            let ended = kept_by_both_queue::last_attempt_time.eq(Utc::now() - DAY * 3 / 2);
            diesel::insert_into(orders::table)
                .values((values, kept_by_both_queue::status.eq(state), ended))
                .execute(connection)
                .unwrap();
        }
    }
    let handle = KeptByBoth::poller(database.pool(3), done::<KeptByBoth>).workers(1).start().unwrap();
    await_warning(&["the upkeep has seen all rows", "KeptByBoth", "deleted=1188"]);
    handle.shutdown(PATIENCE);
    let left: Vec<i64> = orders::table.select(orders::number).order(orders::number).load(connection).unwrap();
    assert_eq!(left, [7, 7, 7, 107, 107, 107, 207, 207, 207, 307, 307, 307]);
}

/// So that a pass costs what its rows cost, however far it has come.
#[test]
fn a_step_begins_in_the_index_of_the_key_at_the_last_row() {
    let database = Database::new();
    let connection = &mut database.connect();
    create_orders(connection);
    connection
        .batch_execute(
            "INSERT INTO orders (company, number, amount)
             WITH d (i) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
                 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)
             SELECT 100 + a.i * 10 + b.i, c.i * 100 + e.i * 10 + f.i, 1
             FROM d a CROSS JOIN d b CROSS JOIN d c CROSS JOIN d e CROSS JOIN d f",
        )
        .unwrap();
    connection.batch_execute(&crate::db::ANALYZE.replace("payments", "orders")).unwrap();
    let after = <KeptByBoth as StoredIn<Backend>>::after(&("150".to_owned(), 500));
    let walk = next_rows(<KeptByBoth as StoredIn<Backend>>::SQL, Some(after), 100);
    let sql = diesel::debug_query::<Backend, _>(&Sql::new(&walk)).to_string();
    let (sql, binds) = sql.split_once(" -- binds: ").unwrap();
    let binds: Vec<_> = binds.trim_matches(['[', ']']).split(", ").map(|bind| bind.replace('"', "'")).collect();
    let mut sql = sql.to_owned();
    for (place, bind) in binds.iter().enumerate() {
        sql = match NAME {
            "postgres" => sql.replace(&format!("${}", place + 1), bind),
            _ => sql.replacen('?', bind, 1),
        };
    }
    let plan = crate::db::plan(connection, &sql);
    assert!(crate::db::walks_the_index(&plan), "{plan}");
}

#[test]
fn only_a_queue_that_keeps_its_rows_for_a_time_needs_a_connection_for_that() {
    let bank = Bank::new();
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    Payment::poller(bank.database.pool(2), handler).workers(1).run_until_idle().unwrap();
    match KeptAlone::poller(bank.database.pool(2), done::<KeptAlone>).workers(1).start() {
        Err(Error::Setting { setting: "the pool's max_size", expected, .. }) => {
            assert!(expected.contains("its reports"))
        }
        other => panic!("{other:?}"),
    }
}
