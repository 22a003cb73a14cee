//! The queue's statements, one file each, and `QueueOn`, which runs them.
//!
//! Every statement is a query node of our own, generic over the entity and the backend, written with identifiers and
//! binds and never with text around a value. Their SQL per backend is a snapshot in the tests.

mod archive;
mod backlog;
mod change;
mod claim;
mod condition;
mod details;
mod error_texts;
mod fate;
mod head;
mod inspect;
mod keys;
mod look;
mod mark;
mod newer;
mod priority;
mod recall;
mod remove;
mod retake;
mod sample;
mod scope;
mod select;
mod settle;
mod split;
mod statistics;
mod take;
mod turn;
mod unknown_stages;
mod walk;

use std::time::Duration;

use chrono::TimeDelta;
use diesel::connection::SimpleConnection;
use diesel::query_builder::QueryFragment;
use diesel::query_dsl::methods::{ExecuteDsl, LoadQuery};
use diesel::result::{Error as DieselError, QueryResult};
use diesel::{RunQueryDsl, Selectable};

pub use self::archive::{Archive, CopyRows, RemoveKeys};
pub use self::backlog::{CountByValue, CountPending, CountRow, PendingRow};
pub use self::change::{Change, ErrorText, Next};
pub(crate) use self::claim::captured_on;
pub use self::claim::{Captured, Claim, ClaimSome, Claimed, ClaimedRow, Fence};
pub(crate) use self::condition::STOPPED;
pub use self::condition::{And, Condition, IfAny, StateCondition};
pub use self::details::{DetailsRow, ReadDetails};
pub use self::error_texts::{ErrorTextRow, ErrorTexts, TextsAfter, WithTexts};
pub use self::head::{Head, Leased};
pub use self::inspect::{Inspect, InspectedRow, IsArchived, IsSame};
pub use self::keys::{ChangeKeys, CountAmong, Keys};
pub use self::look::Look;
pub use self::mark::RecallMark;
pub use self::newer::EnqueueIfNewer;
pub use self::priority::SetPriority;
pub use self::recall::Recall;
pub use self::remove::{Remove, RemoveAll};
pub use self::retake::Retake;
pub use self::sample::{Sample, SampleRow};
pub use self::scope::Scope;
pub use self::select::{Count, CountByStatus, Load};
pub use self::settle::{ChangeAll, Settle, SettleMany};
pub use self::statistics::{CountFinished, FinishedRow};
pub use self::take::{LEASE_EXPIRED, Present, Take, Taken};
use self::turn::{aged_first, claim_in_turn, is_plain};
pub use self::unknown_stages::UnknownStages;
use crate::backend::{QueueConnection, Target};
use crate::details::Details;
use crate::entity::{QueueTable, Queueable};
use crate::instant::Instant;
use crate::planted::planted;

