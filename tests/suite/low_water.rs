//! The low-water mark: claims begin where the last ones ended, and rows that are due earlier are processed
//! nevertheless.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::connection::TransactionManager;
use diesel::prelude::*;
use queue_core::internals::statement::Scope;
use queue_core::internals::{LowWater, LowWaterFloor, RowKey};
use queueable::{HandlerResult, Lease, Message, Outcome, Poller, Queueable};

use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, NewPayment, Payment, payments};
use crate::suite::keyed::{erased, queue};
use crate::suite::lease::Charge;
use crate::suite::modes::Grouped;

fn minute(minute: u32) -> DateTime<Utc> {
    format!("2026-01-01T00:{minute:02}:00Z").parse().unwrap()
}

/// Enqueues a payment that is due at this minute of a day in the past, and returns its id.
pub(crate) fn due_at(bank: &Bank, at: u32) -> i64 {
    let id = bank.enqueue([i64::from(at)])[0];
    diesel::update(payments::table.find(id)).set(Payment::due_at(minute(at))).execute(&mut bank.connect()).unwrap();
    id
}

/// Claims within a transaction that is rolled back, and returns the row's amount: the minute at which it is due.
fn claim<'a>(connection: &mut Conn, low_water: &'a LowWater) -> (Option<i64>, LowWaterFloor<'a>) {
    let claim_floor = low_water.claim_floor();
    let scope = Scope { claim_floor: Some(&claim_floor), ..Scope::ALL };
    let claimed = rolled_back(connection, |connection| {
        queue_core::internals::claim_one(erased::<Payment>(), connection, scope).unwrap()
    });
    (claimed.map(|row| row.message.unwrap().0.downcast::<Payment>().unwrap().amount_cents), claim_floor)
}

/// Runs `work` in a transaction that is rolled back.
fn rolled_back<T>(connection: &mut Conn, work: impl FnOnce(&mut Conn) -> T) -> T {
    <Conn as Connection>::TransactionManager::begin_transaction(connection).unwrap();
    let worked = work(connection);
    <Conn as Connection>::TransactionManager::rollback_transaction(connection).unwrap();
    worked
}

#[test]
fn a_claim_begins_where_the_last_one_ended_until_a_full_look_has_found_more() {
    let bank = Bank::new();
    for at in [10, 20, 30] {
        due_at(&bank, at);
    }
    let mut connection = bank.connect();
    let low_water = LowWater::of::<Conn>(queue::<Payment>().options, true);
    let mut next = |low_water: &LowWater| {
        let (claimed, claim_floor) = claim(&mut connection, low_water);
        claim_floor.keep();
        claimed
    };
    // The rows stay due, and another one arrives that is due earlier.
    assert_eq!((next(&low_water), next(&low_water)), (Some(10), Some(10)));
    due_at(&bank, 5);
    // On SQLite there is no mark.
    assert_eq!(next(&low_water), if NAME == "sqlite" { Some(5) } else { Some(10) });
    let probe = |floor| erased::<Payment>().probe_due(&mut bank.connect(), None, floor);
    let look = |low_water: &LowWater, thorough| low_water.probe_due(thorough, probe);
    // The first probe is a full one, and so is a thorough one.
    for thorough in [false, true] {
        assert_eq!(look(&low_water, thorough), Ok(Some(Duration::ZERO)));
        assert_eq!(next(&low_water), Some(5));
        assert_eq!(next(&low_water), Some(5));
        diesel::delete(payments::table.filter(payments::amount_cents.eq(5))).execute(&mut bank.connect()).unwrap();
        assert_eq!(next(&low_water), Some(10));
        due_at(&bank, 5);
    }
    diesel::delete(payments::table.filter(payments::amount_cents.ne(5))).execute(&mut bank.connect()).unwrap();
    // No row is due above the mark, but a full probe has to follow soon, because one may be due below it.
    let looked = look(&low_water, false).unwrap().unwrap();
    assert!(looked <= Duration::from_secs(30), "{looked:?}");
}

