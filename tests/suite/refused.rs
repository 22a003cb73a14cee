//! Rows on which the database refuses to write: they do not affect other rows, however many they are.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::result::DatabaseErrorKind;
use diesel::result::Error::DatabaseError;
use diesel::sql_types::BigInt;
use diesel_migrations::MigrationHarness;
use queueable::{
    ClaimStyle, Explanation, HandlerResult, Lease, Message, Migrations, Outcome, Poller, PollerHandle, Queueable,
    Status, Tally,
};

use crate::db::{Conn, DISK_IS_FULL, KEEP_SEVEN, NAME, PUT_SEVEN_BACK, REFUSE_SEVEN, REFUSE_STATE_OF_SEVEN};
use crate::suite::bank::{Bank, Payment, ledger, payment_queue, payments};
use crate::suite::group::{Grouped, Optimistic};
use crate::suite::lease::Charge;
use crate::suite::thorough::times;
use crate::suite::warnings::{await_warning, keep_warnings};

/// Payments in the order of their amounts.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = ordered_queue, order_by = amount_cents, retry = fixed("1h"), max_tries = 3, timeout = "30s")]
struct Ordered {
    id: i64,
    #[allow(dead_code, reason = "the order is the database's")]
    amount_cents: i64,
}

fn ordered_bank() -> Bank {
    let bank = Bank::before_the_queue();
    bank.connect().run_pending_migrations(Migrations::new().entity::<Ordered>()).unwrap();
    bank
}

/// How often the handler of each payment has run.
type Runs = Arc<Mutex<HashMap<i64, u32>>>;

/// When a row is due.
type Due = Option<chrono::DateTime<chrono::Utc>>;

/// A mode, its database, and the function that makes its poller.
type Mode = (&'static str, fn() -> Bank, fn(&Bank, u32, Runs) -> Poller<Conn>);

macro_rules! in_transactions {
    ($entity:ident, $id:expr) => {
        |bank, workers, runs: Runs| {
            let handler = move |payment: &$entity, _: &mut Message<'_, Conn>| -> HandlerResult {
                *runs.lock().unwrap().entry($id(payment)).or_default() += 1;
                Ok(Outcome::Done)
            };
            $entity::poller(bank.pool(workers), handler).workers(workers as usize)
        }
    };
}

const LEASED: Mode = ("lease", Bank::new, |bank, workers, runs| {
    let call = move |charge: &Charge, _: &Lease| {
        *runs.lock().unwrap().entry(charge.id).or_default() += 1;
        Ok(())
    };
    let apply = |_: &Charge, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    Charge::poller(bank.pool(workers), (call, apply)).workers(workers as usize)
});

const MODES: [Mode; 5] = [
    ("transaction", Bank::new, in_transactions!(Payment, |payment: &Payment| payment.id)),
    ("group", Bank::new, in_transactions!(Grouped, |grouped: &Grouped| grouped.payment().id)),
    ("optimistic group", Bank::new, in_transactions!(Optimistic, |grouped: &Optimistic| grouped.payment().id)),
    ("in order", ordered_bank, in_transactions!(Ordered, |ordered: &Ordered| ordered.id)),
    LEASED,
];

/// The bad rows are first in line: some have the same due time, as after a migration, and some have different ones.
fn enqueue_bad_and_sound(bank: &Bank, bad: usize, sound: usize) -> (Vec<i64>, Vec<i64>) {
    let of_one_time = bank.enqueue(vec![7; bad / 2]);
    let mut of_many = Vec::new();
    for _ in 0..bad.div_ceil(2).min(20) {
        of_many.extend(bank.enqueue([7]));
    }
    of_many.extend(bank.enqueue(vec![7; bad - of_one_time.len() - of_many.len()]));
    (of_one_time.into_iter().chain(of_many).collect(), bank.enqueue(vec![8; sound]))
}

fn statuses(bank: &Bank, ids: &[i64]) -> HashMap<Status, usize> {
    let mut counts = HashMap::new();
    let found: Vec<Status> = payments::table
        .filter(payments::id.eq_any(ids))
        .select(payment_queue::status)
        .load(&mut bank.connect())
        .unwrap();
    found.into_iter().for_each(|status| *counts.entry(status).or_default() += 1);
    counts
}

