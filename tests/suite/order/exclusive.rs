//! One message at a time, anywhere, in the order of the key: the first pending row, and while it waits no other row.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queue_core::internals::statement::Scope;
use queueable::bounds::QueueOn;
use queueable::{CrashAccounting, Failure, Lease, Message, Migrations, Outcome, Poller, Queueable, Status};

use super::{Seen, Step, bank_of, entity, session_of_a_worker, sql};
use crate::db::{self, BIGINT, Conn, Database, KEEP_SEVEN};
use crate::suite::bank::{Bank, NewPayment, ledger, payments};
use crate::suite::keyed::erased;
use queue_core::internals::backend::Transactions;

entity!(Alone, alone_queue, exclusive);
entity!(AloneByAmount, alone_by_amount_queue, exclusive, order_by = amount_cents);
entity!(AloneCalled, alone_called_queue, exclusive, lease = "60s");
entity!(AloneInSteps, alone_in_steps_queue, exclusive, stage = Step);
entity!(LargestInSteps, largest_in_steps_queue, exclusive, order_by = amount_cents.desc(), stage = Step);

/// Queues payments of these amounts, the first with the smallest key and the latest due time.
fn queue(bank: &Bank, amounts: impl IntoIterator<Item = i64>) {
    for (place, amount) in amounts.into_iter().enumerate() {
        let time = format!("2026-01-01 00:{:02}:00.000", 59 - place);
        sql(
            bank,
            &format!(
                "INSERT INTO payments (company_id, amount_cents, next_attempt_time) VALUES (1, {amount}, '{time}')"
            ),
        );
    }
}

/// Detects whether two handlers run at once, and records in which order they ran.
#[derive(Clone, Default)]
struct Witness {
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    seen: Seen,
}

impl Witness {
    fn within<T>(&self, amount: i64, work: impl FnOnce() -> T) -> T {
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.seen.push(amount);
        // Long enough for another worker to begin, if nothing prevents it.
        let (_nobody, pace) = mpsc::channel::<()>();
        let _ = pace.recv_timeout(Duration::from_millis(3));
        let result = work();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn assert_alone(&self) {
        assert_eq!(self.most.load(Ordering::SeqCst), 1);
    }
}

/// The first attempt of every third message fails, and is repeated soon.
fn answer(amount: i64, try_number: u32) -> Result<Outcome, Failure> {
    match amount % 3 == 0 && try_number == 1 {
        true => Err(Failure::retry_after(Duration::from_millis(30), "not yet")),
        false => Ok(Outcome::Done),
    }
}

/// 1 to 12, with those that fail twice.
fn with_retries() -> Vec<i64> {
    (1..=12).flat_map(|amount| if amount % 3 == 0 { vec![amount; 2] } else { vec![amount] }).collect()
}

/// Runs until nothing is pending, because `run_until_idle` returns while a retry is not due yet.
fn until_nothing_is_pending(pollers: Vec<queueable::PollerHandle>, pending: impl Fn() -> i64) {
    let (_nobody, pace) = mpsc::channel::<()>();
    while pending() > 0 {
        let _ = pace.recv_timeout(Duration::from_millis(5));
    }
    for poller in pollers {
        poller.shutdown(Duration::from_secs(60));
    }
}

#[test]
fn several_pollers_with_several_workers_run_one_message_at_a_time_in_the_order_of_the_key() {
    for accounting in [CrashAccounting::On, CrashAccounting::Strict] {
        let bank = bank_of::<Alone>();
        queue(&bank, 1..=12);
        let witness = Witness::default();
        let pollers = (0..2).map(|_| {
            let witness = witness.clone();
            let handler = move |row: &Alone, message: &mut Message<'_, Conn>| {
                witness.within(row.amount_cents, || answer(row.amount_cents, message.try_number()))
            };
            let poller = Alone::poller(bank.pool(3), handler).workers(3).crash_accounting(accounting);
            poller.poll_interval(Duration::from_millis(20)).start().unwrap()
        });
        let pollers = pollers.collect();
        until_nothing_is_pending(pollers, || Alone::queue().pending().count(&mut bank.connect()).unwrap());
        witness.assert_alone();
        assert_eq!(witness.seen.all(), with_retries(), "{accounting:?}");
    }
}

#[test]
fn under_a_lease_one_message_is_called_at_a_time_in_the_order_of_the_key() {
    let bank = bank_of::<AloneCalled>();
    queue(&bank, 1..=12);
    let witness = Witness::default();
    let pollers = (0..2).map(|_| {
        let calls = witness.clone();
        let handler = (
            move |row: &AloneCalled, lease: &Lease| {
                calls.within(row.amount_cents, || answer(row.amount_cents, lease.try_number()).map(drop))
            },
            |_: &AloneCalled, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
        );
        let poller = AloneCalled::poller(bank.pool(3), handler).workers(3).claim_batch(10);
        poller.poll_interval(Duration::from_millis(20)).start().unwrap()
    });
    let pollers = pollers.collect();
    until_nothing_is_pending(pollers, || AloneCalled::queue().pending().count(&mut bank.connect()).unwrap());
    witness.assert_alone();
    assert_eq!(witness.seen.all(), with_retries());
}

