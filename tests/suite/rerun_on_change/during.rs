//! Content that changes while an attempt runs: the attempt's answer applies only to the old content.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::prelude::*;
use queueable::{CrashAccounting, Failure, HandlerResult, Lease, Message, Outcome, Queueable, Status, Tally};

use super::{Document, Grouped, Leased, Library, documents, index};
use crate::db::Conn;

/// Processes the documents under a lease. `meanwhile` runs once for each while its call runs; `answer` answers for the
/// content that was claimed.
fn lease(
    library: &Arc<Library>,
    meanwhile: impl Fn(&Library, &Leased) + Send + Sync + 'static,
    answer: impl Fn(&Leased) -> HandlerResult + Send + Sync + 'static,
) -> Tally {
    let (seen, changed) = (library.clone(), Mutex::new(Vec::new()));
    let handler = (
        move |document: &Leased, _: &Lease| {
            let mut changed = changed.lock().unwrap();
            if !changed.contains(&document.id) {
                changed.push(document.id);
                meanwhile(&seen, document);
            }
            Ok(())
        },
        move |document: &Leased, _: &(), message: &mut Message<'_, Conn>| {
            index(document.id, &document.content(), message)?;
            answer(document)
        },
    );
    Leased::poller(library.pool(1), handler).workers(1).run_until_idle().unwrap()
}

fn change(library: &Library, document: &Leased) {
    library.write(&format!("UPDATE documents SET body = 'new' WHERE id = {}", document.id));
}

#[test]
fn a_row_that_changes_while_it_is_worked_is_worked_again() {
    let library = Arc::new(Library::new());
    let ids = library.enqueue(["one"]);
    let within = library.clone();
    let tally = lease(
        &library,
        move |library, document| {
            let leased = library.state(document.id);
            change(library, document);
            // The worker still has its lease.
            assert_eq!(within.state(document.id), leased);
        },
        |_| Ok(Outcome::Done),
    );
    assert_eq!((tally.succeeded, tally.lost), (2, 0));
    assert_eq!(library.entry(ids[0]).unwrap(), "one: new");
    let state = library.state(ids[0]);
    assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::Success, 1, None));
}

#[test]
fn whatever_is_answered_for_the_old_content_the_new_one_is_due_with_tries_of_its_own() {
    let library = Arc::new(Library::new());
    let ids = library.enqueue(["done", "fails", "is fatal", "comes again", "deletes"]);
    let tally = lease(&library, change, |document| {
        if document.body.as_deref() == Some("new") {
            return Err(Failure::retry_after(Duration::from_secs(3600), "seen"));
        }
        match &*document.title {
            "fails" => Err(Failure::retry("no route")),
            "is fatal" => Err(Failure::fatal("void")),
            "comes again" => Ok(Outcome::again_in(Duration::from_secs(3600))),
            "deletes" => Ok(Outcome::Delete),
            _ => Ok(Outcome::Done),
        }
    });
    assert_eq!(tally.lost, 0);
    for id in ids {
        let state = library.state(id);
        assert_eq!(state.last_attempt_error_message.as_deref(), Some("seen"));
        assert_eq!((state.status, state.try_count), (Status::Error, 1));
    }
}

#[test]
fn unchanged_content_is_settled_as_ever() {
    let library = Arc::new(Library::new());
    let ids = library.enqueue(["done", "fails", "is fatal", "deletes"]);
    let other = |library: &Library, document: &Leased| {
        library.write(&format!("UPDATE documents SET note = 'read' WHERE id = {}", document.id));
    };
    lease(&library, other, |document| match &*document.title {
        "fails" => Err(Failure::retry("no route")),
        "is fatal" => Err(Failure::fatal("void")),
        "deletes" => Ok(Outcome::Delete),
        _ => Ok(Outcome::Done),
    });
    let statuses = ids[..3].iter().map(|id| library.state(*id).status).collect::<Vec<_>>();
    assert_eq!(statuses, [Status::Success, Status::Error, Status::Failed]);
    let left: Vec<i64> =
        documents::table.select(documents::id).order(documents::id).load(&mut library.connect()).unwrap();
    assert_eq!(left, ids[..3]);
}

/// As if the change had come after the skip: a skipped row stays skipped whatever its content.
#[test]
fn a_row_that_is_skipped_stays_so() {
    let library = Arc::new(Library::new());
    let ids = library.enqueue(["one"]);
    lease(&library, change, |_| Ok(Outcome::Skip));
    assert_eq!((library.state(ids[0]).status, library.state(ids[0]).next_attempt_time), (Status::Skipped, None));
}

