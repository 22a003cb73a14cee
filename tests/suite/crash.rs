//! Rows that end the process that handles them, and their neighbours.
//!
//! The process that ends is this program itself, started again with a single test. The environment holds its orders.

mod scene;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use queueable::report::IllKind;
use queueable::{CrashAccounting, Error, Message, Outcome, Queueable, Status};

use self::scene::{DEADLY, Orders, Scene, at_once, is_over};
use crate::db::{self, Conn};
use crate::suite::bank::{Bank, Payment, book};
use crate::suite::doctor::found;
use crate::suite::main_job::program::Program;

#[test]
fn a_process_of_its_own() {
    scene::work_as_ordered();
}

#[test]
fn a_row_that_aborts_one_worker_is_set_aside_after_three_crashes_and_999_succeed() {
    let scene = Scene::new(CrashAccounting::On, 1);
    let (deadly, others) = scene.enqueue(999);
    assert_eq!(scene.run_until_over(), 3);
    scene.assert_set_aside(deadly);
    scene.assert_cleared(&others);
    assert_eq!(scene.noted("ends the process"), [deadly; 3]);
    let ill = found(&scene.bank, IllKind::PoisonRow);
    assert!(ill.problem.starts_with("1 of the "), "{ill}");
}

#[test]
fn a_row_that_aborts_four_workers_is_set_aside_after_three_crashes_and_its_neighbours_are_cleared() {
    let scene = Scene::new(CrashAccounting::On, 4);
    let (deadly, others) = scene.enqueue(999);
    // What is due only as long as the process takes to start may not be marked.
    scene.make_due_since(1, &others);
    scene.make_due_since(2, &[deadly]);
    let company = at_once(4);
    assert!(!scene.run(company));
    assert_eq!(scene.run_until_over(), 2);
    scene.assert_set_aside(deadly);
    scene.assert_cleared(&others);
    let neighbours = scene.noted("suspect").into_iter().filter(|id| *id != deadly).count();
    assert_eq!(neighbours, company - 1, "each ran once more, alone");
}

#[test]
fn a_young_process_runs_the_messages_of_a_group_one_by_one() {
    for workers in [1, 4] {
        let mut scene = Scene::new(CrashAccounting::On, workers);
        scene.orders.grouped = true;
        let (deadly, others) = scene.enqueue(40);
        // The deadly payment comes in the middle of the queue, where groups would have grown.
        scene.make_due_since(2, &others[..20]);
        scene.make_due_since(1, &others[20..]);
        assert_eq!(scene.run_until_over(), 3, "{workers} workers");
        scene.assert_set_aside(deadly);
        scene.assert_cleared(&others);
    }
}

#[test]
fn a_crash_of_a_process_that_has_run_for_a_while_is_not_counted_and_three_more_are() {
    for (workers, grouped) in [(1, false), (4, false), (1, true), (4, true)] {
        let mut scene = Scene::new(CrashAccounting::On, workers);
        scene.orders.grouped = grouped;
        let mut others = scene.bank.enqueue((1..=150).chain([DEADLY]).chain(151..=300));
        // The groups have their full size after 31 messages.
        let deadly = others.remove(150);
        scene.orders.old = true;
        assert!(!scene.run(1));
        let state = scene.bank.state(deadly);
        assert_eq!((state.status, state.last_attempt_error_message), (Status::NotAttempted, None));
        scene.orders.old = false;
        assert_eq!(scene.run_until_over(), 3, "{workers} workers, grouped: {grouped}");
        scene.assert_set_aside(deadly);
        scene.assert_cleared(&others);
    }
}

#[test]
fn a_row_that_was_set_aside_and_is_sent_again_is_not_set_aside_at_once() {
    let scene = Scene::new(CrashAccounting::On, 1);
    let (deadly, _) = scene.enqueue(0);
    scene.run_until_over();
    scene.assert_set_aside(deadly);
    let session = &mut scene.bank.connect();
    for send in
        [(|session| Payment::queue().all_rows().rerun(session)) as fn(&mut Conn) -> Result<usize, Error>, |session| {
            Payment::queue().all_rows().retry_now(session)
        }]
    {
        assert_eq!(send(session).unwrap(), 1);
        assert_eq!(scene.run_until_over(), 3);
        scene.assert_set_aside(deadly);
    }
    Payment::queue().all_rows().rerun(session).unwrap();
    scene.bank.run(book);
    let state = scene.bank.state(deadly);
    assert_eq!((state.status, state.last_attempt_error_message), (Status::Success, None));
}