#[test]
fn a_column_comes_before_the_key() {
    let bank = bank_of::<AloneByAmount>();
    queue(&bank, [3, 1, 2, 1, 3]);
    let witness = Witness::default();
    let seen = witness.clone();
    let handler = move |row: &AloneByAmount, _: &mut Message<'_, Conn>| seen.within(row.id, || Ok(Outcome::Done));
    let tally = AloneByAmount::poller(bank.pool(3), handler).workers(3).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 5);
    witness.assert_alone();
    assert_eq!(witness.seen.all(), [2, 4, 3, 1, 5]);
}

#[test]
fn a_row_that_is_not_due_holds_up_those_behind_it_until_it_has_its_turn_or_none() {
    let bank = bank_of::<Alone>();
    queue(&bank, [1, 2]);
    sql(&bank, "UPDATE payments SET next_attempt_time = '2100-01-01 00:00:00.000' WHERE amount_cents = 1");
    let seen = Seen::default();
    let run = || {
        let log = seen.clone();
        let handler = move |row: &Alone, _: &mut Message<'_, Conn>| {
            log.push(row.amount_cents);
            Err(Failure::fatal("no"))
        };
        Alone::poller(bank.pool(2), handler).workers(2).run_until_idle().unwrap()
    };
    // The run ends, because no due row may run.
    assert_eq!(run().failed, 0);
    // A row that has failed for good is passed over, and so is a stopped one.
    Alone::queue().filter(payments::amount_cents.eq(1)).retry_now(&mut bank.connect()).unwrap();
    assert_eq!(run().failed, 2);
    assert_eq!(seen.all(), [1, 2]);
    queue(&bank, [3, 4]);
    Alone::queue().filter(payments::amount_cents.eq(3)).stop(&mut bank.connect()).unwrap();
    run();
    assert_eq!(seen.all(), [1, 2, 4]);
}

/// Works the rows of some stages until none of them may run, and returns the amounts in their order.
macro_rules! work_in {
    ($entity:ident, $bank:expr, $stages:expr) => {{
        let seen = Seen::default();
        let log = seen.clone();
        let handler = move |row: &$entity, _: &mut Message<'_, Conn>| {
            log.push(row.amount_cents);
            Ok(Outcome::Done)
        };
        let poller = Poller::new($bank.pool(2)).serve_stages::<$entity>(&$stages, handler).workers(2);
        poller.run_until_idle().unwrap();
        seen.all()
    }};
}

#[test]
fn a_row_in_a_stage_that_is_not_served_holds_nobody_up_and_the_served_ones_keep_one_order() {
    let stages = |bank: &Bank| {
        queue(bank, 1..=9);
        sql(bank, "UPDATE payments SET stage = 'BOOK' WHERE amount_cents IN (1, 4, 9)");
        sql(bank, "UPDATE payments SET stage = 'SEND' WHERE amount_cents IN (3, 6, 7)");
        sql(bank, "UPDATE payments SET next_attempt_time = '2100-01-01 00:00:00.000' WHERE amount_cents = 4");
    };
    let bank = bank_of::<AloneInSteps>();
    stages(&bank);
    assert_eq!(work_in!(AloneInSteps, bank, [Step::Send]), [3, 6, 7]);
    // The fourth is not due.
    assert_eq!(work_in!(AloneInSteps, bank, [Step::Draw, Step::Book]), [1, 2]);
    assert_eq!(work_in!(AloneInSteps, bank, [Step::Draw]), [5, 8]);
    let bank = bank_of::<LargestInSteps>();
    stages(&bank);
    assert_eq!(work_in!(LargestInSteps, bank, [Step::Draw, Step::Send]), [8, 7, 6, 5, 3, 2]);
    assert_eq!(work_in!(LargestInSteps, bank, [Step::Book, Step::Send]), [9]);
}

