//! The prepared statements of a session that end messages in one round trip, for each queue.

use std::any::TypeId;
use std::collections::HashMap;

use diesel::result::QueryResult;

use super::connection::QueueConnection;

/// The texts of a queue's statements that a session prepares. `None` of one: there is no such statement.
pub(crate) trait PreparedTexts<C> {
    /// Returns what tells the queue from every other.
    fn queue(&self) -> TypeId;

    /// Writes the statement that ends a message.
    fn finish(&self) -> QueryResult<Option<String>>;

    /// Writes the statement that locks the next row, if rows are prefetched.
    fn lock(&self) -> QueryResult<Option<String>>;

    /// Prefetches rows.
    fn try_reading(&self, connection: &mut C) -> QueryResult<()>;

    /// Writes the statements that lock a leased row and that write its answer.
    fn finish_lease(&self) -> QueryResult<Option<(String, String)>>;
}

/// The prepared statements of a session.
#[derive(Default)]
pub(crate) struct Prepared {
    finishes: HashMap<TypeId, Finishes>,
    /// The numbers in the names of the statements that write answers under leases.
    lease_finishes: HashMap<TypeId, Option<usize>>,
}

/// The names of the statements that end the messages of a queue.
struct Finishes {
    /// The one that settles a message: `None` if it cannot be prepared.
    finish: Option<String>,
    /// The one that locks the next row, if rows are prefetched.
    lock: Option<String>,
}

impl Prepared {
    pub(super) fn knows(&self, queue: TypeId) -> bool {
        self.finishes.contains_key(&queue)
    }

    /// Prepares the statements of a queue, outside any transaction, so that an error costs nothing: messages then end by
    /// several statements.
    pub(super) fn prepare<C: QueueConnection>(
        &mut self,
        connection: &mut C,
        settings: &C::Settings,
        texts: &dyn PreparedTexts<C>,
    ) -> QueryResult<()> {
        let number = self.finishes.len();
        let (name, lock_name) = (format!("queueable_finish_{number}"), format!("queueable_lock_{number}"));
        let finish = texts
            .finish()?
            .filter(|statement| connection.prepare_finish(&name, statement, Some(settings), Some("$7")).is_ok());
        let lock = match finish {
            // The server checks rights only when a statement runs.
            Some(_) => texts.lock()?.filter(|statement| {
                connection.prepare_lock(&lock_name, statement).is_ok() && texts.try_reading(connection).is_ok()
            }),
            None => None,
        };
        let finishes = Finishes { finish: finish.map(|_| name), lock: lock.map(|_| lock_name) };
        self.finishes.insert(texts.queue(), finishes);
        Ok(())
    }

    /// Prepares the statements that write answers under leases, outside any transaction, and returns the number in their
    /// names.
    pub(super) fn prepare_lease<C: QueueConnection>(
        &mut self,
        connection: &mut C,
        settings: &C::Settings,
        texts: &dyn PreparedTexts<C>,
    ) -> QueryResult<Option<usize>> {
        if let Some(number) = self.lease_finishes.get(&texts.queue()) {
            return Ok(*number);
        }
        let number = self.lease_finishes.len();
        let prepared = texts.finish_lease()?.filter(|(hold, finish)| {
            let mut prepare =
                |name, text, settings| connection.prepare_finish(&format!("{name}_{number}"), text, settings, None);
            prepare(HOLD, hold, None).and_then(|()| prepare(FINISH_LEASE, finish, Some(settings))).is_ok()
        });
        let number = prepared.map(|_| number);
        self.lease_finishes.insert(texts.queue(), number);
        Ok(number)
    }

    /// Returns the number in the names of a queue's statements that write answers under leases, if there are any.
    pub(crate) fn lease_finish_of(&self, queue: TypeId) -> Option<usize> {
        *self.lease_finishes.get(&queue)?
    }

    /// Returns the name of the statement that ends a message of a queue in one round trip, if there is one.
    pub(crate) fn finish_of(&self, queue: TypeId) -> Option<&str> {
        self.finishes.get(&queue)?.finish.as_deref()
    }

    /// Returns the name of the statement that locks the next prefetched row of a queue, if there is one.
    pub(crate) fn lock_of(&self, queue: TypeId) -> Option<&str> {
        self.finishes.get(&queue)?.lock.as_deref()
    }
}

/// The beginning of the names of the statements that a text under a lease runs.
pub(crate) const HOLD: &str = "queueable_hold";

pub(crate) const FINISH_LEASE: &str = "queueable_finish_lease";