#[test]
fn the_mark_falls_back_to_a_row_whose_attempt_came_to_nothing() {
    let bank = Bank::new();
    let first = [10, 20, 30].map(|at| due_at(&bank, at))[0];
    let mut connection = bank.connect();
    let low_water = LowWater::of::<Conn>(queue::<Payment>().options, true);
    let (claimed, undone) = claim(&mut connection, &low_water);
    assert_eq!(claimed, Some(10));
    // Meanwhile others claim rows.
    let claim_floor = low_water.claim_floor();
    let except = [RowKey::new(first, first.to_string())];
    let scope = Scope { claim_floor: Some(&claim_floor), except: &except, ..Scope::ALL };
    let others = rolled_back(&mut connection, |connection| {
        queue_core::internals::claim_some(erased::<Payment>(), connection, true, 2, scope).unwrap()
    });
    assert_eq!(others.len(), 2);
    claim_floor.keep();
    drop(claim_floor);
    // All rows that are left seem to be above the mark.
    assert_eq!(claim(&mut connection, &low_water).0, if NAME == "sqlite" { Some(10) } else { Some(30) });
    drop(undone);
    assert_eq!(claim(&mut connection, &low_water).0, Some(10));
}

/// Handles a row by its amount, in any mode.
type Handle = Arc<dyn Fn(i64, &mut Message<'_, Conn>) -> HandlerResult + Send + Sync>;

/// A poller for payments in each of the three modes.
type InMode = fn(&Bank, Handle) -> Poller<Conn>;

const MODES: [InMode; 3] = [
    |bank, handle| {
        Payment::poller(bank.pool(1), move |row: &Payment, message: &mut Message<'_, Conn>| {
            handle(row.amount_cents, message)
        })
    },
    |bank, handle| {
        Grouped::poller(bank.pool(1), move |row: &Grouped, message: &mut Message<'_, Conn>| {
            handle(row.amount_cents, message)
        })
    },
    |bank, handle| {
        let call = |_: &Charge, _: &Lease| Ok(());
        let apply = move |row: &Charge, _: &(), message: &mut Message<'_, Conn>| handle(row.amount_cents, message);
        Charge::poller(bank.pool(2), (call, apply))
    },
];

/// Makes a database with rows that are due at minute 10 and 20, and a poller of a mode. The handler of the first row
/// inserts a row that is due earlier. The handler sends the amount of each row.
fn late_comer(in_mode: InMode) -> (Bank, Poller<Conn>, Receiver<i64>) {
    let bank = Bank::new();
    due_at(&bank, 10);
    due_at(&bank, 20);
    let (say, said) = mpsc::channel();
    let (say, comes) = (Mutex::new(say), AtomicBool::new(true));
    let handle = move |amount: i64, message: &mut Message<'_, Conn>| {
        if comes.swap(false, Ordering::SeqCst) {
            let early = (NewPayment { company_id: 1, amount_cents: 5 }, Payment::due_at(minute(5)));
            diesel::insert_into(payments::table).values(early).execute(message.connection())?;
        }
        // The receiver may be gone.
        let _ = say.lock().unwrap().send(amount);
        Ok(Outcome::Done)
    };
    let poller = in_mode(&bank, Arc::new(handle)).workers(1).low_water_at_once();
    (bank, poller, said)
}

#[test]
fn a_row_that_is_due_before_the_mark_is_worked_in_every_mode() {
    for in_mode in MODES {
        let (_bank, poller, said) = late_comer(in_mode);
        let handle = poller.start().unwrap();
        let mut amounts: Vec<_> = (0..3).map(|_| said.recv().unwrap()).collect();
        amounts.sort_unstable();
        assert_eq!(amounts, [5, 10, 20]);
        assert_eq!(handle.shutdown(Duration::from_secs(60)).tally.succeeded, 3);
    }
}

#[test]
fn a_poller_that_ends_when_idle_ends_after_a_full_probe() {
    for in_mode in MODES {
        let (_bank, poller, _) = late_comer(in_mode);
        assert_eq!(poller.run_until_idle().unwrap().succeeded, 3);
    }
}