#[test]
fn a_row_that_is_stopped_and_changed_while_it_is_worked_waits_to_be_restarted() {
    let library = Arc::new(Library::new());
    let ids = library.enqueue(["one"]);
    let stop_and_change = |library: &Library, document: &Leased| {
        let row = Leased::queue().filter(documents::id.eq(document.id));
        assert_eq!(row.stop(&mut library.connect()).unwrap(), 1);
        change(library, document);
    };
    let tally = lease(&library, stop_and_change, |_| Ok(Outcome::Done));
    assert_eq!(tally.succeeded, 1);
    let state = library.state(ids[0]);
    assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::NotAttempted, 0, None));
    assert_eq!(Leased::queue().all_rows().restart(&mut library.connect()).unwrap(), 1);
    lease(&library, |_, _| {}, |_| Ok(Outcome::Done));
    assert_eq!(library.entry(ids[0]).unwrap(), "one: new");
}

#[test]
fn a_handler_that_changes_its_own_row_sees_it_again() {
    let library = Library::new();
    let ids = library.enqueue(["  blanks  "]);
    let tally = library.run(|document: &Document, message: &mut Message<'_, Conn>| {
        index(document.id, &document.content(), message)?;
        diesel::update(documents::table.find(document.id))
            .set(documents::title.eq(document.title.trim()))
            .execute(message.connection())?;
        Ok(Outcome::Done)
    });
    assert_eq!(tally.succeeded, 2);
    assert_eq!(library.entry(ids[0]).unwrap(), "blanks:   blanks  ");
    assert_eq!((library.state(ids[0]).status, library.state(ids[0]).try_count), (Status::Success, 1));
}

#[test]
fn a_message_that_another_of_its_group_changes_is_worked_again() {
    let library = Library::new();
    let titles: Vec<_> = (0..40).map(|number| format!("title {number}")).collect();
    let ids = library.enqueue(titles.iter().map(String::as_str));
    let last = ids[39];
    let handler = move |document: &Grouped, message: &mut Message<'_, Conn>| -> HandlerResult {
        // Each handler writes on both neighbours: some of them were handled before, and some will be.
        for neighbour in [document.id - 1, document.id + 1] {
            diesel::update(documents::table.find(neighbour))
                .set(documents::body.eq(format!("beside {}", neighbour.min(last))))
                .execute(message.connection())?;
        }
        index(document.id, &document.content(), message)?;
        Ok(Outcome::Done)
    };
    let tally = Grouped::poller(library.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert!(tally.succeeded >= 40);
    for (id, title) in ids.into_iter().zip(titles) {
        assert_eq!(library.entry(id).unwrap(), format!("{title}: beside {id}"));
        let state = library.state(id);
        assert_eq!((state.status, state.next_attempt_time), (Status::Success, None));
    }
}

/// A handler that writes on its own row: the worker sees the change, and processes the row again.
fn trim(id: i64, title: &str, message: &mut Message<'_, Conn>) -> HandlerResult {
    diesel::update(documents::table.find(id)).set(documents::title.eq(title.trim())).execute(message.connection())?;
    Ok(Outcome::Done)
}

/// Whatever the row's state was, even if it failed or succeeded before.
fn enqueue_in_all_states(library: &Library) -> Vec<i64> {
    let ids = library.enqueue([" new ", " failed ", " done "]);
    library.set_state(ids[1], "status = 'ERROR', try_count = 2, last_attempt_error_message = 'no route'");
    library.set_state(ids[2], "status = 'SUCCESS', try_count = 1");
    ids
}

fn assert_trimmed(library: &Library, ids: &[i64], tally: Tally) {
    assert_eq!((tally.succeeded, tally.lost, tally.interrupted), (2 * ids.len() as u64, 0, 0));
    for id in ids {
        let state = library.state(*id);
        assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::Success, 1, None));
        assert_eq!((state.last_attempt_error_message, library.change_count(*id)), (None, 1));
    }
}

#[test]
fn a_handler_that_changes_its_own_row_keeps_its_hold_under_strict_accounts() {
    let library = Library::new();
    let ids = enqueue_in_all_states(&library);
    let handler = |document: &Document, message: &mut Message<'_, Conn>| trim(document.id, &document.title, message);
    let poller = Document::poller(library.pool(1), handler).workers(1).crash_accounting(CrashAccounting::Strict);
    assert_trimmed(&library, &ids, poller.run_until_idle().unwrap());
}

#[test]
fn a_handler_that_changes_its_own_row_keeps_its_hold_in_a_group() {
    let library = Library::new();
    let ids = enqueue_in_all_states(&library);
    let handler = |document: &Grouped, message: &mut Message<'_, Conn>| trim(document.id, &document.title, message);
    let tally = Grouped::poller(library.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_trimmed(&library, &ids, tally);
}