#[test]
fn the_rows_of_some_stages_keep_the_order_of_a_key_of_two_columns() {
    diesel::table! { legs (trip, number) { trip -> BigInt, number -> BigInt, } }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = legs, primary_key(trip, number))]
    #[queue(exclusive, stage = Step, timeout = "30s")]
    struct Leg {
        trip: i64,
        number: i64,
    }

    let database = Database::new();
    let mut connection = database.connect();
    let table =
        format!("CREATE TABLE legs (trip {BIGINT} NOT NULL, number {BIGINT} NOT NULL, PRIMARY KEY (trip, number))");
    connection.batch_execute(&table).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Leg>()).unwrap();
    for (trip, number, stage) in [(2, 1, "SEND"), (1, 2, "BOOK"), (1, 1, "DRAW"), (1, 3, "SEND"), (2, 2, "BOOK")] {
        let leg = (legs::trip.eq(trip), legs::number.eq(number), leg_queue::stage.eq(stage), Leg::due_now());
        diesel::insert_into(legs::table).values(leg).execute(&mut connection).unwrap();
    }
    let seen = Seen::default();
    let log = seen.clone();
    let handler = move |row: &Leg, _: &mut Message<'_, Conn>| {
        log.push(row.trip * 10 + row.number);
        Ok(Outcome::Done)
    };
    let poller = Poller::new(database.pool(3)).serve_stages::<Leg>(&[Step::Send, Step::Book], handler).workers(2);
    poller.run_until_idle().unwrap();
    assert_eq!(seen.all(), [12, 13, 21, 22]);
}

#[test]
fn a_row_with_an_unknown_status_holds_nobody_up() {
    let bank = bank_of::<Alone>();
    queue(&bank, [1, 2]);
    sql(&bank, "UPDATE payments SET status = 'DONE' WHERE amount_cents = 1");
    let tally = Alone::poller(bank.pool(1), |_: &Alone, _: &mut Message<'_, Conn>| Ok(Outcome::Done))
        .workers(1)
        .run_until_idle()
        .unwrap();
    assert_eq!(tally.succeeded, 1);
}

#[test]
fn a_row_that_cannot_be_written_holds_up_those_behind_it() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(exclusive, retry = fixed("0s"), max_tries = 100, timeout = "30s")]
    struct AloneSoon {
        #[allow(dead_code, reason = "the key is needed, but not looked at")]
        id: i64,
        amount_cents: i64,
    }

    let bank = bank_of::<AloneSoon>();
    sql(&bank, KEEP_SEVEN);
    queue(&bank, [7, 8]);
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let handler = move |row: &AloneSoon, _: &mut Message<'_, Conn>| {
        tell.lock().unwrap().send(row.amount_cents).unwrap();
        Ok(Outcome::Done)
    };
    let poller = AloneSoon::poller(bank.pool(3), handler).workers(3).poll_interval(Duration::from_millis(20));
    // The handler of a row that cannot be marked would not run.
    let poller = poller.crash_accounting(CrashAccounting::Off).start().unwrap();
    // If the trigger is removed between two writes of an attempt, the attempt is recorded, and repeated at once. Otherwise this
    // process passes over the row for a while, and then tries it again.
    assert_eq!(told.recv().unwrap(), 7);
    let mut connection = bank.connect();
    while let Err(error) = connection.batch_execute(match db::NAME {
        "postgres" => "DROP TRIGGER keep ON payments",
        _ => "DROP TRIGGER keep",
    }) {
        assert!(db::NAME == "sqlite" && error.to_string().contains("locked"), "{error}");
    }
    let rest: Vec<_> = told.iter().take_while(|amount| *amount != 8).collect();
    assert!(!rest.is_empty() && rest.iter().all(|amount| *amount == 7), "{rest:?}");
    poller.shutdown(Duration::from_secs(60));
}

/// Locks and reads the row whose turn it is, in a transaction that the caller ends.
fn claim<Q: QueueOn<Conn>>(session: &mut Conn) -> Option<Q::Key> {
    session.begin().unwrap();
    queue_core::internals::claim_one(erased::<Q>(), session, Scope::ALL)
        .unwrap()
        .map(|claimed| claimed.key.value().clone())
}

fn end<Q: QueueOn<Conn>>(session: &mut Conn) {
    <Conn as Connection>::TransactionManager::rollback_transaction(session).unwrap();
    erased::<Q>().end_exclusion(session).unwrap();
}