/// Processes bad rows, and sound ones behind them, in each mode. Shows that the sound rows succeed, and that the
/// handlers of the bad ones do not run again and again. `check` also gets the due time
/// of a sound one, which is later than theirs.
fn work_past(trigger: &str, check: fn(&str, &Bank, &[i64], Tally, Due)) {
    for (mode, new_bank, poller) in MODES {
        let bank = new_bank();
        // More rows than a claim passes over by their keys: 50.
        let (bad, sound) = enqueue_bad_and_sound(&bank, 60, 30);
        let due = bank.state(sound[0]).next_attempt_time;
        bank.connect().batch_execute(trigger).unwrap();
        let runs = Runs::default();
        let tally = poller(&bank, 3, runs.clone()).run_until_idle().unwrap();
        let context = format!("{mode}: {tally:?}");
        assert_eq!(statuses(&bank, &sound), HashMap::from([(Status::Success, 30)]), "{context}");
        let runs = runs.lock().unwrap();
        // A group that meets another one runs again, and if a machine stands still for longer than the first pause, a
        // row is tried again.
        let often: Vec<_> = bad.iter().filter(|id| runs.get(id).is_some_and(|runs| *runs > 12)).collect();
        assert!(often.is_empty(), "{context}: {} rows were handled again and again", often.len());
        check(&context, &bank, &bad, tally, due);
    }
}

#[test]
fn rows_that_a_trigger_refuses_to_change_leave_the_others_their_turn_and_an_end_to_the_run() {
    work_past(REFUSE_SEVEN, |context, bank, bad, tally, _| {
        assert_eq!(statuses(bank, bad), HashMap::from([(Status::NotAttempted, 60)]), "{context}");
        assert!(tally.refused >= 60, "{context}");
        assert_eq!((tally.succeeded, tally.failed), (30, 0), "{context}");
    });
}

#[test]
fn rows_that_a_trigger_keeps_without_a_word_leave_the_others_their_turn_and_an_end_to_the_run() {
    work_past(KEEP_SEVEN, |context, bank, bad, tally, _| {
        assert_eq!(statuses(bank, bad), HashMap::from([(Status::NotAttempted, 60)]), "{context}");
        assert!(tally.refused >= 60, "{context}");
    });
}

#[test]
fn rows_of_which_a_trigger_puts_the_old_values_back_leave_the_others_their_turn_and_an_end_to_the_run() {
    keep_warnings();
    work_past(PUT_SEVEN_BACK, |context, bank, bad, tally, _| {
        assert_eq!(statuses(bank, bad), HashMap::from([(Status::NotAttempted, 60)]), "{context}");
        assert!(tally.refused >= 60, "{context}");
    });
    await_warning(&["rows have come back as they were", "a trigger puts the old values back"]);
}

#[test]
fn a_trigger_that_puts_back_what_was_recorded_in_another_transaction_is_found_too() {
    let bank = Bank::new();
    let (bad, sound) = enqueue_bad_and_sound(&bank, 3, 30);
    bank.connect().batch_execute(PUT_SEVEN_BACK).unwrap();
    let runs = Runs::default();
    let seen = runs.clone();
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        *seen.lock().unwrap().entry(payment.id).or_default() += 1;
        if payment.amount_cents == 7 {
            // The failure is recorded in a transaction of its own.
            message.connection().batch_execute("COMMIT")?;
        }
        Ok(Outcome::Done)
    };
    let tally = Payment::poller(bank.pool(2), handler).workers(2).run_until_idle().unwrap();
    assert_eq!(statuses(&bank, &sound), HashMap::from([(Status::Success, 30)]), "{tally:?}");
    assert_eq!(statuses(&bank, &bad), HashMap::from([(Status::NotAttempted, 3)]), "{tally:?}");
    let runs = runs.lock().unwrap();
    assert!(bad.iter().all(|id| runs[id] <= 12), "{tally:?}: {runs:?}");
}

