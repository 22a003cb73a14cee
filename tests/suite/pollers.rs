//! Who serves the queues: pollers that register say what they are and do, and everybody can read it.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::report::{PollerProcess, PollerState};
use queueable::{Error, Explanation, HandlerResult, Message, Migrations, Outcome, Pause, Poller, Queueable};

use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, Payment, book, payments};
use crate::suite::lease::{Charge, apply};

/// Long enough for what takes five seconds on a machine that is busy with everything else.
const PATIENCE: Duration = Duration::from_secs(600);

diesel::table! {
    queueable_pollers (id) {
        id -> BigInt,
        host -> Text,
        application -> Text,
        state -> Text,
        queues -> Text,
    }
}

/// The payments as another build of the application has them.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = newer_queue, retry = fixed("5s"), max_tries = 7, timeout = "30s")]
struct Newer {
    id: i64,
}

fn bank() -> Bank {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().pollers().control()).unwrap();
    bank
}

fn pollers(bank: &Bank) -> Vec<PollerProcess> {
    queueable::pollers(&mut bank.connect()).unwrap()
}

/// Waits until the pollers are so.
fn await_pollers(bank: &Bank, are_they: impl Fn(&[PollerProcess]) -> bool) -> Vec<PollerProcess> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = pollers(bank);
        if are_they(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "it never came true: {found:#?}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Waits for a poller's last word, for which a shutdown waits no longer than five seconds.
fn await_stopped(bank: &Bank) {
    let deadline = Instant::now() + PATIENCE;
    let stopped = || queueable_pollers::table.filter(queueable_pollers::state.eq("stopped")).count();
    while stopped().get_result::<i64>(&mut bank.connect()).unwrap() == 0 {
        assert!(Instant::now() < deadline, "it does not say that it has stopped");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn execute(bank: &Bank, sql: &str) {
    bank.connect().batch_execute(sql).unwrap();
}

/// A poller whose calls tell that they have begun, and wait.
fn charging(bank: &Bank) -> (Poller<Conn>, Receiver<i64>, Sender<()>) {
    let ((begin, begun), (go_on, is_told)) = (mpsc::channel(), mpsc::channel());
    let is_told = Arc::new(Mutex::new(is_told));
    let call = move |charge: &Charge, _: &queueable::Lease| {
        begin.send(charge.id)?;
        is_told.lock().unwrap().recv_timeout(PATIENCE)?;
        Ok(charge.amount_cents)
    };
    (Charge::poller(bank.database.pool(5), (call, apply)).workers(1).register().application("shop 1.4.2"), begun, go_on)
}

#[test]
fn a_poller_says_what_it_is_and_what_runs_and_explain_names_it() {
    let bank = bank();
    let (poller, begun, go_on) = charging(&bank);
    let handle = poller.start().unwrap();
    let id = bank.enqueue([5])[0];
    begun.recv_timeout(PATIENCE).unwrap();
    let found = await_pollers(&bank, |found| found.iter().any(|poller| !poller.running.is_empty()));
    let [poller] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((poller.pid, poller.workers, poller.state), (i64::from(std::process::id()), 1, PollerState::Running));
    assert!(!poller.host.is_empty());
    assert_eq!(poller.application.as_deref(), Some("shop 1.4.2"));
    assert_eq!(poller.version, env!("CARGO_PKG_VERSION"));
    assert!((Utc::now() - poller.seen).abs() < TimeDelta::minutes(10) && poller.started <= poller.seen, "{poller:?}");
    let [queue] = poller.queues.as_slice() else { panic!("{poller:?}") };
    assert_eq!((&*queue.queue, &*queue.entity), ("payments.status", "Charge"));
    assert_eq!(queue.settings["mode"], "lease of 60s");
    assert_eq!((&*queue.settings["max_tries"], &*queue.settings["timeout"]), ("3", "60s"));
    assert!(queue.settings["retry"].starts_with("3600s, 3600s"), "{queue:?}");
    let [running] = poller.running.as_slice() else { panic!("{poller:?}") };
    assert_eq!((&*running.queue, &*running.key), ("payments.status", &*id.to_string()));
    assert!(running.since <= poller.seen && running.since >= poller.started, "{poller:?}");
    let process = format!("{} (pid {})", poller.host, poller.pid);
    let explained = Charge::explain(&mut bank.connect(), &id).unwrap();
    let Explanation::Held { since: Some(_), by: Some(by) } = &explained else { panic!("{explained:?}") };
    assert_eq!(*by, process);
    assert!(explained.to_string().ends_with(&format!("in {process}")), "{explained}");
    assert_eq!(Charge::queue().explain(&mut bank.connect()).unwrap().unserved, None);
    go_on.send(()).unwrap();
    await_pollers(&bank, |found| found.iter().all(|poller| poller.running.is_empty()));
    handle.shutdown(PATIENCE);
    await_stopped(&bank);
    assert_eq!(pollers(&bank), []);
}

#[test]
fn explain_names_the_process_that_holds_a_row_in_its_transaction() {
    // On SQLite, nobody writes beside a handler's transaction.
    if NAME == "sqlite" {
        return;
    }
    let bank = bank();
    let ((begin, begun), (go_on, is_told)) = (mpsc::channel(), mpsc::channel::<()>());
    let is_told = Mutex::new(is_told);
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| -> HandlerResult {
        begin.send(payment.id)?;
        is_told.lock().unwrap().recv_timeout(PATIENCE)?;
        book(payment, message)
    };
    let handle = Payment::poller(bank.database.pool(5), handler).workers(1).register().start().unwrap();
    let id = bank.enqueue([5])[0];
    begun.recv_timeout(PATIENCE).unwrap();
    await_pollers(&bank, |found| found.iter().any(|poller| !poller.running.is_empty()));
    let explained = Payment::explain(&mut bank.connect(), &id).unwrap();
    assert!(matches!(&explained, Explanation::Held { since: None, by: Some(_) }), "{explained:?}");
    assert!(explained.to_string().starts_with("held by a worker in "), "{explained}");
    go_on.send(()).unwrap();
    handle.shutdown(PATIENCE);
}

#[test]
fn a_poller_that_drains_or_is_paused_says_so() {
    let bank = bank();
    let (poller, begun, go_on) = charging(&bank);
    let handle = poller.control().start().unwrap();
    bank.enqueue([5]);
    begun.recv_timeout(PATIENCE).unwrap();
    Charge::pause(&mut bank.connect(), Pause::new("bank down", "ops@example.org")).unwrap();
    await_pollers(&bank, |found| found.iter().any(|poller| poller.state == PollerState::Paused));
    let stopped = std::thread::spawn(move || handle.shutdown(PATIENCE));
    let found = await_pollers(&bank, |found| found.iter().any(|poller| poller.state == PollerState::Draining));
    assert_eq!(found[0].running.len(), 1, "its handler still runs");
    go_on.send(()).unwrap();
    assert_eq!(stopped.join().unwrap().tally.succeeded, 1);
    await_stopped(&bank);
    assert_eq!(pollers(&bank), []);
}

#[test]
fn the_last_poller_of_a_queue_is_remembered_until_another_serves_it() {
    let bank = bank();
    bank.enqueue([1]);
    let explain = || Payment::queue().explain(&mut bank.connect()).unwrap();
    let never = explain();
    assert_eq!(never.unserved.as_ref().unwrap().last, None);
    assert!(never.to_string().starts_with("no registered poller serves payments.status\n"), "{never}");
    let register = || Payment::poller(bank.database.pool(4), book).workers(1).register();
    register().start().unwrap().shutdown(PATIENCE);
    await_stopped(&bank);
    bank.enqueue([1]);
    let stopped = explain();
    let (host, ago) = stopped.unserved.clone().unwrap().last.unwrap();
    assert!(!host.is_empty() && ago < PATIENCE, "{stopped:?}");
    assert!(stopped.to_string().contains("; the last one was seen "), "{stopped}");
    let rows = || queueable_pollers::table.count().get_result::<i64>(&mut bank.connect()).unwrap();
    assert_eq!(rows(), 1);
    let handle = register().start().unwrap();
    await_pollers(&bank, |found| found.len() == 1);
    assert_eq!(explain().unserved, None);
    let deadline = Instant::now() + PATIENCE;
    while rows() > 1 {
        assert!(Instant::now() < deadline, "the former one is not removed");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    handle.shutdown(PATIENCE);
}

/// Sets when all pollers were seen last.
fn age(bank: &Bank, minutes: i64) {
    execute(
        bank,
        &match NAME {
            "mysql" => format!("UPDATE queueable_pollers SET seen_at = UTC_TIMESTAMP(6) - INTERVAL {minutes} MINUTE"),
            "sqlite" => format!(
                "UPDATE queueable_pollers SET seen_at = strftime('%Y-%m-%d %H:%M:%f', 'now', '{:+} minutes')",
                -minutes
            ),
            _ => format!("UPDATE queueable_pollers SET seen_at = now() - INTERVAL '{minutes} minutes'"),
        },
    );
}

#[test]
fn a_poller_that_says_nothing_is_gone_after_a_minute_and_back_when_it_speaks_again() {
    let bank = bank();
    bank.enqueue([1]);
    let insert = "INSERT INTO queueable_pollers (id, host, pid, version, application, state, workers, queues, running, started_at, \
                  seen_at) VALUES (7, 'web-2', 4711, '0.1.0', '', 'running', 4, '[{\"queue\": \"payments.status\", \"entity\": \"Payment\", \
                  \"settings\": {}}]', '[]', '2026-01-01 00:00:00', '2026-01-01 00:00:00')";
    execute(&bank, insert);
    age(&bank, 2);
    assert_eq!(pollers(&bank), []);
    let explained = Payment::queue().explain(&mut bank.connect()).unwrap();
    let (host, ago) = explained.unserved.unwrap().last.unwrap();
    assert_eq!(host, "web-2");
    assert!(ago >= Duration::from_secs(120), "{ago:?}");
    age(&bank, 0);
    assert_eq!(pollers(&bank).len(), 1);
    // A process that was frozen: others have removed its row meanwhile.
    let handle = Payment::poller(bank.database.pool(4), book).workers(1).register().start().unwrap();
    await_pollers(&bank, |found| found.len() == 2);
    execute(&bank, "DELETE FROM queueable_pollers WHERE id <> 7");
    let found = await_pollers(&bank, |found| found.len() == 2);
    assert!(found.iter().any(|poller| poller.host == "web-2"));
    // The clock jumps: it passes for dead, until it speaks again.
    age(&bank, 24 * 60);
    let found = await_pollers(&bank, |found| !found.is_empty());
    assert_ne!(found[0].host, "web-2");
    age(&bank, -24 * 60);
    await_pollers(&bank, |found| found.iter().any(|poller| poller.seen < Utc::now() + TimeDelta::hours(1)));
    handle.shutdown(PATIENCE);
}

#[test]
fn rows_that_mean_nothing_are_left_out_and_removed() {
    let bank = bank();
    let insert = |id: u32, state: &str, queues: &str, running: &str| {
        execute(
            &bank,
            &format!(
                "INSERT INTO queueable_pollers (id, host, pid, version, application, state, workers, queues, running, started_at, \
                 seen_at) VALUES ({id}, 'by hand', 1, '', '', '{state}', 4, '{queues}', '{running}', '2026-01-01 00:00:00', \
                 '2026-01-01 00:00:00')"
            ),
        );
    };
    // A later release may have more words.
    insert(1, "asleep", "[]", "[]");
    insert(2, "running", "not json", "[]");
    insert(3, "running", "[]", "{\"queue\": 7}");
    insert(
        4,
        "running",
        "[]",
        "[{\"queue\": \"q\", \"key\": \"1\", \"stage\": null, \"for_ms\": 9223372036854775807}]",
    );
    age(&bank, 0);
    if NAME == "sqlite" {
        insert(5, "running", "[]", "[]");
    }
    // A time by hand that is none: each change of all times takes it away.
    let odd = || {
        if NAME == "sqlite" {
            execute(&bank, "UPDATE queueable_pollers SET seen_at = 'soon' WHERE id = 5");
        }
    };
    odd();
    let found = pollers(&bank);
    assert_eq!(found.iter().map(|poller| poller.state).collect::<Vec<_>>(), [PollerState::Running]);
    age(&bank, 2);
    odd();
    let handle = Payment::poller(bank.database.pool(4), book).workers(1).register().start().unwrap();
    await_pollers(&bank, |found| found.len() == 1 && found[0].host != "by hand");
    let deadline = Instant::now() + PATIENCE;
    let by_hand = || queueable_pollers::table.filter(queueable_pollers::host.eq("by hand")).count();
    while by_hand().get_result::<i64>(&mut bank.connect()).unwrap() > 0 {
        assert!(Instant::now() < deadline, "they are not removed");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    handle.shutdown(PATIENCE);
}

#[test]
fn a_process_whose_settings_differ_from_the_others_is_named() {
    let bank = bank();
    let start = || Payment::poller(bank.database.pool(4), book).workers(1).register().start().unwrap();
    let handler = |newer: &Newer, _: &mut Message<'_, Conn>| -> HandlerResult {
        assert!(newer.id > 0);
        Ok(Outcome::Done)
    };
    let alike = [start(), start()];
    let other = Newer::poller(bank.database.pool(4), handler).workers(1).register().start().unwrap();
    let found = await_pollers(&bank, |found| found.len() == 3);
    let differing: Vec<_> = found.iter().filter(|poller| !poller.queues[0].differs.is_empty()).collect();
    let [named] = differing.as_slice() else { panic!("{found:#?}") };
    assert_eq!(named.queues[0].entity, "Newer");
    assert_eq!(named.queues[0].differs, ["max_tries", "retry"]);
    assert!(named.to_string().contains("payments.status: its max_tries differs: 7"), "{named}");
    drop(alike);
    other.shutdown(PATIENCE);
}

#[test]
fn hostile_texts_stay_texts() {
    let bank = bank();
    let hostile = "<script>alert(1)</script> \u{202e}'; DROP TABLE payments; -- \u{1f980}";
    let register = || Payment::poller(bank.database.pool(4), book).workers(1).register();
    let handle = register().application(hostile).start().unwrap();
    let found = await_pollers(&bank, |found| found.len() == 1);
    assert_eq!(found[0].application.as_deref(), Some(hostile));
    assert!(!found[0].to_string().contains('\u{202e}'), "{}", found[0]);
    handle.shutdown(PATIENCE);
    for refused in ["", "two\nlines", &"x".repeat(256)] {
        let started = register().application(refused).start();
        assert!(matches!(started, Err(Error::Setting { setting: "application", .. })), "{started:?}");
    }
}

#[test]
fn without_the_table_a_poller_that_registers_is_refused() {
    let bank = Bank::new();
    let register = || Payment::poller(bank.database.pool(4), book).workers(1).register();
    let refused = |started: Result<_, Error>| match started {
        Err(Error::Unsafe(findings)) => findings.iter().map(ToString::to_string).collect::<String>(),
        Err(other) => panic!("{other:?}"),
        Ok(()) => panic!("it starts"),
    };
    let found = refused(register().start().map(drop));
    assert!(found.contains("no table queueable_pollers") && found.contains("`register` needs it"), "{found}");
    assert!(found.contains("`Migrations::new().pollers()`"), "{found}");
    let listed = queueable::pollers(&mut bank.connect());
    assert!(matches!(&listed, Err(Error::Control(text)) if text.contains("Migrations::new().pollers()")), "{listed:?}");
    assert_eq!(Payment::queue().explain(&mut bank.connect()).unwrap().unserved, None, "nobody knows");
    execute(&bank, "CREATE TABLE queueable_pollers (id BIGINT PRIMARY KEY NOT NULL, host VARCHAR(100))");
    let found = refused(register().start().map(drop));
    assert!(found.contains("lacks the columns pid, version"), "{found}");
}

#[test]
fn a_poller_works_on_while_its_row_cannot_be_written() {
    use crate::suite::warnings::{await_warning, keep_warnings};

    keep_warnings();
    let bank = bank();
    let handle = Payment::poller(bank.database.pool(4), book).workers(1).register().start().unwrap();
    await_pollers(&bank, |found| found.len() == 1);
    execute(&bank, "DROP TABLE queueable_pollers");
    await_warning(&["WARN", "the poller cannot be registered"]);
    let ids = bank.enqueue([1]);
    let deadline = Instant::now() + PATIENCE;
    while bank.booked() != ids {
        assert!(Instant::now() < deadline, "it does not work on");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    bank.connect().run_pending_migrations(Migrations::new().pollers()).unwrap_or_default();
    handle.shutdown(PATIENCE);
}
