//! What a program has to do to be measured.
//!
//! Every contestant runs as a process of its own, so that frameworks whose dependencies do not go together can be
//! compared, and so that memory and processor time are its own. The benchmark tells it what to do, a line of JSON for
//! each request, and reads a line of JSON for each reply. A program implements [`Contestant`] and calls [`serve`].

mod meter;
mod serve;
mod words;

pub use self::meter::Meter;
pub use self::serve::serve;
pub use self::words::{
    Backend, Description, Enqueue, Fill, Guarantee, Handler, Kind, Pace, Reply, Request, RowState, Skill, Work,
};

use std::sync::Arc;

use anyhow::Result;

/// A job framework, or hand-written SQL, as the benchmark drives it.
pub trait Contestant: Sync {
    /// Says what it is, what its numbers carry, and what it can do.
    fn describe(&self) -> Description;

    /// Makes its tables in an empty database. The table `ledger` is there already.
    fn prepare(&self, url: &str, entities: usize) -> Result<()>;

    /// Puts rows into its queue, as fast as it can; nobody measures this.
    fn fill(&self, url: &str, fill: &Fill) -> Result<()>;

    /// Enqueues as an application would; this is measured. Calls `committed` with a message's number right after its commit.
    fn enqueue(&self, url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()>;

    /// Starts to work off what is due, and returns. Every handler calls [`Meter::handled`].
    fn start(&self, url: &str, work: &Work, meter: &Arc<Meter>) -> Result<Box<dyn Running>>;
}

/// Workers at work.
pub trait Running {
    /// Lets what runs finish, and returns when nothing runs any more.
    fn stop(self: Box<Self>) -> Result<()>;
}