#[test]
fn a_row_that_own_sql_enqueues_anew_in_the_same_state_is_not_taken_for_a_kept_one() {
    for (mode, new_bank, poller) in MODES {
        let bank = new_bank();
        let (ids, runs) = (bank.enqueue([8]), Runs::default());
        let handle = poller(&bank, 1, runs.clone()).start().unwrap();
        for run in 1..=3 {
            while statuses(&bank, &ids) != HashMap::from([(Status::Success, 1)]) {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            assert_eq!(runs.lock().unwrap().get(&ids[0]), Some(&run), "{mode}");
            let anew = "UPDATE payments SET status = 'NOT_ATTEMPTED', next_attempt_time = '2026-01-01 00:00:00.000', \
                try_count = 0, last_attempt_time = NULL, last_attempt_error_message = NULL";
            if run < 3 {
                bank.connect().batch_execute(anew).unwrap();
                handle.wake();
            }
        }
        assert_eq!(handle.shutdown(Duration::from_secs(60)).tally.refused, 0, "{mode}");
    }
}

#[test]
fn a_row_of_which_only_the_time_and_the_text_can_be_written_waits_and_says_why() {
    work_past(REFUSE_STATE_OF_SEVEN, |context, bank, bad, tally, due| {
        assert!(tally.refused >= 60, "{context}");
        for id in [bad[0], bad[59]] {
            let state = bank.state(id);
            let text = state.last_attempt_error_message.unwrap_or_default();
            assert!(text.contains("no other state of sevens"), "{context}: {text:?}");
            // On a slow machine this time may be over.
            assert!(state.next_attempt_time > due, "{context}");
            assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0), "{context}");
        }
    });
}

#[test]
fn a_refused_row_is_worked_when_the_database_lets_it() {
    for (mode, new_bank, poller) in MODES {
        let bank = new_bank();
        let (bad, _) = enqueue_bad_and_sound(&bank, 3, 1);
        bank.connect().batch_execute(REFUSE_SEVEN).unwrap();
        let tally = poller(&bank, 1, Runs::default()).run_until_idle().unwrap();
        assert_eq!((tally.succeeded, statuses(&bank, &bad)), (1, HashMap::from([(Status::NotAttempted, 3)])), "{mode}");
        let drop_trigger = match crate::db::NAME {
            "postgres" => "DROP TRIGGER refuse_seven ON payments",
            "mysql" => "DROP TRIGGER keep",
            _ => "DROP TRIGGER refuse_seven",
        };
        bank.connect().batch_execute(drop_trigger).unwrap();
        let tally = poller(&bank, 1, Runs::default()).run_until_idle().unwrap();
        assert_eq!((tally.succeeded, tally.refused), (3, 0), "{mode}");
    }
}

/// A new session costs more than all statements of an attempt.
#[test]
fn the_session_of_a_refused_row_stays() {
    let (mark, is_one_session): (_, fn(&[i64]) -> bool) = match NAME {
        "postgres" => ("CAST(pg_backend_pid() AS bigint)", |marks| marks.iter().all(|mark| *mark == marks[0])),
        "mysql" => ("CAST(CONNECTION_ID() AS SIGNED)", |marks| marks.iter().all(|mark| *mark == marks[0])),
        // How many rows the session has changed since it began, also those whose change was undone.
        _ => ("total_changes()", |marks| marks.is_sorted_by(|before, after| before < after)),
    };
    for trigger in HashSet::from([REFUSE_SEVEN, KEEP_SEVEN]) {
        let bank = Bank::new();
        bank.enqueue([7; 3]);
        bank.connect().batch_execute(trigger).unwrap();
        let marks = Arc::new(Mutex::new(Vec::new()));
        let noted = marks.clone();
        let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
            let booked = (ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(7));
            diesel::insert_into(ledger::table).values(booked).execute(message.connection())?;
            noted.lock().unwrap().push(diesel::select(sql::<BigInt>(mark)).get_result(message.connection())?);
            Ok(Outcome::Done)
        };
        let tally = Payment::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
        let marks = marks.lock().unwrap();
        // After a pause of the machine a row may be tried again.
        assert!(marks.len() >= 3 && tally.refused == marks.len() as u64, "{tally:?}: {marks:?}");
        assert!(is_one_session(&marks), "{marks:?}");
    }
}

