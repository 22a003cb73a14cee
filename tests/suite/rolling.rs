//! Old processes beside new ones: a poller that does not know a key of its queue does not start, and stands still if it runs.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::bounds::QueueOn;
use queueable::{Error, Event, Message, Migrations, Outcome, Poller, Queueable, Stage, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::events::await_event;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
enum Step {
    Charge,
    Thank,
}

/// Payments as the next version of the application sees them.
macro_rules! payments {
    ($($name:ident($($settings:tt)*);)*) => {$(
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        #[queue(timeout = "30s", $($settings)*)]
        #[expect(dead_code, reason = "no handler looks at a row")]
        struct $name {
            id: i64,
        }
    )*};
}

payments! {
    Staged(module = staged_queue, stage = Step);
    Alone(module = alone_queue, exclusive);
    AloneInSteps(module = alone_in_steps_queue, exclusive, stage = Step);
    Scheduled(module = scheduled_queue, periodic);
    Rerun(module = rerun_queue, rerun_on_change(amount_cents));
    Counted(module = counted_queue, occasion);
    First(module = first_queue, priority, timestamps);
    Mailed(module = mailed_queue, prefix = "mail_");
    MailedInSteps(module = mailed_in_steps_queue, prefix = "mail_", stage = Step);
}

fn migrate<Q: QueueOn<Conn> + Queueable + 'static>(bank: &Bank) {
    bank.connect().run_pending_migrations(Migrations::new().entity::<Q>()).unwrap();
}

/// Returns what is wrong and how to mend it, if that is one thing.
fn refusal(poller: Poller<Conn>) -> (String, String) {
    let findings = match poller.run_until_idle() {
        Err(Error::Unsafe(findings)) => findings,
        other => panic!("it starts: {other:?}"),
    };
    assert_eq!(findings.len(), 1, "{findings:?}");
    (findings[0].problem.clone(), findings[0].mend.clone())
}

/// Adds a key to the queue of payments, and returns how a process without it is refused. After the mend it starts.
fn is_refused<Q: QueueOn<Conn> + Queueable + 'static>(key: &str, columns: &[&str]) {
    let bank = Bank::new();
    migrate::<Q>(&bank);
    let id = bank.enqueue([1])[0];
    let (problem, mend) = refusal(bank.poller(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done)));
    for word in columns.iter().chain([&key]) {
        assert!(problem.contains(word), "{word}: {problem}");
    }
    assert_eq!(bank.state(id).status, Status::NotAttempted);
    let drops = mend.split_once("if no program has it any more: ").expect(&mend).1;
    bank.connect().batch_execute(drops).unwrap_or_else(|error| panic!("{drops}: {error}"));
    bank.run(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    assert_eq!(bank.state(id).status, Status::Success);
}

#[test]
fn a_poller_that_does_not_know_a_key_of_its_queue_does_not_start() {
    is_refused::<Staged>("`stage`", &["stage"]);
    is_refused::<Scheduled>("`periodic`", &["period", "cron", "time_zone", "scheduled_time"]);
    is_refused::<Rerun>("`rerun_on_change`", &["change_count"]);
    is_refused::<Counted>("`occasion`", &["occasion"]);
}

/// The index of its stages goes with the column, and that of its order stays.
#[test]
fn an_exclusive_queue_goes_on_without_its_stages() {
    let bank = Bank::before_the_queue();
    migrate::<AloneInSteps>(&bank);
    bank.enqueue([1]);
    let poller = || Alone::poller(bank.pool(2), |_: &Alone, _: &mut Message<'_, Conn>| Ok(Outcome::Done)).workers(1);
    let (problem, mend) = refusal(poller());
    assert!(problem.contains("`stage`"), "{problem}");
    let drops = mend.split_once("if no program has it any more: ").expect(&mend).1;
    bank.connect().batch_execute(drops).unwrap_or_else(|error| panic!("{drops}: {error}"));
    assert_eq!(poller().run_until_idle().unwrap().succeeded, 1);
}

#[test]
fn a_running_poller_that_does_not_know_a_key_stands_still_until_its_column_is_gone() {
    let bank = Bank::new();
    let (told, heard) = channel();
    let told = Mutex::new(told);
    let listen = move |event: &Event| {
        let _ = told.lock().unwrap().send(event.clone());
    };
    let poller = bank.poller(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done)).on_event(listen);
    let handle = poller.start().unwrap();
    let first = bank.enqueue([1])[0];
    await_event(&heard, |event| matches!(event, Event::Succeeded(_)));
    migrate::<Staged>(&bank);
    let stalled = await_event(&heard, |event| matches!(event, Event::QueueStalled { .. }));
    let Event::QueueStalled { error, .. } = stalled else { unreachable!("only this was awaited") };
    assert!(error.contains("`stage`"), "{error}");
    assert_eq!(handle.health().entities[0].stalled.as_ref(), Some(&error));
    let second = bank.enqueue([1])[0];
    handle.wake();
    let drops = error.split_once("if no program has it any more: ").expect(&error).1;
    bank.connect().batch_execute(drops).unwrap_or_else(|error| panic!("{drops}: {error}"));
    // The first thing that happens.
    await_event(&heard, |event| {
        assert!(!matches!(event, Event::Succeeded(_)), "{event:?}");
        matches!(event, Event::QueueResumed { .. })
    });
    assert_eq!(handle.health().entities[0].stalled, None);
    await_event(&heard, |event| matches!(event, Event::Succeeded(_)));
    assert_eq!([first, second].map(|id| bank.state(id).status), [Status::Success; 2]);
}

#[test]
fn columns_that_change_nothing_for_those_who_do_not_know_them_are_left_alone() {
    let bank = Bank::new();
    migrate::<First>(&bank);
    let id = bank.enqueue([1])[0];
    bank.run(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    assert_eq!(bank.state(id).status, Status::Success);
}

#[test]
fn the_keys_of_another_queue_on_the_table_are_its_own() {
    let bank = Bank::new();
    migrate::<MailedInSteps>(&bank);
    bank.enqueue([1]);
    bank.run(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    let (problem, _) =
        refusal(Mailed::poller(bank.pool(1), |_: &Mailed, _: &mut Message<'_, Conn>| Ok(Outcome::Done)).workers(1));
    assert!(problem.contains("mail_stage"), "{problem}");
}

#[test]
fn an_applications_own_column_of_such_a_name_is_none_of_the_queues() {
    let bank = Bank::new();
    bank.connect().batch_execute("ALTER TABLE payments ADD COLUMN stage VARCHAR(20)").unwrap();
    let id = bank.enqueue([1])[0];
    bank.run(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    assert_eq!(bank.state(id).status, Status::Success);
}