#[test]
fn strict_accounts_count_every_crash() {
    for (workers, grouped, old) in [(1, false, true), (4, false, false), (4, false, true), (1, true, true)] {
        let mut scene = Scene::new(CrashAccounting::Strict, workers);
        (scene.orders.grouped, scene.orders.old) = (grouped, old);
        let (deadly, others) = scene.enqueue(40);
        // The rows of an old process become due at the same time, so the deadly one may not be among the first.
        assert!(!scene.run(if old { 1 } else { at_once(workers) }));
        assert_eq!(scene.run_until_over(), 2);
        scene.assert_set_aside(deadly);
        scene.assert_cleared(&others);
    }
}

#[test]
fn strict_accounts_leave_no_mark_on_a_row_whose_attempt_ended() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3, 4]);
    let first = AtomicBool::new(true);
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        assert_eq!(message.queue_state().last_attempt_error_message, None, "the handler sees what was there before");
        match payment.amount_cents {
            1 => Err(queueable::Failure::retry("no route")),
            2 => Ok(Outcome::again_in(Duration::from_secs(3600))),
            3 if first.swap(false, Ordering::Relaxed) => Err(diesel::result::Error::BrokenTransactionManager.into()),
            _ => book(payment, message),
        }
    };
    let tally = bank.poller(handler).crash_accounting(CrashAccounting::Strict).run_until_idle().unwrap();
    assert_eq!((tally.retried, tally.again, tally.succeeded, tally.interrupted), (1, 1, 2, 1));
    let texts = ids.iter().map(|id| bank.state(*id).last_attempt_error_message);
    assert_eq!(texts.collect::<Vec<_>>(), [Some("no route".to_owned()), None, None, None]);
    assert_eq!(bank.booked(), ids[2..]);
}

#[test]
fn without_accounts_the_row_ends_every_process_and_nothing_is_written() {
    let scene = Scene::new(CrashAccounting::Off, 1);
    let (deadly, others) = scene.enqueue(1);
    let before = scene.bank.state(deadly);
    for _ in 0..4 {
        assert!(!scene.run(1));
    }
    assert_eq!(scene.bank.state(deadly), before);
    assert_eq!(scene.bank.state(others[0]).last_attempt_error_message, None);
}

#[test]
fn processes_side_by_side_find_the_row_together() {
    let scene = Scene::new(CrashAccounting::On, 2);
    let (deadly, others) = scene.enqueue(200);
    let mut crashes = 0;
    while scene.bank.state(deadly).status != Status::Failed {
        let both = [scene.start(&scene.orders), scene.start(&scene.orders)];
        crashes += both.map(Program::end).map(is_over).iter().filter(|over| !**over).count();
        assert!(crashes < 20, "they never find it");
    }
    scene.run_until_over();
    scene.assert_set_aside(deadly);
    scene.assert_cleared(&others);
}

#[test]
fn a_process_that_shuts_down_and_ends_while_a_handler_runs_has_not_crashed() {
    let [young, mut old, strict] =
        [CrashAccounting::On, CrashAccounting::On, CrashAccounting::Strict].map(|it| Scene::new(it, 1));
    old.orders.old = true;
    // On SQLite the handler keeps the write lock until its process ends, and so the mark stays.
    let marked = if db::NAME == "sqlite" { vec![] } else { vec![young, strict] };
    for scene in [old].into_iter().chain(marked) {
        let ids = scene.bank.enqueue([1]);
        scene.make_due_since(1, &ids);
        for _ in 0..4 {
            scene.start(&Orders { hang: true, leave: true, ..scene.orders.clone() }).end().well();
            assert_eq!((scene.noted("hangs"), scene.noted("suspect")), (ids.clone(), vec![]));
            fs::remove_file(&scene.orders.notes).unwrap();
        }
        assert_eq!(scene.run_until_over(), 0);
        scene.assert_cleared(&ids);
        assert_eq!(scene.noted("suspect"), [0; 0]);
    }
}

#[test]
fn innocent_rows_that_are_killed_with_their_process_are_due_again_within_seconds_and_succeed() {
    let scene = Scene::new(CrashAccounting::On, 4);
    let ids = scene.bank.enqueue(1..=8);
    scene.make_due_since(1, &ids);
    let hanging = Orders { hang: true, ..scene.orders.clone() };
    for _ in 0..2 {
        let before = scene.noted("hangs").len();
        let mut program = scene.start(&hanging);
        program.await_answer("a handler hangs", || (scene.noted("hangs").len() > before).then_some(()));
        program.kill();
        let soon = chrono::Utc::now() + chrono::TimeDelta::seconds(5);
        let dues = ids.iter().filter_map(|id| scene.bank.state(*id).next_attempt_time);
        assert!(dues.max().is_some_and(|last| last <= soon));
    }
    assert_eq!(scene.run_until_over(), 0);
    scene.assert_cleared(&ids);
    assert!(!scene.noted("suspect").is_empty());
}