#[test]
fn what_the_database_refuses_is_explained() {
    for (trigger, expected) in [(REFUSE_SEVEN, "no change of sevens"), (KEEP_SEVEN, "a trigger keeps it from changing")]
    {
        let bank = Bank::new();
        let ids = bank.enqueue([7, 8]);
        bank.connect().batch_execute(trigger).unwrap();
        let mut connection = bank.connect();
        let explanation = Payment::explain(&mut connection, &ids[0]).unwrap();
        // On MySQL a trigger cannot keep a row without an error.
        let expected = if crate::db::NAME == "mysql" { "kept" } else { expected };
        assert!(matches!(explanation, Explanation::Refused { .. }), "{explanation:?}");
        assert!(explanation.to_string().contains(expected), "{explanation}");
        assert_eq!(Payment::explain(&mut connection, &ids[1]).unwrap(), Explanation::Due);
        // The same in a transaction of the caller's, which goes on. On MySQL and SQLite it would keep the row's lock.
        let inside = connection.transaction(|connection| {
            let explanation = Payment::explain(connection, &ids[0]).unwrap();
            payments::table.count().get_result::<i64>(connection).map(|count| (explanation, count))
        });
        let known = if crate::db::NAME == "postgres" { explanation } else { Explanation::Due };
        assert_eq!(inside, Ok((known, 2)));
    }
}

/// Makes an interrupted row due again until its handler has run this often. The pauses grow, and the test cannot wait
/// for them.
fn await_runs(bank: &Bank, id: i64, handle: &PollerHandle, runs: &mpsc::Receiver<()>, times: usize) {
    for _ in 1..=times {
        let waits = payments::table.find(id).filter(payment_queue::next_attempt_time.gt(queueable::columns::Now));
        while runs.recv_timeout(Duration::from_millis(5)).is_err() {
            let due = payment_queue::next_attempt_time.eq(queueable::columns::Now);
            diesel::update(waits).set(due).execute(&mut bank.connect()).unwrap();
            handle.wake();
        }
    }
}

#[test]
fn what_interrupts_one_row_for_ever_counts_as_a_failure_at_last() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    let (ran, runs) = mpsc::channel();
    let handler = move |payment: &Payment, _: &mut Message<'_, Conn>| -> HandlerResult {
        if payment.amount_cents == 2 {
            return Ok(Outcome::Done);
        }
        ran.send(()).unwrap();
        Err(diesel::result::Error::BrokenTransactionManager.into())
    };
    let handle = bank.poller(handler).start().unwrap();
    await_runs(&bank, ids[0], &handle, &runs, 20);
    let tally = handle.shutdown(Duration::from_secs(60)).tally;
    let state = bank.state(ids[0]);
    assert_eq!((state.status, state.try_count), (Status::Error, 1), "{state:?}");
    let text = state.last_attempt_error_message.unwrap();
    assert!(text.starts_with("interrupted 2"), "{text}");
    assert!(text.contains(" times in a row; the last cause: "), "{text}");
    // The time that is set here may look like another session's change.
    assert_eq!((tally.succeeded, tally.retried), (1, 1));
}

#[test]
fn a_full_disk_uses_no_try_and_no_interruption_of_another_kind() {
    let bank = Bank::new();
    let ids = bank.enqueue([1]);
    let (ran, runs) = mpsc::channel();
    let times = Mutex::new(0);
    let handler = move |_: &Payment, _: &mut Message<'_, Conn>| -> HandlerResult {
        ran.send(()).unwrap();
        let mut times = times.lock().unwrap();
        *times += 1;
        match *times {
            ..=25 => Err(DatabaseError(DatabaseErrorKind::Unknown, Box::new(DISK_IS_FULL.to_owned())).into()),
            26 => Err(diesel::result::Error::BrokenTransactionManager.into()),
            _ => Ok(Outcome::Done),
        }
    };
    let handle = bank.poller(handler).start().unwrap();
    await_runs(&bank, ids[0], &handle, &runs, 27);
    let tally = handle.shutdown(Duration::from_secs(60)).tally;
    let state = bank.state(ids[0]);
    assert_eq!((state.status, state.try_count), (Status::Success, 1), "{state:?}");
    assert_eq!((tally.succeeded, tally.retried, tally.failed), (1, 0, 0));
}