/// An entity whose queue can be worked on a connection of type `C`.
///
/// It is implemented for every entity on every [`QueueConnection`] whose backend can store the entity's columns; there
/// is nothing to implement by hand. Name it in the bounds of generic code.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be worked as a queue on `{C}`",
    note = "the entity derives `Queryable`, `Selectable` and `Queueable`, and every field's type can be read on this database"
)]
pub trait QueueOn<C: QueueConnection>: Queueable + 'static {
    /// Returns where the queue's columns and index live.
    fn target() -> QueryResult<Target>;

    /// Looks, without a lock, how long it is until the next row is due, in one of these stages if the entity has any. `None`:
    /// none within [`Look::HORIZON`].
    fn look(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<Duration>>;

    /// Locks and reads the row that is due longest and that nobody holds, if it is in the scope. It
    /// belongs into a transaction.
    fn claim(connection: &mut C, scope: Scope<'_, Self::Key>) -> QueryResult<Option<Claimed<Self>>>;

    /// Locks and reads up to `limit` rows that are due longest, in the same way.
    fn claim_some(connection: &mut C, limit: u32, scope: Scope<'_, Self::Key>) -> QueryResult<Vec<Claimed<Self>>>;

    /// Reads up to `limit` rows that are due longest, without a lock.
    fn glance(connection: &mut C, limit: u32, scope: Scope<'_, Self::Key>) -> QueryResult<Vec<Claimed<Self>>>;

    /// Takes up to `limit` rows that are due longest under a lease, without a claim that passes over rows that others hold.
    /// The rows are returned as they are now. `None`: another claim drew the same token, and the transaction must be
    /// rolled back. The time is when their attempts began.
    fn take(
        connection: &mut C,
        lease: Duration,
        limit: u32,
        scope: Scope<'_, Self::Key>,
    ) -> QueryResult<Option<(Instant, Vec<Claimed<Self>>)>>;

    /// Reads the stages of pending rows that the entity does not know, some of them if they are many.
    fn unknown_stages(connection: &mut C) -> QueryResult<Vec<String>>;

    /// Runs the claim without reading its answer: it fails where the entity's columns or the right to lock are missing.
    fn try_claim(connection: &mut C) -> QueryResult<()>;

    /// Changes the row if it is still as it was claimed, and returns how many rows that was. Where the change is
    /// [`of_content`](Change::of_content) and that has changed, the row is made due instead. A row whose work has ended leaves
    /// the table if the entity says so, here and wherever else a row is settled.
    fn settle(connection: &mut C, key: &Self::Key, fence: Fence, change: &Change) -> QueryResult<usize>;

    /// Changes those of the rows that are still as they were claimed, and returns how many rows that was.
    fn settle_many(connection: &mut C, rows: &[(&Self::Key, Fence)], change: &Change) -> QueryResult<usize>;

    /// Settles one row in another transaction than the claim's, where the row is no longer locked: it must still be due. Somebody
    /// may have run or stopped it meanwhile and left its status and tries as they were.
    fn settle_anew(connection: &mut C, key: &Self::Key, fence: Fence, change: &Change) -> QueryResult<usize>;

    /// Removes the row if it is still as it was claimed, and returns how many rows that was. One whose content has changed is
    /// made due instead.
    fn remove(connection: &mut C, key: &Self::Key, fence: Fence) -> QueryResult<usize>;

    /// Reads the row's state under its lock, waiting for whoever holds it.
    fn recall(connection: &mut C, key: &Self::Key) -> QueryResult<Option<Fence>>;

    /// Reads the text of the row's last failure in the same way: it may be the mark of a group.
    fn recall_mark(connection: &mut C, key: &Self::Key) -> QueryResult<Option<String>>;

    /// Locks and reads a row again that is still as it was claimed, due or not, waiting for whoever holds it.
    fn retake(connection: &mut C, key: &Self::Key, fence: Fence) -> QueryResult<Option<Claimed<Self>>>;

    /// Locks the row, waiting for whoever holds it, and tells whether it is exactly in this state.
    fn is_still(connection: &mut C, key: &Self::Key, fence: Fence) -> QueryResult<bool>;

    /// Reads the database's present.
    fn present(connection: &mut C) -> QueryResult<Instant>;

    /// Reads the row's state under its lock, unless somebody holds that.
    fn recall_unless_locked(connection: &mut C, key: &Self::Key) -> QueryResult<Option<Fence>>;

    /// Takes the lock with which one message is worked at a time, where the entity asks for that. `false`: another session
    /// has it. It belongs into a transaction, and ends with it or with [`end_exclusion`](Self::end_exclusion).
    fn exclude(connection: &mut C) -> QueryResult<bool>;

    /// Gives the lock back after the end of the transaction.
    fn end_exclusion(connection: &mut C) -> QueryResult<()>;

    /// Reads, without a lock, the key of the first pending row in the order of an entity that works one message at a time.
    fn head(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<Self::Key>>;

    /// Whether a row is under a lease that is not the one with this key.
    fn another_is_leased(connection: &mut C, key: Option<&Self::Key>) -> QueryResult<bool>;
}

impl<Q, C> QueueOn<C> for Q
where
    C: QueueConnection,
    Q: Queueable + Selectable<C::Backend> + 'static,
    <Q::Queue as QueueTable>::Table: QueryFragment<C::Backend>,
    Q::KeyColumns: QueryFragment<C::Backend>,
    Claim<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>> + ExecuteDsl<C>,
    ClaimSome<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>>,
    Present: for<'q> LoadQuery<'q, C, Option<Instant>>,
    Take<Q, C::Backend>: ExecuteDsl<C>,
    Taken<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>>,
    Look<Q, C::Backend>: for<'q> LoadQuery<'q, C, i64>,
    Head<Q, C::Backend>: for<'q> LoadQuery<'q, C, Q::Key>,
    Leased<Q>: for<'q> LoadQuery<'q, C, String>,
    Recall<Q>: for<'q> LoadQuery<'q, C, (String, i32)>,
    RecallMark<Q>: for<'q> LoadQuery<'q, C, Option<String>>,
    ReadDetails<Q>: for<'q> LoadQuery<'q, C, DetailsRow>,
    UnknownStages<Q>: for<'q> LoadQuery<'q, C, String>,
    Retake<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>>,
    for<'a> Settle<'a, Q>: ExecuteDsl<C>,
    for<'a> SettleMany<'a, Q>: ExecuteDsl<C>,
    for<'a> ChangeKeys<'a, Q>: ExecuteDsl<C>,
    for<'a> CopyRows<'a, Q>: ExecuteDsl<C>,
    for<'a> RemoveKeys<'a, Q>: ExecuteDsl<C>,
    Remove<Q>: ExecuteDsl<C>,
    Q::KeyColumns: QueryFragment<C::Backend>,
    C::Backend: Default,
    <C::Backend as diesel::backend::Backend>::QueryBuilder: Default,
    C: SimpleConnection,
{
    fn target() -> QueryResult<Target> {
        Target::of::<Q, _>(&C::Backend::default())
    }

    fn look(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<Duration>> {
        let microseconds: Option<i64> = first(Look::<Q, C::Backend>::new().in_stages(stages).load(connection)?);
        Ok(microseconds.map(|microseconds| Duration::from_micros(microseconds.max(0).unsigned_abs())))
    }

    fn claim(connection: &mut C, scope: Scope<'_, Q::Key>) -> QueryResult<Option<Claimed<Q>>> {
        let rows: Vec<ClaimedRow<Q>> = match scope.except {
            [] if is_plain::<Q, C::Backend>(scope) => {
                Claim::<Q, C::Backend>::new().in_stages(scope.stages).load(connection)?
            }
            _ => claim_in_turn::<Q, C>(connection, true, 1, scope)?,
        };
        let claimed = with_details(connection, rows)?.pop();
        Ok(claimed.filter(|row| row.message.is_ok() || !planted("an undecodable row stops the claim")))
    }

    fn claim_some(connection: &mut C, limit: u32, scope: Scope<'_, Q::Key>) -> QueryResult<Vec<Claimed<Q>>> {
        let rows = claim_in_turn::<Q, C>(connection, true, limit, scope)?;
        with_details(connection, rows)
    }

    fn glance(connection: &mut C, limit: u32, scope: Scope<'_, Q::Key>) -> QueryResult<Vec<Claimed<Q>>> {
        let rows = claim_in_turn::<Q, C>(connection, false, limit, scope)?;
        with_details(connection, rows)
    }

    fn take(
        connection: &mut C,
        lease: Duration,
        limit: u32,
        scope: Scope<'_, Q::Key>,
    ) -> QueryResult<Option<(Instant, Vec<Claimed<Q>>)>> {
        let began = Self::present(connection)?;
        // A thousandth of a second is what SQLite's times are told apart by; a second is as good as a lease any longer.
        let spread = u64::try_from((lease / 4).min(Duration::from_secs(1)).as_millis().max(1)).unwrap_or(1);
        let random = TimeDelta::microseconds(fastrand::i64(0..1000))
            + TimeDelta::milliseconds(fastrand::u64(..spread).cast_signed());
        let lease = TimeDelta::from_std(lease).unwrap_or(TimeDelta::MAX);
        let token = began.checked_add_signed(lease + random).map(Instant::from).unwrap_or(began);
        let take = || Take::<Q, C::Backend>::new(began, token, limit, scope.except).in_stages(scope.stages);
        let mut taken = 0;
        if let Some(age) = aged_first::<Q>() {
            taken = ExecuteDsl::execute(take().aged(age), connection)?;
        }
        if taken == 0 {
            taken = ExecuteDsl::execute(take(), connection)?;
        }
        if taken == 0 {
            return Ok(Some((began, Vec::new())));
        }
        let rows: Vec<ClaimedRow<Q>> = Taken::<Q, C::Backend>::new(token).load(connection)?;
        if rows.len() != taken {
            return Ok(None);
        }
        Ok(Some((began, with_details(connection, rows)?)))
    }

    fn unknown_stages(connection: &mut C) -> QueryResult<Vec<String>> {
        match <Q::Queue as QueueTable>::OPTIONS.stages {
            Some(_) => UnknownStages::<Q>::new().load(connection),
            None => Ok(Vec::new()),
        }
    }

    fn try_claim(connection: &mut C) -> QueryResult<()> {
        ExecuteDsl::execute(Claim::<Q, C::Backend>::new(), connection).map(drop)
    }

    fn settle(connection: &mut C, key: &Q::Key, fence: Fence, change: &Change) -> QueryResult<usize> {
        fate::settle::<Q, C>(connection, &[(key, fence)], change, false)
    }

    fn settle_many(connection: &mut C, rows: &[(&Q::Key, Fence)], change: &Change) -> QueryResult<usize> {
        fate::settle::<Q, C>(connection, rows, change, false)
    }

    fn settle_anew(connection: &mut C, key: &Q::Key, fence: Fence, change: &Change) -> QueryResult<usize> {
        fate::settle::<Q, C>(connection, &[(key, fence)], change, true)
    }

    fn remove(connection: &mut C, key: &Q::Key, fence: Fence) -> QueryResult<usize> {
        let removed = ExecuteDsl::execute(Remove::<Q>::new(key, fence), connection)?;
        if removed > 0 || fence.change_count.is_none() {
            return Ok(removed);
        }
        let attempted = Change {
            attempted: true,
            error: ErrorText::Clear,
            unless_stopped: fence.began.is_some(),
            ..Change::default()
        };
        ExecuteDsl::execute(Settle::<Q>::new(key, fence, &attempted.after_new_content()), connection)
    }

    fn recall(connection: &mut C, key: &Q::Key) -> QueryResult<Option<Fence>> {
        Ok(first(Recall::<Q>::new(key).load(connection)?).and_then(state))
    }

    fn recall_mark(connection: &mut C, key: &Q::Key) -> QueryResult<Option<String>> {
        Ok(first(RecallMark::<Q>::new(key).load(connection)?).flatten())
    }

    fn retake(connection: &mut C, key: &Q::Key, fence: Fence) -> QueryResult<Option<Claimed<Q>>> {
        let rows: Vec<ClaimedRow<Q>> = Retake::<Q, C::Backend>::new(key, fence).load(connection)?;
        Ok(with_details(connection, rows)?.pop())
    }

    fn is_still(connection: &mut C, key: &Q::Key, fence: Fence) -> QueryResult<bool> {
        let row: Option<(String, i32)> = first(Recall::<Q>::new(key).in_state(fence).load(connection)?);
        Ok(row.is_some() || planted("a stale owner writes"))
    }

    fn present(connection: &mut C) -> QueryResult<Instant> {
        let present: Option<Instant> = first(Present.load(connection)?).flatten();
        present.ok_or_else(|| crate::backend::refused("the database told no time".to_owned()))
    }

    fn recall_unless_locked(connection: &mut C, key: &Q::Key) -> QueryResult<Option<Fence>> {
        Ok(first(Recall::<Q>::new(key).unless_locked().load(connection)?).and_then(state))
    }

    fn exclude(connection: &mut C) -> QueryResult<bool> {
        Ok(!Q::Queue::OPTIONS.exclusive || connection.try_exclude(&Self::target()?)?)
    }

    fn end_exclusion(connection: &mut C) -> QueryResult<()> {
        if Q::Queue::OPTIONS.exclusive { connection.end_exclusion(&Self::target()?) } else { Ok(()) }
    }

    fn head(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<Q::Key>> {
        Ok(first(Head::<Q, C::Backend>::new().in_stages(stages).load(connection)?))
    }

    fn another_is_leased(connection: &mut C, key: Option<&Q::Key>) -> QueryResult<bool> {
        let leased: Option<String> = first(Leased::<Q>::new(key).load(connection)?);
        Ok(leased.is_some())
    }
}

/// Whether a change that changed nothing may have found new content in the row.
pub(super) fn hangs_on_content(change: &Change, fence: Fence) -> bool {
    change.of_content && fence.change_count.is_some()
}

fn state((status, try_count): (String, i32)) -> Option<Fence> {
    Some(Fence::new(status.parse().ok()?, try_count))
}

/// Reads what an attempt has to know of claimed rows beyond the five columns, where the entity asks for more.
fn with_details<Q, C>(connection: &mut C, rows: Vec<ClaimedRow<Q>>) -> QueryResult<Vec<Claimed<Q>>>
where
    Q: Queueable,
    C: QueueConnection,
    ReadDetails<Q>: for<'q> LoadQuery<'q, C, DetailsRow>,
{
    let mut claimed: Vec<_> = rows.into_iter().map(Claimed::from).collect();
    if <Q::Queue as QueueTable>::OPTIONS.needs_details() {
        for row in &mut claimed {
            match ReadDetails::<Q>::new(&row.key).load(connection) {
                Ok(details) => {
                    row.details = first(details).map(Details::from).unwrap_or_default();
                    row.fence.change_count = row.details.change_count;
                }
                // As for the entity itself: a row that cannot be read fails, and holds up no other.
                Err(DieselError::DeserializationError(why)) => {
                    if row.message.is_ok() {
                        row.message = Err(why);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(claimed)
}

fn first<T>(rows: Vec<T>) -> Option<T> {
    rows.into_iter().next()
}
