//! Hears the statements of a handler, and stops the one that would end its transaction.

use std::mem;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use diesel::connection::{Instrumentation, InstrumentationEvent, get_default_instrumentation};

use crate::database::Database;

/// The savepoint in which a worker runs a handler: its statement comes right before the handler, and the one that ends it right after.
const SAVEPOINT: &str = "SAVEPOINT queueable_handler";

/// The values that Diesel writes behind a statement. They may be anybody's secrets.
const VALUES: &str = " -- binds: ";

/// What a handler has run.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) statements: Vec<Statement>,
    /// The statement that was stopped.
    pub(super) stopped: Option<String>,
    is_handling: bool,
}

/// A statement without its values, and why it failed, if it did.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) error: Option<String>,
}

/// Hears the statements of a connection until [`Statements::end`].
pub(super) struct Statements(Arc<Mutex<Heard>>);

impl Statements {
    pub(super) fn hear<C: Database>(connection: &mut C) -> Self {
        let heard = Arc::<Mutex<Heard>>::default();
        let hears = Hears { heard: heard.clone(), is_end: C::ends_transaction, others: get_default_instrumentation() };
        connection.set_instrumentation(hears);
        Statements(heard)
    }

    pub(super) fn end<C: Database>(self, connection: &mut C) -> Heard {
        connection.set_instrumentation(get_default_instrumentation());
        mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Hears {
    heard: Arc<Mutex<Heard>>,
    /// Whether a statement would end the transaction.
    is_end: fn(&str) -> bool,
    /// The application's own.
    others: Option<Box<dyn Instrumentation>>,
}

impl Instrumentation for Hears {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        let stopped = match &event {
            InstrumentationEvent::StartQuery { query, .. } => self.begins(&query.to_string()),
            InstrumentationEvent::FinishQuery { query, error, .. } => {
                self.ends(&query.to_string(), error.map(ToString::to_string));
                false
            }
            _ => false,
        };
        self.others.on_connection_event(event);
        if stopped {
            // The worker takes it for a panic of the handler. Nothing was sent, and no hook writes about a panic.
            resume_unwind(Box::new("the console stopped a statement that would end the transaction"));
        }
    }
}

impl Hears {
    /// Notes the beginning of a statement. Returns whether it must not be sent.
    fn begins(&self, text: &str) -> bool {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if text.contains(SAVEPOINT) {
            // The end of the handler. If the savepoint begins, so does the handler, once the statement has ended.
            heard.is_handling = false;
            return false;
        }
        if !heard.is_handling {
            return false;
        }
        let sql = without_values(text);
        let is_end = (self.is_end)(sql);
        if is_end {
            heard.stopped = Some(sql.to_owned());
        }
        is_end
    }

    fn ends(&self, text: &str, error: Option<String>) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if text.contains(SAVEPOINT) {
            heard.is_handling = without_values(text) == SAVEPOINT;
        } else if heard.is_handling {
            heard.statements.push(Statement { sql: without_values(text).to_owned(), error });
        }
    }
}

/// A text of the application may look like the beginning of the values: then the rest of it is left out too.
fn without_values(text: &str) -> &str {
    text.split(VALUES).next().unwrap_or(text).trim()
}