/// The bad rows are more than a survey reads. The first one reads 1024 keys, all of one due time here, and the next ones
/// read 2048. Every night there are more than that, too: only when a thousand rows are known to be refused does a survey
/// read the last ones.
#[test]
fn more_refused_rows_than_a_survey_reads_leave_the_others_their_turn() {
    let bank = Bank::new();
    let mut bad = bank.enqueue(vec![7; 1_100]);
    let (others, sound) = enqueue_bad_and_sound(&bank, times(20, 1_100), 500);
    bad.extend(others);
    bank.connect().batch_execute(REFUSE_SEVEN).unwrap();
    let runs = Runs::default();
    let tally = MODES[0].2(&bank, 4, runs.clone()).run_until_idle().unwrap();
    assert_eq!(statuses(&bank, &sound), HashMap::from([(Status::Success, 500)]), "{tally:?}");
    let most = runs.lock().unwrap().values().copied().max();
    // The pauses grow, so that no row is tried more often even in ten minutes.
    assert!(most <= Some(5), "{most:?}");
    assert_eq!(statuses(&bank, &bad[..50]), HashMap::from([(Status::NotAttempted, 50)]));
}

/// Claims up to 40 rows at a time until none is due, and shows that it took at most so many claims for these 200: the leases of one
/// claim end at one time, or within a millisecond.
fn claim_many(bank: &Bank, style: ClaimStyle, low_water: bool, trigger: &str, sound: &[i64], most: usize) {
    let (ends, reader) = (Arc::new(Mutex::new(HashSet::new())), Mutex::new(bank.connect()));
    let noted = ends.clone();
    let call = move |charge: &Charge, _: &Lease| {
        let end = payments::table.find(charge.id).select(payment_queue::next_attempt_time);
        let end: Due = end.get_result(&mut *reader.lock().unwrap()).unwrap();
        noted.lock().unwrap().insert(end.unwrap().timestamp_millis());
        Ok(())
    };
    let apply = |_: &Charge, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let mut poller = Charge::poller(bank.pool(1), (call, apply)).workers(1).claim_style(style).claim_batch(40);
    if low_water {
        poller = poller.low_water_at_once();
    }
    let tally = poller.run_until_idle().unwrap();
    assert_eq!(statuses(bank, sound), HashMap::from([(Status::Success, 200)]), "{style:?}, {trigger}: {tally:?}");
    let ends = ends.lock().unwrap().len();
    assert!(ends <= most, "{style:?}, {trigger}: at least {ends} claims of up to 40 rows for 200 rows");
}

#[test]
fn claims_behind_refused_rows_take_as_many_rows_as_they_may() {
    // On MySQL both triggers are one.
    for trigger in HashSet::from([REFUSE_SEVEN, KEEP_SEVEN]) {
        for (style, low_water) in
            [(ClaimStyle::Auto, false), (ClaimStyle::UpdateThenSelect, false), (ClaimStyle::UpdateThenSelect, true)]
        {
            let bank = Bank::new();
            let (_, sound) = enqueue_bad_and_sound(&bank, 60, 200);
            bank.connect().batch_execute(trigger).unwrap();
            claim_many(&bank, style, low_water, trigger, &sound, 50);
        }
    }
}

/// The update that takes rows first writes a text too, and passes over the bad row; a claim in steps meets an error.
#[test]
fn a_row_that_one_statement_passes_over_and_another_fails_on_costs_one_claim() {
    let trigger = match NAME {
        "sqlite" => {
            "CREATE TRIGGER b_refuse BEFORE UPDATE OF status ON payments WHEN OLD.amount_cents = 7 \
             BEGIN SELECT RAISE(ABORT, 'no state of sevens'); END;
             CREATE TRIGGER a_keep BEFORE UPDATE OF last_attempt_error_message ON payments WHEN OLD.amount_cents = 7 \
             BEGIN SELECT RAISE(IGNORE); END"
        }
        "postgres" => {
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
             CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'no state of sevens'; END $$;
             CREATE TRIGGER a_keep BEFORE UPDATE OF last_attempt_error_message ON payments FOR EACH ROW \
             WHEN (OLD.amount_cents = 7) EXECUTE FUNCTION keep();
             CREATE TRIGGER b_refuse BEFORE UPDATE OF status ON payments FOR EACH ROW \
             WHEN (OLD.amount_cents = 7) EXECUTE FUNCTION refuse()"
        }
        // There no trigger leaves a row out.
        _ => return,
    };
    let bank = Bank::new();
    let mut sound = bank.enqueue(vec![8; 119]);
    bank.enqueue([7]);
    sound.extend(bank.enqueue(vec![8; 81]));
    bank.connect().batch_execute(trigger).unwrap();
    claim_many(&bank, ClaimStyle::UpdateThenSelect, false, trigger, &sound, 15);
}
