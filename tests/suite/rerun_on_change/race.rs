//! Writers change content at random while workers process it: in the end every content was processed.

use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use queueable::bounds::HandlerFor;
use queueable::bounds::QueueOn;
use queueable::{ClaimStyle, Lease, Message, Outcome, Queueable, Status};

use super::{Document, Grouped, Leased, Library, document_queue, documents, index};
use crate::db::Conn;
use queue_core::internals::backend::ErrorClasses;

const DOCUMENTS: usize = 30;
const WRITERS: usize = 3;
const CHANGES: usize = 60;
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs writers against four workers, and then waits until no row is due any more.
fn race<Q: QueueOn<Conn>>(style: ClaimStyle, handler: impl HandlerFor<Q, Conn> + 'static) {
    let library = Library::new();
    let titles: Vec<_> = (0..DOCUMENTS).map(|number| format!("title {number}")).collect();
    let ids = library.enqueue(titles.iter().map(String::as_str));
    let poller =
        Q::poller(library.pool(4), handler).workers(4).claim_style(style).poll_interval(Duration::from_millis(20));
    let handle = poller.start().unwrap();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (library, ids) = (&library, &ids);
            scope.spawn(move || write(library, ids, writer));
        }
    });
    let deadline = Instant::now() + PATIENCE;
    let (_nobody, pace) = std::sync::mpsc::channel::<()>();
    while Document::queue().pending().count(&mut library.connect()).unwrap() > 0 {
        assert!(Instant::now() < deadline, "the rows do not come to rest");
        let _ = pace.recv_timeout(Duration::from_millis(20));
    }
    let tally = handle.shutdown(PATIENCE).tally;
    assert_eq!((tally.retried, tally.failed), (0, 0));
    let rows: Vec<(Document, String)> =
        documents::table.select((Document::as_select(), document_queue::status)).load(&mut library.connect()).unwrap();
    assert_eq!(rows.len(), DOCUMENTS);
    for (document, status) in rows {
        assert_eq!((library.entry(document.id).unwrap(), &*status), (document.content(), Status::Success.as_str()));
    }
}

/// Changes documents, some of them together, and rolls some changes back.
fn write(library: &Library, ids: &[i64], writer: usize) {
    let mut connection = library.connect();
    for number in 0..CHANGES {
        let some: Vec<_> = (0..fastrand::usize(1..4)).map(|_| ids[fastrand::usize(..ids.len())]).collect();
        loop {
            let body = format!("change {number} of writer {writer}");
            let changed = connection.transaction::<(), DieselError, _>(|connection| {
                diesel::update(documents::table.filter(documents::id.eq_any(&some)))
                    .set(documents::body.eq(body))
                    .execute(connection)?;
                if fastrand::u8(..4) == 0 { Err(DieselError::RollbackTransaction) } else { Ok(()) }
            });
            match changed {
                Ok(()) | Err(DieselError::RollbackTransaction) => break,
                // This may be a deadlock with a group, or SQLite's one writer.
                Err(error) => assert_ne!(format!("{:?}", Conn::classify(&error)), "Other", "{error}"),
            }
        }
    }
}

#[test]
fn in_transactions() {
    race::<Document>(ClaimStyle::Auto, |document: &Document, message: &mut Message<'_, Conn>| {
        index(document.id, &document.content(), message)?;
        Ok(Outcome::Done)
    });
}

#[test]
fn in_groups() {
    race::<Grouped>(ClaimStyle::Auto, |document: &Grouped, message: &mut Message<'_, Conn>| {
        index(document.id, &document.content(), message)?;
        Ok(Outcome::Done)
    });
}

fn race_of_leases(style: ClaimStyle) {
    let handler = (
        |document: &Leased, _: &Lease| {
            thread::yield_now();
            Ok(document.content())
        },
        |document: &Leased, content: &String, message: &mut Message<'_, Conn>| {
            index(document.id, content, message)?;
            Ok(Outcome::Done)
        },
    );
    race::<Leased>(style, handler);
}

#[test]
fn under_leases() {
    race_of_leases(ClaimStyle::Auto);
}

#[test]
fn under_leases_without_skip_locked() {
    race_of_leases(ClaimStyle::UpdateThenSelect);
}
