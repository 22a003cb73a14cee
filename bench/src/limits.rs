//! The hand-written limits: plain SQL with prepared statements, by which everything else is measured.

mod calls;
mod libpq;
mod mariadb;
mod postgres;
mod sqlite;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use contestant::{
    Backend, Contestant, Description, Enqueue, Fill, Guarantee, Handler, Kind, Meter, Pace, Running, Skill, Work,
};

use crate::table;

/// The contestant by which every table of results is divided.
pub(crate) const REFERENCE: &str = "naive";

/// How many messages a group has.
const GROUP: usize = 50;

/// How long a worker that finds nothing waits.
const PAUSE: Duration = Duration::from_millis(10);

/// The loop of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `BEGIN`, a claim with `FOR UPDATE SKIP LOCKED LIMIT 1`, the handler's insert, the settling `UPDATE`, `COMMIT`.
    Naive,
    /// The same with a savepoint around the insert.
    NaiveSavepoint,
    /// The same with 50 messages and one `UPDATE` for all.
    Group,
    /// The same with a savepoint around each insert.
    GroupSavepoint,
    /// The handler's insert and nothing else, committed by itself.
    Commit,
    /// As naive, but each enqueue is announced, and idle workers wait for announcements. PostgreSQL only.
    Listen,
}

impl Shape {
    const ALL: [Shape; 6] =
        [Shape::Naive, Shape::NaiveSavepoint, Shape::Group, Shape::GroupSavepoint, Shape::Commit, Shape::Listen];

    /// The limits for a database.
    pub(crate) fn all(backend: Backend) -> impl Iterator<Item = Shape> {
        Shape::ALL.into_iter().filter(move |shape| *shape != Shape::Listen || backend == Backend::Postgres)
    }

    /// How many messages share a transaction.
    fn size(self) -> usize {
        match self {
            Shape::Naive | Shape::NaiveSavepoint | Shape::Commit | Shape::Listen => 1,
            Shape::Group | Shape::GroupSavepoint => GROUP,
        }
    }

    fn has_savepoints(self) -> bool {
        matches!(self, Shape::NaiveSavepoint | Shape::GroupSavepoint)
    }
}

/// A hand-written limit on a database.
pub(crate) struct Limit {
    pub(crate) shape: Shape,
    pub(crate) backend: Backend,
}

impl Contestant for Limit {
    fn describe(&self) -> Description {
        let (name, settings) = match self.shape {
            Shape::Naive => (REFERENCE, "BEGIN, claim LIMIT 1, insert, update, COMMIT"),
            Shape::NaiveSavepoint => ("naive-savepoint", "the same, with SAVEPOINT and RELEASE around the insert"),
            Shape::Group => ("group", "BEGIN, claim LIMIT 50, 50 inserts, one update, COMMIT"),
            Shape::GroupSavepoint => ("group-savepoint", "the same, with SAVEPOINT and RELEASE around each insert"),
            Shape::Commit => ("commit", "the insert alone, in a transaction of its own: no queue"),
            Shape::Listen => ("listen", "as naive, with NOTIFY in each enqueueing statement and LISTEN in each worker"),
        };
        let on_server = matches!(self.backend, Backend::Postgres | Backend::Mariadb);
        let pace = if self.shape.size() == 1 && on_server { Pace::Single } else { Pace::Group };
        let scales = [Skill::Drain, Skill::Nothing, Skill::Finished, Skill::Wide, Skill::Scales];
        let waits = [Skill::Enqueue, Skill::Waits];
        let skills = match self.shape {
            Shape::Naive if self.backend == Backend::Postgres => {
                [&scales[..], &waits[..], &[Skill::Endures, Skill::Calls]].concat()
            }
            Shape::Naive => [&scales[..], &waits[..], &[Skill::Endures]].concat(),
            Shape::Group => [&scales[..], &[Skill::Endures]].concat(),
            Shape::NaiveSavepoint | Shape::GroupSavepoint => scales.to_vec(),
            Shape::Commit => vec![Skill::Drain],
            Shape::Listen => waits.to_vec(),
        };
        Description {
            name: name.to_owned(),
            kind: Kind::Limit,
            backends: vec![self.backend],
            guarantee: if self.shape == Shape::Commit { Guarantee::None } else { Guarantee::SameTransaction },
            pace,
            skills,
            settings: settings.to_owned(),
        }
    }

    fn prepare(&self, url: &str, entities: usize) -> Result<()> {
        table::create(self.backend, url, entities)
    }

    fn fill(&self, url: &str, fill: &Fill) -> Result<()> {
        // This one has no queue.
        if self.shape == Shape::Commit { Ok(()) } else { table::fill(self.backend, url, fill) }
    }

    fn enqueue(&self, url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
        match self.backend {
            Backend::Postgres => postgres::enqueue(url, self.shape, enqueue, committed),
            Backend::Mariadb => mariadb::enqueue(url, enqueue, committed),
            Backend::SqliteFull | Backend::SqliteNormal => sqlite::enqueue(url, self.backend, enqueue, committed),
        }
    }

    fn start(&self, url: &str, work: &Work, meter: &Arc<Meter>) -> Result<Box<dyn Running>> {
        if let Handler::Call { port } = work.handler {
            return Ok(Box::new(calls::start(url, work, port, meter)?));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..work.workers)
            .map(|_| {
                let shift =
                    Shift { shape: self.shape, handler: work.handler, meter: meter.clone(), stop: stop.clone() };
                let (url, backend) = (url.to_owned(), self.backend);
                thread::spawn(move || match backend {
                    Backend::Postgres => postgres::work(&url, &shift),
                    Backend::Mariadb => mariadb::work(&url, &shift),
                    Backend::SqliteFull | Backend::SqliteNormal => sqlite::work(&url, backend, &shift),
                })
            })
            .collect();
        Ok(Box::new(Threads { threads, stop }))
    }
}

/// The state of a worker's thread.
struct Shift {
    shape: Shape,
    handler: Handler,
    meter: Arc<Meter>,
    stop: Arc<AtomicBool>,
}

impl Shift {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

struct Threads {
    threads: Vec<JoinHandle<Result<()>>>,
    stop: Arc<AtomicBool>,
}

impl Running for Threads {
    fn stop(self: Box<Self>) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow!("a worker panicked"))??;
        }
        Ok(())
    }
}
