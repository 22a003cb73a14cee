//! The messages of a group and their connection, before whose first use something may have to be done.

use std::fmt;

use chrono::{DateTime, Utc};

use super::panic_safe::StopSignal;
use crate::row::{Details, QueueState, Stage};

/// The messages of a group that [`handle_group`](crate::Handler::handle_group) is processing: their transaction, and what
/// the queue knows about each row. Messages are numbered from 0, in the order of the entities.
///
/// ```
/// # use diesel::prelude::*;
/// use queueable::{Group, Handler, HandlerResult, Message, Outcome};
///
/// # diesel::table! { ledger (payment_id) { payment_id -> BigInt, } }
/// # struct Payment { id: i64 }
/// struct Book;
///
/// impl Handler<Payment, SqliteConnection> for Book {
///     fn handle(&self, payment: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
///         let row = ledger::payment_id.eq(payment.id);
///         diesel::insert_into(ledger::table).values(row).execute(message.connection())?;
///         Ok(Outcome::Done)
///     }
///
///     fn handle_group(&self, payments: &[Payment], group: &mut Group<'_, SqliteConnection>) -> Option<Vec<HandlerResult>> {
///         let rows: Vec<_> = payments.iter().map(|payment| ledger::payment_id.eq(payment.id)).collect();
///         match diesel::insert_into(ledger::table).values(rows).execute(group.connection()) {
///             Ok(_) => Some(payments.iter().map(|_| Ok(Outcome::Done)).collect()),
///             Err(error) => Some(vec![Err(error.into())]), // all is undone, and each payment is handled alone
///         }
///     }
/// }
/// ```
pub struct Group<'a, C> {
    pub(crate) connection: &'a mut (dyn GroupConnection<C> + Send),
    pub(crate) messages: Vec<GroupedMessage<'a>>,
    pub(crate) stop: &'a StopSignal,
}

/// One message of a group.
pub(crate) struct GroupedMessage<'a> {
    pub(crate) state: &'a QueueState,
    pub(crate) details: &'a Details,
    pub(crate) try_number: u32,
    pub(crate) idempotency_key: &'a str,
}

impl<C> Group<'_, C> {
    /// Returns the connection, inside the group's transaction. The rules of
    /// [`Message::connection`](crate::Message::connection) hold here too.
    pub fn connection(&mut self) -> &mut C {
        self.connection.to_use()
    }

    /// Returns the number of a message's attempt since its row was enqueued; the first is 1.
    ///
    /// # Panics
    ///
    /// If the group has no message with this number. The other methods then panic too.
    pub fn try_number(&self, message: usize) -> u32 {
        self.messages[message].try_number
    }

    /// Returns the queue columns of a message as they were when its row was claimed.
    pub fn queue_state(&self, message: usize) -> &QueueState {
        self.messages[message].state
    }

    /// Returns the stage of a message's row, see [`Message::stage`](crate::Message::stage).
    pub fn stage<S: Stage>(&self, message: usize) -> S {
        self.messages[message].details.stage()
    }

    /// Returns the scheduled time of a message's run, see [`Message::scheduled_for`](crate::Message::scheduled_for).
    pub fn scheduled_for(&self, message: usize) -> Option<DateTime<Utc>> {
        self.messages[message].details.scheduled_for()
    }

    /// Returns a message's key for external calls, see [`Message::idempotency_key`](crate::Message::idempotency_key).
    pub fn idempotency_key(&self, message: usize) -> &str {
        self.messages[message].idempotency_key
    }
}

impl<C> fmt::Debug for Group<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("messages", &self.messages.len()).finish_non_exhaustive()
    }
}

/// Gives a group its connection.
pub(crate) trait GroupConnection<C> {
    /// Returns the connection for the handler's use.
    fn to_use(&mut self) -> &mut C;

    /// Returns the connection to look at it: the handler has not used it by that.
    fn to_look_at(&mut self) -> &mut C;
}

/// A connection, and what runs once before its first use.
pub(crate) struct BeforeUse<'a, C> {
    connection: &'a mut C,
    before: Option<&'a mut (dyn FnMut(&mut C) + Send)>,
}

impl<'a, C> BeforeUse<'a, C> {
    pub(crate) fn new(connection: &'a mut C, before: &'a mut (dyn FnMut(&mut C) + Send)) -> Self {
        BeforeUse { connection, before: Some(before) }
    }
}

impl<C> GroupConnection<C> for BeforeUse<'_, C> {
    fn to_use(&mut self) -> &mut C {
        if let Some(before) = self.before.take() {
            before(self.connection);
        }
        self.connection
    }

    fn to_look_at(&mut self) -> &mut C {
        self.connection
    }
}
