//! What the asynchronous contestants have in common: a runtime, and what their handlers know.

use std::future::Future;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use contestant::{Handler, Meter, Running};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// How many jobs are put into a queue at once, where nobody measures it.
pub const BATCH: usize = 1000;

/// What a handler knows.
#[derive(Debug, Clone)]
pub struct Task {
    /// What counts the messages.
    pub meter: Arc<Meter>,
    /// Whether a row is to be inserted.
    pub books: bool,
}

impl Task {
    /// A task that does what is asked for.
    pub fn new(handler: Handler, meter: &Arc<Meter>) -> Self {
        Task { meter: meter.clone(), books: handler == Handler::Ledger }
    }
}

/// The insert that every handler makes: the job's number and an amount.
pub const BOOK: &str = "INSERT INTO ledger (payment_id, amount_cents) VALUES ($1, $2)";

/// Runs something to its end.
///
/// # Errors
///
/// When it fails, or no runtime can be had.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    Runtime::new()?.block_on(work)
}

/// A framework at work in a runtime of its own. When it is stopped the runtime ends, and with it all that runs in it.
pub struct Serving(Runtime);

impl Serving {
    /// Starts a framework, which is expected to go on in tasks of its own.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start(begin: impl Future<Output = Result<()>>) -> Result<Box<dyn Running>> {
        let runtime = Runtime::new()?;
        runtime.block_on(begin)?;
        Ok(Box::new(Serving(runtime)))
    }
}

impl Running for Serving {
    fn stop(self: Box<Self>) -> Result<()> {
        self.0.shutdown_timeout(Duration::from_secs(10));
        Ok(())
    }
}

/// A framework whose future can only be driven by one thread.
pub struct Driven {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<()>>,
}

impl Driven {
    /// Drives a framework in a thread of its own until it is stopped.
    pub fn start<F: Future<Output = Result<()>>>(begin: impl FnOnce() -> F + Send + 'static) -> Box<dyn Running> {
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = Runtime::new()?;
            let result = runtime.block_on(async {
                tokio::select! {
                    result = begin() => result,
                    _ = stopped => Ok(()),
                }
            });
            runtime.shutdown_timeout(Duration::from_secs(10));
            result
        });
        Box::new(Driven { stop, thread })
    }
}

impl Running for Driven {
    fn stop(self: Box<Self>) -> Result<()> {
        // It may have ended by itself: then the thread says why.
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| anyhow!("the thread panicked"))?
    }
}
