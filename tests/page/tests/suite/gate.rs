//! Holds an operation of the page between two of its transactions: so a test sees it at work, however fast the machine is.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Condvar, Mutex, Once, PoisonError};
use std::thread;

use diesel::connection::{Instrumentation, InstrumentationEvent, set_default_instrumentation};

use crate::db::Database;

/// How many transactions the operations on each database may commit.
static LIMITS: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);
static OPENED: Condvar = Condvar::new();

/// Lets the operations of a database commit so many transactions, and no more until it is opened.
#[derive(Debug)]
pub(crate) struct Gate(String);

impl Gate {
    pub(crate) fn after(transactions: usize, database: &Database) -> Self {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            set_default_instrumentation(|| Some(Box::new(Session::default()))).expect("nobody panics in it");
        });
        let mut limits = LIMITS.lock().unwrap_or_else(PoisonError::into_inner);
        limits.get_or_insert_default().insert(database.url().to_owned(), transactions);
        Gate(database.url().to_owned())
    }

    /// Lets the operation go on.
    pub(crate) fn open(self) {
        drop(self);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut limits = LIMITS.lock().unwrap_or_else(PoisonError::into_inner);
        limits.get_or_insert_default().remove(&self.0);
        OPENED.notify_all();
    }
}

/// What a connection has done.
#[derive(Default)]
struct Session {
    url: String,
    has_changed: bool,
    committed: usize,
}

impl Session {
    fn wait(&self) {
        let is_closed = |limits: &mut Option<HashMap<String, usize>>| {
            limits.as_ref().and_then(|limits| limits.get(&self.url)).is_some_and(|limit| self.committed >= *limit)
        };
        let limits = LIMITS.lock().unwrap_or_else(PoisonError::into_inner);
        drop(OPENED.wait_while(limits, is_closed));
    }
}

impl Instrumentation for Session {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        // The page gives each operation a thread and a connection of its own, which another thread makes.
        let is_of_an_operation = thread::current().name() == Some("queueable-page-run");
        match event {
            InstrumentationEvent::StartEstablishConnection { url, .. } => url.clone_into(&mut self.url),
            _ if !is_of_an_operation => {}
            InstrumentationEvent::StartQuery { query, .. } => self.has_changed |= is_change(query),
            InstrumentationEvent::CommitTransaction { depth, .. } if depth.get() == 1 && self.has_changed => {
                (self.has_changed, self.committed) = (false, self.committed + 1);
            }
            InstrumentationEvent::BeginTransaction { .. } => self.wait(),
            _ => {}
        }
    }
}

fn is_change(query: &dyn fmt::Display) -> bool {
    query.to_string().starts_with("UPDATE")
}
