//! The handlers of the queues whose rows are scheduled by a column, in each mode: they note when they begin and end.

use std::fs::File;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Failure, Lease, Message, Outcome, Poller};

use super::Conn;
use crate::attempts::{self, Note};
use crate::lanes::{grouped, leased, locked};
use crate::options::Mode;

/// A poller that serves all three queues.
pub(crate) fn poller(pool: Pool<ConnectionManager<Conn>>, mode: Mode, directory: &Path) -> Result<Poller<Conn>> {
    let clerk = Arc::new(Clerk { file: attempts::open(directory)?, attempts: AtomicU64::new(0) });
    let poller = Poller::new(pool);
    macro_rules! handler {
        ($entity:ty, $queue:literal) => {{
            let clerk = clerk.clone();
            move |row: &$entity, message: &mut Message<'_, Conn>| {
                clerk.work($queue, row.id, message.try_number()).map(|()| Outcome::Done)
            }
        }};
    }
    macro_rules! call {
        ($entity:ty, $queue:literal) => {{
            let clerk = clerk.clone();
            (
                move |row: &$entity, lease: &Lease| clerk.work($queue, row.id, lease.try_number()),
                |_: &$entity, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
            )
        }};
    }
    Ok(match mode {
        Mode::Transaction => poller
            .serve::<locked::Serial>(handler!(locked::Serial, "serials"))
            .serve::<locked::Trio>(handler!(locked::Trio, "trios"))
            .serve::<locked::Strict>(handler!(locked::Strict, "stricts")),
        Mode::Group => poller
            .serve::<grouped::Serial>(handler!(grouped::Serial, "serials"))
            .serve::<grouped::Trio>(handler!(grouped::Trio, "trios"))
            .serve::<grouped::Strict>(handler!(grouped::Strict, "stricts")),
        Mode::Lease => poller
            .serve::<leased::Serial>(call!(leased::Serial, "serials"))
            .serve::<leased::Trio>(call!(leased::Trio, "trios"))
            .serve::<leased::Strict>(call!(leased::Strict, "stricts")),
    })
}

/// Notes the attempts of this process.
struct Clerk {
    file: File,
    attempts: AtomicU64,
}

impl Clerk {
    /// Takes some time. One row in seven fails at its first try.
    fn work(&self, queue: &str, row: i64, try_number: u32) -> Result<(), Failure> {
        let (process, attempt) = (process::id(), self.attempts.fetch_add(1, Ordering::Relaxed));
        attempts::note(&self.file, &Note::Began { process, attempt, queue: queue.to_owned(), row })?;
        thread::sleep(Duration::from_millis(row.unsigned_abs() % 4));
        let failed = row % 7 == 3 && try_number == 1;
        attempts::note(&self.file, &Note::Ended { process, attempt, failed })?;
        if failed { Err(Failure::retry("not at the first try")) } else { Ok(()) }
    }
}