#[test]
fn a_smaller_key_that_is_committed_meanwhile_does_not_run_beside_the_larger_one() {
    if db::NAME == "sqlite" {
        // Nobody commits meanwhile.
        return;
    }
    let bank = bank_of::<Alone>();
    let insert = |session: &mut Conn, id: i64| {
        diesel::insert_into(payments::table)
            .values((payments::id.eq(id), NewPayment { company_id: 1, amount_cents: id }, Alone::due_now()))
            .execute(session)
            .unwrap()
    };
    let (mut one, mut other) = (session_of_a_worker(&bank), session_of_a_worker(&bank));
    let mut late = bank.connect();
    <Conn as Connection>::TransactionManager::begin_transaction(&mut late).unwrap();
    insert(&mut late, 5);
    insert(&mut bank.connect(), 10);
    assert_eq!(claim::<Alone>(&mut one), Some(10));
    <Conn as Connection>::TransactionManager::commit_transaction(&mut late).unwrap();
    assert_eq!(claim::<Alone>(&mut other), None, "it has the smaller key, but another one runs");
    end::<Alone>(&mut other);
    end::<Alone>(&mut one);
    assert_eq!(claim::<Alone>(&mut other), Some(5));
    assert_eq!(claim::<Alone>(&mut one), None);
    end::<Alone>(&mut one);
    // The end of the session is enough.
    drop(other);
    let (_nobody, pace) = mpsc::channel::<()>();
    while claim::<Alone>(&mut one) != Some(5) {
        end::<Alone>(&mut one);
        let _ = pace.recv_timeout(Duration::from_millis(5));
    }
    end::<Alone>(&mut one);
    // The claim waits for a row that another session has locked, and does not pass over it.
    <Conn as Connection>::TransactionManager::begin_transaction(&mut late).unwrap();
    diesel::update(payments::table.find(5)).set(payments::company_id.eq(2)).execute(&mut late).unwrap();
    assert_eq!(claim::<Alone>(&mut one), None);
    end::<Alone>(&mut one);
}

#[test]
fn entities_do_not_exclude_each_other() {
    if db::NAME == "sqlite" {
        return;
    }
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(prefix = "other_", module = other_queue, exclusive)]
    struct Other {
        id: i64,
    }
    let bank = bank_of::<Alone>();
    let mut one = bank.connect();
    one.run_pending_migrations(Migrations::new().entity::<Other>()).unwrap();
    queue(&bank, [1]);
    sql(
        &bank,
        "INSERT INTO payments (company_id, amount_cents, other_next_attempt_time)
         VALUES (1, 2, '2026-01-01 00:00:00.000')",
    );
    let (mut other, mut elsewhere) = (bank.connect(), bank_of::<Alone>());
    queue(&elsewhere, [1]);
    assert!(claim::<Alone>(&mut one).is_some());
    assert!(claim::<Other>(&mut other).is_some());
    assert!(claim::<Alone>(&mut elsewhere.connect()).is_some(), "another database is another queue");
    end::<Alone>(&mut one);
    end::<Other>(&mut other);
    let _ = |row: Other| row.id;
    let _ = &mut elsewhere;
}

#[test]
fn a_lease_keeps_the_others_from_their_turn_until_it_ends_and_its_holder_then_writes_nothing() {
    let bank = Arc::new(bank_of::<AloneCalled>());
    queue(&bank, [10, 20]);
    let first = AtomicBool::new(true);
    let seen = bank.clone();
    let claimed = |session: &mut Conn| -> bool {
        session.begin().unwrap();
        let rows = queue_core::internals::claim_some(erased::<AloneCalled>(), session, true, 1, Scope::ALL).unwrap();
        <Conn as Connection>::TransactionManager::rollback_transaction(session).unwrap();
        erased::<AloneCalled>().end_exclusion(session).unwrap();
        !rows.is_empty()
    };
    let handler = (
        move |row: &AloneCalled, _: &Lease| {
            if row.amount_cents != 10 || !first.swap(false, Ordering::Relaxed) {
                return Ok(());
            }
            let mut session = seen.connect();
            // A row that comes first is not claimed while this one runs.
            let smaller = (payments::id.eq(-1), NewPayment { company_id: 1, amount_cents: 5 });
            diesel::insert_into(payments::table).values((smaller, AloneCalled::due_now())).execute(&mut session)?;
            assert!(!claimed(&mut session));
            // As if this worker had been frozen for long: its lease has ended, and another row's lease has begun.
            session.batch_execute(
                "UPDATE payments SET next_attempt_time = '2026-01-01 00:00:00.000' WHERE amount_cents = 10",
            )?;
            assert!(claimed(&mut session));
            session.batch_execute(
                "UPDATE payments SET next_attempt_time = '2100-01-01 00:00:00.000', status = 'IN_PROGRESS'
                 WHERE amount_cents = 5",
            )?;
            Ok(())
        },
        |row: &AloneCalled, _: &(), message: &mut Message<'_, Conn>| {
            diesel::insert_into(ledger::table)
                .values((ledger::payment_id.eq(row.id), ledger::amount_cents.eq(row.amount_cents)))
                .execute(message.connection())?;
            Ok(Outcome::Done)
        },
    );
    let tally = AloneCalled::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.lost, tally.succeeded), (1, 0));
    assert!(bank.booked().is_empty());
    let status = payments::table.filter(payments::amount_cents.eq(10)).select(alone_called_queue::status);
    let status: Status = status.first(&mut bank.connect()).unwrap();
    assert_eq!(status, Status::InProgress, "it is repeated when its turn comes");
}
