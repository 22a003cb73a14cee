//! Looks at a queue: where it is, when its next row is due, and what is in its way.

use std::time::Duration;

use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Text};

use super::due::Claimable;
use super::erased::ErasedQueue;
use super::head::{AnotherIsLeased, Head};
use super::probe_due::{OldestDue, ProbeDue, time_until};
use super::undecodable::{KeyTexts, UndecodableRow};
use super::unknown_stages::UnknownStages;
use crate::backend::{QueueConnection, Target, execute, load, load_first};
use crate::entity::Key;
use crate::row::{Instant, RowKey};

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Returns where the queue's columns and index are.
    pub fn target(&self) -> QueryResult<Target> {
        self.sql.target()
    }

    /// Reads, without a lock, how long it is until the next row is due, in one of these stages if the entity has any, but
    /// not for rows that are due earlier than `floor`. `None`: no row is due within [`ProbeDue::HORIZON`], or in an
    /// exclusive queue a lease keeps the others from being claimed.
    pub fn probe_due(
        &self,
        connection: &mut C,
        stages: Option<&[&'static str]>,
        floor: Option<Instant>,
    ) -> QueryResult<Option<Duration>> {
        if self.sql.options.exclusive && self.is_leased() && self.another_is_leased(connection, None)? {
            return Ok(None);
        }
        let probe = ProbeDue(Claimable::new(self.sql, stages).not_below(floor));
        Ok(load_first::<BigInt, i64, _>(connection, &probe)?.map(time_until))
    }

    /// Reads, without a lock, how long the oldest due row has been due, in one of these stages if the entity has any.
    /// `None`: no row is due.
    pub fn oldest_due(&self, connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<Duration>> {
        let oldest = OldestDue(Claimable::new(self.sql, stages));
        Ok(load_first::<BigInt, i64, _>(connection, &oldest)?.map(time_until))
    }

    /// Reads, without a lock, the key of the first pending row of an exclusive entity, in its order.
    pub fn head(&self, connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<RowKey<K>>> {
        Ok(self.read_keys(connection, &Head(Claimable::new(self.sql, stages)))?.pop())
    }

    /// Tells whether a row other than the one with this key is under a lease.
    pub fn another_is_leased(&self, connection: &mut C, key: Option<&K>) -> QueryResult<bool> {
        let leased =
            load_first::<Text, String, _>(connection, &AnotherIsLeased(self.sql, key.map(|key| self.row(key).is_key)))?;
        Ok(leased.is_some())
    }

    /// Reads the rows whose keys cannot be decoded, without a lock: among the first `limit` that a claim would find, or
    /// among those whose lease began at `leased`. Also returns whether those were all.
    pub fn undecodable(
        &self,
        connection: &mut C,
        leased: Option<Instant>,
        limit: u32,
    ) -> QueryResult<(Vec<UndecodableRow>, bool)> {
        let texts = KeyTexts { due: Claimable::new(self.sql, None), leased, limit: limit.into() };
        let rows = (self.load_key_texts)(connection, &texts)?;
        let are_all = rows.len() < limit as usize;
        Ok((rows.into_iter().filter_map(UndecodableRow::of).collect(), are_all))
    }

    /// Reads the stages of pending rows that the entity does not know, or some of them if there are many.
    pub fn unknown_stages(&self, connection: &mut C) -> QueryResult<Vec<String>> {
        match self.sql.options.stages {
            Some(_) => load::<Text, String, _>(connection, &UnknownStages(self.sql)),
            None => Ok(Vec::new()),
        }
    }

    /// Runs the claim without reading its result. It fails if the entity's columns or the right to lock are missing.
    pub fn try_claim(&self, connection: &mut C) -> QueryResult<()> {
        // In a lane no row may overtake one that this try holds for a moment.
        match self.sql.options.is_scheduled() {
            true => execute(connection, &self.claim_all().some(0, Vec::new())).map(drop),
            false => execute(connection, &self.claim_all()).map(drop),
        }
    }
}
