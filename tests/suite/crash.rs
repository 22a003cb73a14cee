//! Rows that end the process that handles them, and their neighbours.
//!
//! The process that ends is this program itself, started again with a single test. The environment holds its orders.

mod scene;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use queueable::{CrashAccounting, Error, Message, Outcome, Queueable, Status};

use self::scene::{ORDERS, Orders, Scene, at_once, files, is_over};
use crate::db::{self, Conn};
use crate::suite::bank::{Bank, Payment, book};
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
    assert_eq!(scene.records(), 0, "nothing is left of what is over");
}

#[test]
fn a_row_that_aborts_four_workers_is_set_aside_after_three_crashes_and_its_neighbours_are_cleared() {
    let scene = Scene::new(CrashAccounting::On, 4);
    let (deadly, others) = scene.enqueue(999);
    let company = at_once(4);
    assert!(!scene.run(company));
    assert_eq!(scene.run_until_over(), 2);
    scene.assert_set_aside(deadly);
    scene.assert_cleared(&others);
    let neighbours = scene.noted("suspect").into_iter().filter(|id| *id != deadly).count();
    assert_eq!(neighbours, company - 1, "each ran once more, alone");
}

#[test]
fn a_row_that_aborts_its_group_is_set_aside_after_three_crashes_and_its_neighbours_are_cleared() {
    for (accounting, workers) in [(CrashAccounting::On, 1), (CrashAccounting::On, 4), (CrashAccounting::Strict, 1)] {
        // A slow machine may make a group small, and so leave the deadly payment alone.
        let has_company = (0..5).any(|_| abort_a_group(accounting, workers) > 0);
        // Under strict accounts each message runs alone.
        assert_eq!(has_company, accounting != CrashAccounting::Strict, "{accounting:?}, {workers} workers");
    }
}

/// Shows it once, and returns how many others were in the transactions that the crash has undone.
fn abort_a_group(accounting: CrashAccounting, workers: usize) -> usize {
    let mut scene = Scene::new(accounting, workers);
    scene.orders.grouped = true;
    // The groups have their full size after 31 messages.
    let (deadly, others) = scene.enqueue(if accounting == CrashAccounting::Strict { 40 } else { 300 });
    // The deadly payment comes in the middle of the queue, when the groups have grown.
    scene.make_due_since(2, &others[..others.len() / 2]);
    assert_eq!(scene.run_until_over(), 3, "{accounting:?}");
    scene.assert_set_aside(deadly);
    scene.assert_cleared(&others);
    scene.noted("suspect").into_iter().filter(|id| *id != deadly).count()
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
fn strict_accounts_set_the_row_aside_too_and_need_no_directory() {
    for workers in [1, 4] {
        let scene = Scene::new(CrashAccounting::Strict, workers);
        let (deadly, others) = scene.enqueue(20);
        assert!(!scene.run(at_once(workers)));
        assert_eq!(scene.run_until_over(), 2);
        scene.assert_set_aside(deadly);
        scene.assert_cleared(&others);
        assert!(!scene.directory.path().join("records").exists());
    }
}

#[test]
fn where_no_file_outlives_the_process_the_row_is_set_aside_too() {
    for (workers, grouped) in [(1, false), (4, false), (1, true), (4, true)] {
        let mut scene = Scene::contained(workers);
        scene.orders.grouped = grouped;
        let (deadly, others) = scene.enqueue(40);
        scene.make_due_since(2, &others[..20]);
        scene.make_due_since(1, &others[20..]);
        // The processes are young whenever they meet it.
        assert_eq!(scene.run_until_over(), 3, "{workers} workers, grouped: {grouped}");
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
    assert!(!scene.directory.path().join("records").exists());
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_at_the_start() {
    let bank = Bank::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for unusable in [file.clone(), file.join("inside")] {
        let refused = bank.poller(book).crash_directory(&unusable).start().unwrap_err().to_string();
        let path = unusable.display().to_string();
        for expected in ["crash_directory is", &path, "name another", "strict", "off"] {
            assert!(refused.contains(expected), "`{expected}` is not in: {refused}");
        }
        for other in [CrashAccounting::Strict, CrashAccounting::Off] {
            bank.poller(book).crash_directory(&unusable).crash_accounting(other).run_until_idle().unwrap();
        }
    }
}

#[test]
fn records_are_kept_in_the_services_state_directory_or_in_the_users_where_somebody_else_has_taken_its_place() {
    for is_taken in [false, true] {
        let mut scene = Scene::new(CrashAccounting::On, 1);
        scene.orders.settings.crash_directory = None;
        let (deadly, others) = scene.enqueue(2);
        // In a container, the temporary files do not outlive it.
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let [services, users] = ["service", "user"].map(|name| place.path().join(name));
        fs::create_dir(&services).unwrap();
        if is_taken {
            fs::write(services.join("queueable"), "mine").unwrap();
        }
        let run = || {
            let orders = serde_json::to_string(&scene.orders).unwrap();
            let [services, users] = [&services, &users].map(|path| path.display().to_string());
            let variables = [(ORDERS, orders), ("STATE_DIRECTORY", services), ("XDG_STATE_HOME", users)];
            is_over(Program::of_this_test("suite::crash::a_process_of_its_own", variables).end())
        };
        assert!(!run());
        assert_eq!(
            files(&if is_taken { &users } else { &services }.join("queueable")),
            2,
            "a worker's, and the reports"
        );
        assert_eq!((0..10).position(|_| run()), Some(2));
        scene.assert_set_aside(deadly);
        scene.assert_cleared(&others);
    }
}

#[test]
fn processes_that_share_a_directory_find_the_row_together() {
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
fn an_application_with_another_database_is_not_accused() {
    let mut scene = Scene::new(CrashAccounting::On, 1);
    let (deadly, _) = scene.enqueue(0);
    let other = Scene::new(CrashAccounting::On, 1);
    let (same_key, _) = other.enqueue(0);
    assert_eq!(deadly, same_key);
    assert!(!scene.run(1));
    let poller = other.bank.poller(book).crash_directory(scene.directory.path().join("records"));
    assert_eq!(poller.run_until_idle().unwrap().succeeded, 1);
    // The other poller has left the records that it found.
    scene.orders.company = 1;
    assert_eq!(scene.run_until_over(), 2);
    scene.assert_set_aside(deadly);
}

#[test]
fn a_process_that_shuts_down_and_ends_while_a_handler_runs_has_not_crashed() {
    let [recorded, strict] = [CrashAccounting::On, CrashAccounting::Strict].map(|it| Scene::new(it, 1));
    // On SQLite the handler keeps the write lock until its process ends, and so the mark stays.
    let marked = if db::NAME == "sqlite" { vec![] } else { vec![strict, Scene::contained(1)] };
    for scene in [recorded].into_iter().chain(marked) {
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
fn innocent_rows_that_are_killed_with_their_process_succeed_later() {
    let scene = Scene::new(CrashAccounting::On, 4);
    let ids = scene.bank.enqueue(1..=8);
    let hanging = Orders { hang: true, ..scene.orders.clone() };
    for kill in 1..=2 {
        let mut program = scene.start(&hanging);
        program.await_answer("a handler hangs", || (scene.noted("hangs").len() >= kill).then_some(()));
        program.kill();
    }
    assert_eq!(scene.run_until_over(), 0);
    scene.assert_cleared(&ids);
    assert!(!scene.noted("suspect").is_empty());
}
