//! What the audit says of a call: its rows in the words of the operator.

use std::fmt::Display;

use super::change::in_transaction;
use super::queue::{QueueRows, Selection};
use super::read::ReadsRows;
use crate::audit::Record;
use crate::control::name_of;
use crate::entity::Entity;
use crate::error::Error;
use crate::row::Status;
use crate::statement::{StateCondition, filter_text};

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Begins the record of a call, if it has an author. `action`: the call and its argument.
    pub(super) fn record<C>(&self, connection: &mut C, action: impl Display, in_batches: bool) -> Result<Record, Error>
    where
        C: ReadsRows<Q, F>,
    {
        self.record_of(connection, action, "", in_batches)
    }

    /// Does the same for a call that picks its rows by something else too.
    pub(super) fn record_of<C>(
        &self,
        connection: &mut C,
        action: impl Display,
        picked_by: &str,
        in_batches: bool,
    ) -> Result<Record, Error>
    where
        C: ReadsRows<Q, F>,
    {
        let Some(author) = &self.terms.author else { return Ok(Record::default()) };
        author.check()?;
        let condition = C::condition(self, &[]);
        let states = self.terms.states.iter().map(|state| words(*state));
        let picked_by = Some(picked_by.to_owned()).filter(|text| !text.is_empty());
        let filter = filter_text(condition.filter, states.chain(picked_by));
        let asked = (name_of(condition.queue)?, action.to_string(), filter);
        Record::begin(connection.as_queue_connection(), author, asked, self.terms.wait, in_batches)
    }

    /// Writes the record of a call that had no row to change.
    pub(super) fn close<C: ReadsRows<Q, F>>(&self, connection: &mut C, record: &Record) -> Result<(), Error> {
        if record.is_written() {
            return Ok(());
        }
        in_transaction(connection.as_queue_connection(), self.terms.wait, |connection, _| record.write(connection, 0))
    }
}

/// Says a condition as the operator does.
fn words(state: StateCondition) -> String {
    match state {
        StateCondition::In(statuses) | StateCondition::Reported(statuses) => {
            format!("status {}", statuses.iter().map(Status::to_string).collect::<Vec<_>>().join(" or "))
        }
        StateCondition::Pending => "pending".to_owned(),
        StateCondition::NotPending => "not pending".to_owned(),
        StateCondition::Due => "due".to_owned(),
        StateCondition::Scheduled => "scheduled".to_owned(),
        StateCondition::AttemptedWithin(time) => format!("attempted within {time:?}"),
        // No method of a queue's rows asks for the others.
        other => format!("{other:?}"),
    }
}
