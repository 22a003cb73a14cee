//! Looks at an entity's queue: where it is, when its next row is due, and what is in its way.

use std::any::TypeId;
use std::time::Duration;

use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Text};

use super::claim::Claim;
use super::head::{AnotherIsLeased, Head};
use super::key_text::row_key;
use super::oldest_due::OldestDue;
use super::probe_due::{ProbeDue, time_until};
use super::rows::ReadFrom;
use super::undecodable::{KeyTexts, UndecodableRow};
use super::unknown_stages::UnknownStages;
use crate::backend::{QueueConnection, Target, execute, load, load_first};
use crate::entity::{LeaseMode, QueueTable};
use crate::row::{Instant, RowKey};

/// Looks at an entity's queue: where it is, when its next row is due, and what is in its way. See
/// [`QueueOn`](super::queue_on::QueueOn).
pub trait ProbeOn<C: QueueConnection>: ReadFrom<C::Backend> {
    /// Returns where the queue's columns and index are.
    fn target() -> QueryResult<Target>;

    /// Reads, without a lock, how long it is until the next row is due, in one of these stages if the entity has any.
    /// `None`: no row is due within [`ProbeDue::HORIZON`], or in an exclusive queue a lease keeps the others from being
    /// claimed.
    fn probe_due(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<Duration>>;

    /// Does the same, but not for rows that are due earlier than this. Only for an entity whose rows are claimed by
    /// their due times.
    fn probe_due_from(
        connection: &mut C,
        stages: Option<&[&'static str]>,
        floor: Instant,
    ) -> QueryResult<Option<Duration>>;

    /// Reads, without a lock, how long the oldest due row has been due, in one of these stages if the entity has any.
    /// `None`: no row is due.
    fn oldest_due(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<Duration>>;

    /// Reads, without a lock, the key of the first pending row of an exclusive entity, in its order.
    fn head(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<RowKey<Self::Key>>>;

    /// Tells whether a row other than the one with this key is under a lease.
    fn another_is_leased(connection: &mut C, key: Option<&Self::Key>) -> QueryResult<bool>;

    /// Reads the rows whose keys cannot be decoded, without a lock: among the first `limit` that a claim would find, or
    /// among those whose lease began at `leased`. Also returns whether those were all.
    fn undecodable(connection: &mut C, leased: Option<Instant>, limit: u32)
    -> QueryResult<(Vec<UndecodableRow>, bool)>;

    /// Reads the stages of pending rows that the entity does not know, or some of them if there are many.
    fn unknown_stages(connection: &mut C) -> QueryResult<Vec<String>>;

    /// Runs the claim without reading its result. It fails if the entity's columns or the right to lock are missing.
    fn try_claim(connection: &mut C) -> QueryResult<()>;
}

#[diagnostic::do_not_recommend]
impl<Q: ReadFrom<C::Backend>, C: QueueConnection> ProbeOn<C> for Q {
    fn target() -> QueryResult<Target> {
        Q::SQL.target()
    }

    fn probe_due(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<Duration>> {
        let is_leased = TypeId::of::<Q::Mode>() == TypeId::of::<LeaseMode>();
        if Q::Queue::OPTIONS.exclusive && is_leased && Self::another_is_leased(connection, None)? {
            return Ok(None);
        }
        let probe = ProbeDue::new(Q::SQL, stages);
        Ok(load_first::<BigInt, i64, _>(connection, &probe)?.map(time_until))
    }

    fn oldest_due(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<Duration>> {
        let oldest = OldestDue::new(Q::SQL, stages);
        Ok(load_first::<BigInt, i64, _>(connection, &oldest)?.map(time_until))
    }

    fn probe_due_from(
        connection: &mut C,
        stages: Option<&[&'static str]>,
        floor: Instant,
    ) -> QueryResult<Option<Duration>> {
        let probe = ProbeDue::new(Q::SQL, stages).from(floor);
        Ok(load_first::<BigInt, i64, _>(connection, &probe)?.map(time_until))
    }

    fn head(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<RowKey<Q::Key>>> {
        let head = Q::load_keys(connection, &Head::new(Q::SQL, stages))?.pop();
        Ok(head.map(|(key, text)| row_key(Q::SQL, key, &text)))
    }

    fn another_is_leased(connection: &mut C, key: Option<&Q::Key>) -> QueryResult<bool> {
        let leased = load_first::<Text, String, _>(
            connection,
            &AnotherIsLeased::new(Q::SQL, key.map(|key| Q::row(key).is_key)),
        )?;
        Ok(leased.is_some())
    }

    fn undecodable(
        connection: &mut C,
        leased: Option<Instant>,
        limit: u32,
    ) -> QueryResult<(Vec<UndecodableRow>, bool)> {
        let texts = match leased {
            Some(began) => KeyTexts::leased(Q::SQL, began, limit),
            None => KeyTexts::due(Q::SQL, limit),
        };
        let rows = Q::load_key_texts(connection, &texts)?;
        let are_all = rows.len() < limit as usize;
        Ok((rows.into_iter().filter_map(UndecodableRow::of::<Q>).collect(), are_all))
    }

    fn unknown_stages(connection: &mut C) -> QueryResult<Vec<String>> {
        match Q::Queue::OPTIONS.stages {
            Some(_) => load::<Text, String, _>(connection, &UnknownStages::new(Q::SQL)),
            None => Ok(Vec::new()),
        }
    }

    fn try_claim(connection: &mut C) -> QueryResult<()> {
        // In a lane no row may overtake one that this try holds for a moment.
        if Q::Queue::OPTIONS.is_scheduled() {
            let none = Claim::new::<Q>().some(0, Vec::new());
            return execute(connection, &none).map(drop);
        }
        execute(connection, &Claim::new::<Q>()).map(drop)
    }
}
