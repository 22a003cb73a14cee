//! [`QueueOn`]: runs the statements of an entity's queue on a connection.

use std::any::TypeId;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::query_builder::QueryFragment;
use diesel::query_dsl::methods::{ExecuteDsl, LoadQuery};
use diesel::result::QueryResult;
use diesel::{RunQueryDsl, Selectable};

use super::archive::{CopyRows, RemoveKeys};
use super::by_key::{ClaimKey, ClaimKeys, DueKeys};
use super::change::{Change, hangs_on_content};
use super::claim::{Claim, ClaimSome, Claimed, ClaimedRow};
use super::claim_from::ClaimFrom;
use super::details::{DetailsRow, ReadDetails, claimed_within, with_details};
use super::finish::{Finish, LockLeased, ends_at_once, text_of};
use super::finish_block::FinishBlock;
use super::head::{AnotherIsLeased, Head};
use super::key_text::row_key;
use super::keys::ChangeKeys;
use super::lease_due::{LeaseDue, LeaseDueRow, LeasedAtOnce};
use super::on_finish;
use super::pass_on::PassOn;
use super::prefetch_rows::{LockVersion, PrefetchRows, RowVersion, VersionedRow};
use super::probe_due::{ProbeDue, ProbeDueFrom, time_until};
use super::recall::{Recall, state};
use super::recall_reservation::RecallReservation;
use super::remove::Remove;
use super::retake::Retake;
use super::scope::Scope;
use super::settle::{Settle, SettleMany};
use super::take::{Present, Take, Taken};
use super::turn::{due_time_alone_decides, first};
use super::undecodable::{KeyTextRow, KeyTexts, SetAside, UndecodableRow};
use super::unknown_stages::UnknownStages;
use crate::backend::{QueueBackend, QueueConnection, Target, Unfinished};
use crate::entity::{Entity, LeaseMode, QueueTable, target_of};
use crate::error::refused;
use crate::fault::planted;
use crate::row::{Fence, Instant, OnFinish, RowKey};

/// An entity whose queue can be worked on a connection of type `C`.
///
/// It is implemented for every entity on every [`QueueConnection`] whose backend can store the entity's columns; there
/// is nothing to implement by hand. Name it in the bounds of generic code.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be worked as a queue on `{C}`",
    note = "the entity derives `Queryable`, `Selectable` and `Queueable`, and every field's type can be read on this database"
)]
pub trait QueueOn<C: QueueConnection>: Entity + Selectable<C::Backend> + 'static {
    /// Returns where the queue's columns and index live.
    fn target() -> QueryResult<Target>;

    /// Looks, without a lock, how long it is until the next row is due, in one of these stages if the entity has any. `None`:
    /// none within [`ProbeDue::HORIZON`], or, where one is called at a time, a lease keeps the others from being claimed.
    fn probe_due(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<Duration>>;

    /// Looks in the same way, but not at rows that are due earlier than this. Only of an entity whose rows are claimed by their
    /// due times.
    fn probe_due_from(
        connection: &mut C,
        stages: Option<&[&'static str]>,
        floor: Instant,
    ) -> QueryResult<Option<Duration>>;

    /// Locks and reads the row that is due longest and that nobody holds, by one plain statement, which knows the stages and
    /// the floor of the scope only; `claim_one` decides whether it may be used. It belongs into a transaction.
    fn claim(connection: &mut C, scope: Scope<'_, Self::Key>) -> QueryResult<Option<Claimed<Self>>>;

    /// Reads the rows that a claim of several picks, and locks them if it says so.
    fn pick(connection: &mut C, claim: ClaimSome<Self, C::Backend>) -> QueryResult<Vec<ClaimedRow<Self>>>;

    /// Tells the scope what was claimed, and reads what else has to be known of the rows.
    fn claimed(
        connection: &mut C,
        scope: Scope<'_, Self::Key>,
        rows: Vec<ClaimedRow<Self>>,
    ) -> QueryResult<Vec<Claimed<Self>>>;

    /// Reads the keys of up to `limit` rows that are due longest, but not longer than since `floor`, without a lock, for
    /// [`claim_keys`](Self::claim_keys).
    fn due_keys(connection: &mut C, limit: u32, floor: Option<Instant>) -> QueryResult<Vec<RowKey<Self::Key>>>;

    /// Locks and reads up to `limit` of the rows with these keys, of those that are due and that nobody holds.
    fn claim_keys(
        connection: &mut C,
        keys: &[RowKey<Self::Key>],
        limit: u32,
        scope: Scope<'_, Self::Key>,
    ) -> QueryResult<Vec<Claimed<Self>>>;

    /// Whether the rows of this scope are claimed by keys that were read before: where the due time alone decides whose turn
    /// it is, and a claim along the index would keep others from settling their rows.
    fn is_claimed_by_key(scope: Scope<'_, Self::Key>) -> bool;

    /// Reads up to `limit` rows that are due longest and not earlier than `floor`, without a lock, each with its version.
    fn prefetch_rows(
        connection: &mut C,
        limit: u32,
        floor: Option<Instant>,
    ) -> QueryResult<Vec<(Claimed<Self>, RowVersion)>>;

    /// Writes the text that prepares [`LockVersion`], where rows are prefetched.
    fn lock_version() -> QueryResult<Option<String>>;

    /// Whether whole rows of this scope are prefetched: where the due time alone decides whose turn it is.
    fn prefetches_rows(scope: Scope<'_, Self::Key>) -> bool;

    /// Writes the lease on due rows without looking at them before, and returns how many rows that was.
    fn take(connection: &mut C, take: Take<Self, C::Backend>) -> QueryResult<usize>;

    /// Reads the rows that bear the token of such a write.
    fn taken(connection: &mut C, token: Instant) -> QueryResult<Vec<ClaimedRow<Self>>>;

    /// Reads what an attempt has to know of the rows beyond the five columns.
    fn with_details(connection: &mut C, rows: Vec<ClaimedRow<Self>>) -> QueryResult<Vec<Claimed<Self>>>;

    /// Leases up to `limit` rows that are due longest, by one statement that is its own transaction.
    fn lease_at_once(
        connection: &mut C,
        lease: Duration,
        limit: u32,
        scope: Scope<'_, Self::Key>,
    ) -> QueryResult<LeasedAtOnce<Self>>;

    /// Whether the rows of this scope are leased by one statement: where the due time alone decides whose turn it is, and nothing
    /// more has to be known of a row than a claim reads.
    fn is_leased_at_once(scope: Scope<'_, Self::Key>) -> bool;

    /// Reads the rows whose keys cannot be decoded, without a lock: among the first `limit` that a claim would find, or among
    /// those whose lease began then. Tells too whether those were all.
    fn undecodable(connection: &mut C, leased: Option<Instant>, limit: u32)
    -> QueryResult<(Vec<UndecodableRow>, bool)>;

    /// Changes such a row if it is still as it was found, and returns how many rows that was.
    ///
    /// # Errors
    ///
    /// Also when it were several: what tells one key from another has failed.
    fn set_aside(connection: &mut C, row: &UndecodableRow, change: &Change) -> QueryResult<usize>;

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

    /// Releases the sentinel of a message, settles its row and sets the next one's, where that can be one round trip: `None`
    /// elsewhere, and nothing is done. A row that is not as it was claimed is an error.
    fn pass_on(connection: &mut C, key: &Self::Key, fence: Fence, change: &Change) -> Option<QueryResult<()>>;

    /// Settles one row in another transaction than the claim's, where the row is no longer locked: it must still be due. Somebody
    /// may have run or stopped it meanwhile and left its status and tries as they were.
    fn settle_anew(connection: &mut C, key: &Self::Key, fence: Fence, change: &Change) -> QueryResult<usize>;

    /// Removes the row if it is still as it was claimed, and returns how many rows that was. One whose content has changed is
    /// made due instead.
    fn remove(connection: &mut C, key: &Self::Key, fence: Fence) -> QueryResult<usize>;

    /// Reads the row's state under its lock, waiting for whoever holds it.
    fn recall(connection: &mut C, key: &Self::Key) -> QueryResult<Option<Fence>>;

    /// Reads the text of the row's last failure in the same way: it may be the reservation of a group.
    fn recall_reservation(connection: &mut C, key: &Self::Key) -> QueryResult<Option<String>>;

    /// Locks and reads a row again that is still as it was claimed, due or not, waiting for whoever holds it.
    fn retake(connection: &mut C, key: &Self::Key, fence: Fence) -> QueryResult<Option<Claimed<Self>>>;

    /// The same, if the condition of its claim holds still.
    fn retake_if_claimable(connection: &mut C, key: &Self::Key, fence: Fence) -> QueryResult<Option<Claimed<Self>>>;

    /// Locks the row, waiting for whoever holds it, and tells whether it is exactly in this state.
    fn is_still(connection: &mut C, key: &Self::Key, fence: Fence) -> QueryResult<bool>;

    /// Reads the database's present.
    fn present(connection: &mut C) -> QueryResult<Instant>;

    /// Writes the text that prepares [`Finish`], where a message may end by it: `None` where more is to be done.
    fn finish() -> QueryResult<Option<String>>;

    /// Writes the texts that prepare [`LockLeased`] and [`Finish::leased`], where an answer may be written by them.
    fn finish_lease() -> QueryResult<Option<(String, String)>>;

    /// Releases the handler's savepoint, settles a success and commits, in one statement.
    fn finish_in_a_block(connection: &mut C, key: &Self::Key, fence: Fence, tries: i32) -> Result<(), Unfinished>;

    /// Reads the row's state under its lock, unless somebody holds that.
    fn recall_unless_locked(connection: &mut C, key: &Self::Key) -> QueryResult<Option<Fence>>;

    /// Takes the lock with which one message is worked at a time, where the entity asks for that. `false`: another session
    /// has it. It belongs into a transaction, and ends with it or with [`end_exclusion`](Self::end_exclusion).
    fn exclude(connection: &mut C) -> QueryResult<bool>;

    /// The session that has the lock of an exclusive queue, if it is another one.
    fn exclusion_holder(connection: &mut C) -> QueryResult<Option<String>>;

    /// Gives the lock back after the end of the transaction.
    fn end_exclusion(connection: &mut C) -> QueryResult<()>;

    /// Reads, without a lock, the key of the first pending row in the order of an entity that works one message at a time.
    fn head(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<RowKey<Self::Key>>>;

    /// Whether a row is under a lease that is not the one with this key.
    fn another_is_leased(connection: &mut C, key: Option<&Self::Key>) -> QueryResult<bool>;
}

impl<Q, C> QueueOn<C> for Q
where
    C: QueueConnection,
    Q: Entity + Selectable<C::Backend> + 'static,
    <Q::Queue as QueueTable>::Table: QueryFragment<C::Backend>,
    Q::KeyColumns: QueryFragment<C::Backend>,
    Claim<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>> + ExecuteDsl<C>,
    ClaimSome<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>>,
    ClaimKey<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>>,
    ClaimKeys<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>>,
    DueKeys<Q>: for<'q> LoadQuery<'q, C, (Q::Key, String)>,
    Present: for<'q> LoadQuery<'q, C, Option<Instant>>,
    Take<Q, C::Backend>: ExecuteDsl<C>,
    Taken<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>>,
    ClaimFrom<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>>,
    PrefetchRows<Q, C::Backend>: for<'q> LoadQuery<'q, C, VersionedRow<Q>>,
    LeaseDue<Q, C::Backend>: for<'q> LoadQuery<'q, C, LeaseDueRow<Q>>,
    ProbeDue<Q, C::Backend>: for<'q> LoadQuery<'q, C, i64>,
    ProbeDueFrom<Q, C::Backend>: for<'q> LoadQuery<'q, C, i64>,
    Head<Q, C::Backend>: for<'q> LoadQuery<'q, C, (Q::Key, String)>,
    AnotherIsLeased<Q>: for<'q> LoadQuery<'q, C, String>,
    Recall<Q>: for<'q> LoadQuery<'q, C, (String, i32)>,
    RecallReservation<Q>: for<'q> LoadQuery<'q, C, Option<String>>,
    ReadDetails<Q>: for<'q> LoadQuery<'q, C, DetailsRow>,
    UnknownStages<Q>: for<'q> LoadQuery<'q, C, String>,
    KeyTexts<Q, C::Backend>: for<'q> LoadQuery<'q, C, KeyTextRow<Q>>,
    for<'a> SetAside<'a, Q>: ExecuteDsl<C>,
    Retake<Q, C::Backend>: for<'q> LoadQuery<'q, C, ClaimedRow<Q>>,
    FinishBlock<Q>: ExecuteDsl<C>,
    for<'a> Settle<'a, Q>: ExecuteDsl<C>,
    for<'a> SettleMany<'a, Q>: ExecuteDsl<C>,
    for<'a> PassOn<'a, Q>: ExecuteDsl<C>,
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
        target_of::<Q, _>(&C::Backend::default())
    }

    fn probe_due(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<Duration>> {
        let is_leased = TypeId::of::<Q::Mode>() == TypeId::of::<LeaseMode>();
        if Q::Queue::OPTIONS.exclusive && is_leased && Self::another_is_leased(connection, None)? {
            return Ok(None);
        }
        Ok(first(ProbeDue::<Q, C::Backend>::new().in_stages(stages).load(connection)?).map(time_until))
    }

    fn probe_due_from(
        connection: &mut C,
        stages: Option<&[&'static str]>,
        floor: Instant,
    ) -> QueryResult<Option<Duration>> {
        Ok(first(ProbeDue::<Q, C::Backend>::new().in_stages(stages).from(floor).load(connection)?).map(time_until))
    }

    fn claim(connection: &mut C, scope: Scope<'_, Q::Key>) -> QueryResult<Option<Claimed<Q>>> {
        let plain = Claim::<Q, C::Backend>::new().in_stages(scope.stages);
        let rows: Vec<ClaimedRow<Q>> = match scope.floor() {
            None => plain.load(connection)?,
            Some(floor) => plain.from(floor).load(connection)?,
        };
        Ok(claimed_within(connection, scope, rows)?.pop())
    }

    fn pick(connection: &mut C, claim: ClaimSome<Q, C::Backend>) -> QueryResult<Vec<ClaimedRow<Q>>> {
        claim.load(connection)
    }

    fn claimed(connection: &mut C, scope: Scope<'_, Q::Key>, rows: Vec<ClaimedRow<Q>>) -> QueryResult<Vec<Claimed<Q>>> {
        claimed_within(connection, scope, rows)
    }

    fn due_keys(connection: &mut C, limit: u32, floor: Option<Instant>) -> QueryResult<Vec<RowKey<Q::Key>>> {
        let keys: Vec<(Q::Key, String)> = DueKeys::<Q>::new(limit).not_below(floor).load(connection)?;
        Ok(keys.into_iter().map(|(key, text)| row_key::<Q, C::Backend>(key, &text)).collect())
    }

    fn claim_keys(
        connection: &mut C,
        keys: &[RowKey<Q::Key>],
        limit: u32,
        scope: Scope<'_, Q::Key>,
    ) -> QueryResult<Vec<Claimed<Q>>> {
        let rows: Vec<ClaimedRow<Q>> = match keys {
            [key] => ClaimKey::<Q, C::Backend>::new(key).load(connection)?,
            keys => ClaimKeys::<Q, C::Backend>::new(RowKey::values(keys)).at_most(limit).load(connection)?,
        };
        claimed_within(connection, scope, rows)
    }

    fn is_claimed_by_key(scope: Scope<'_, Q::Key>) -> bool {
        <C::Backend as QueueBackend>::PREFETCHES_KEYS && due_time_alone_decides::<Q>(scope)
    }

    fn prefetch_rows(
        connection: &mut C,
        limit: u32,
        floor: Option<Instant>,
    ) -> QueryResult<Vec<(Claimed<Q>, RowVersion)>> {
        let rows: Vec<VersionedRow<Q>> = PrefetchRows::<Q, C::Backend>::new(limit, floor).load(connection)?;
        let versioned =
            |(row, version): VersionedRow<Q>| Some((Claimed::read::<C::Backend>(row), RowVersion::read(&version)?));
        Ok(rows.into_iter().filter_map(versioned).collect())
    }

    fn lock_version() -> QueryResult<Option<String>> {
        let is_read = Self::prefetches_rows(Scope::ALL) && ends_at_once::<Q, C>();
        is_read.then(|| text_of::<_, C>(&LockVersion::<Q>::new())).transpose()
    }

    fn prefetches_rows(scope: Scope<'_, Q::Key>) -> bool {
        <C::Backend as QueueBackend>::ROW_VERSION.is_some()
            && Q::Queue::OPTIONS.stages.is_none()
            && !Q::Queue::OPTIONS.needs_details()
            && Q::IS_ITS_ROW
            && due_time_alone_decides::<Q>(scope)
    }

    fn take(connection: &mut C, take: Take<Q, C::Backend>) -> QueryResult<usize> {
        ExecuteDsl::execute(take, connection)
    }

    fn taken(connection: &mut C, token: Instant) -> QueryResult<Vec<ClaimedRow<Q>>> {
        Taken::<Q, C::Backend>::new(token).load(connection)
    }

    fn with_details(connection: &mut C, rows: Vec<ClaimedRow<Q>>) -> QueryResult<Vec<Claimed<Q>>> {
        with_details(connection, rows)
    }

    fn lease_at_once(
        connection: &mut C,
        lease: Duration,
        limit: u32,
        scope: Scope<'_, Q::Key>,
    ) -> QueryResult<LeasedAtOnce<Q>> {
        let due = Claim::<Q, C::Backend>::new().some(limit, RowKey::values(scope.except)).not_below(scope.floor());
        let leased: Vec<LeaseDueRow<Q>> = due.leased(lease).load(connection)?;
        let (mut rows, mut began, mut undecodable) = (Vec::new(), Vec::new(), Vec::new());
        for ((key, text, status, try_count, rest), began_at) in leased {
            match key.ok() {
                Some((key,)) => {
                    rows.push((key, text, status, try_count, rest));
                    began.push(began_at);
                }
                None => undecodable.extend(began_at),
            }
        }
        let rows = claimed_within(connection, scope, rows)?.into_iter().zip(began).collect();
        Ok(LeasedAtOnce { rows, undecodable })
    }

    fn undecodable(
        connection: &mut C,
        leased: Option<Instant>,
        limit: u32,
    ) -> QueryResult<(Vec<UndecodableRow>, bool)> {
        let texts = match leased {
            Some(began) => KeyTexts::<Q, C::Backend>::leased(began, limit),
            None => KeyTexts::<Q, C::Backend>::due(limit),
        };
        let rows: Vec<KeyTextRow<Q>> = texts.load(connection)?;
        let are_all = rows.len() < limit as usize;
        Ok((rows.into_iter().filter_map(UndecodableRow::of::<Q>).collect(), are_all))
    }

    fn set_aside(connection: &mut C, row: &UndecodableRow, change: &Change) -> QueryResult<usize> {
        match ExecuteDsl::execute(SetAside::<Q>::new(row, change), connection)? {
            rows @ (0 | 1) => Ok(rows),
            rows => Err(refused(format!("{rows} rows have the key {}", row.key::<C::Backend>()))),
        }
    }

    fn is_leased_at_once(scope: Scope<'_, Q::Key>) -> bool {
        <C::Backend as QueueBackend>::LEASES_AT_ONCE
            && !Q::Queue::OPTIONS.needs_details()
            && due_time_alone_decides::<Q>(scope)
            && !cfg!(queueable_planted)
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
        on_finish::settle::<Q, C>(connection, &[(key, fence)], change, false)
    }

    fn settle_many(connection: &mut C, rows: &[(&Q::Key, Fence)], change: &Change) -> QueryResult<usize> {
        on_finish::settle::<Q, C>(connection, rows, change, false)
    }

    fn pass_on(connection: &mut C, key: &Q::Key, fence: Fence, change: &Change) -> Option<QueryResult<()>> {
        let is_one_update = change.on_finish(&Q::Queue::OPTIONS) == OnFinish::Keep && !hangs_on_content(change, fence);
        if !is_one_update || cfg!(queueable_planted) || !C::has_compounds(None) {
            return None;
        }
        match ExecuteDsl::execute(PassOn::<Q>::new(key, fence, change), connection) {
            // It was not understood, so nothing of it was done.
            Err(error) if !C::has_compounds(Some(&error)) => None,
            passed => Some(passed.map(drop)),
        }
    }

    fn settle_anew(connection: &mut C, key: &Q::Key, fence: Fence, change: &Change) -> QueryResult<usize> {
        on_finish::settle::<Q, C>(connection, &[(key, fence)], change, true)
    }

    fn remove(connection: &mut C, key: &Q::Key, fence: Fence) -> QueryResult<usize> {
        on_finish::remove::<Q, C>(connection, key, fence)
    }

    fn recall(connection: &mut C, key: &Q::Key) -> QueryResult<Option<Fence>> {
        Ok(first(Recall::<Q>::new(key).load(connection)?).and_then(state))
    }

    fn recall_reservation(connection: &mut C, key: &Q::Key) -> QueryResult<Option<String>> {
        Ok(first(RecallReservation::<Q>::new(key).load(connection)?).flatten())
    }

    fn retake(connection: &mut C, key: &Q::Key, fence: Fence) -> QueryResult<Option<Claimed<Q>>> {
        let rows: Vec<ClaimedRow<Q>> = Retake::<Q, C::Backend>::new(key, fence).load(connection)?;
        Ok(with_details(connection, rows)?.pop())
    }

    fn retake_if_claimable(connection: &mut C, key: &Q::Key, fence: Fence) -> QueryResult<Option<Claimed<Q>>> {
        let rows: Vec<ClaimedRow<Q>> =
            Retake::<Q, C::Backend>::new(key, fence).if_condition_holds().load(connection)?;
        Ok(with_details(connection, rows)?.pop())
    }

    fn is_still(connection: &mut C, key: &Q::Key, fence: Fence) -> QueryResult<bool> {
        let row: Option<(String, i32)> = first(Recall::<Q>::new(key).in_state(fence).load(connection)?);
        Ok(row.is_some() || planted("a stale owner writes"))
    }

    fn present(connection: &mut C) -> QueryResult<Instant> {
        let present: Option<Instant> = first(Present.load(connection)?).flatten();
        present.ok_or_else(|| refused("the database told no time".to_owned()))
    }

    fn finish() -> QueryResult<Option<String>> {
        ends_at_once::<Q, C>().then(|| text_of::<_, C>(&Finish::<Q>::new())).transpose()
    }

    fn finish_lease() -> QueryResult<Option<(String, String)>> {
        let texts = || Ok((text_of::<_, C>(&LockLeased::<Q>::new())?, text_of::<_, C>(&Finish::<Q>::new().leased())?));
        let by_text = ends_at_once::<Q, C>() && !<C::Backend as QueueBackend>::FINISHES_IN_A_BLOCK;
        by_text.then(texts).transpose()
    }

    fn finish_in_a_block(connection: &mut C, key: &Q::Key, fence: Fence, tries: i32) -> Result<(), Unfinished> {
        let finished = ExecuteDsl::execute(FinishBlock::<Q>::new(key, fence, tries), connection);
        finished.map(drop).map_err(|error| C::unfinished(error, FinishBlock::<Q>::NOT_ONE_ROW))
    }

    fn recall_unless_locked(connection: &mut C, key: &Q::Key) -> QueryResult<Option<Fence>> {
        Ok(first(Recall::<Q>::new(key).unless_locked().load(connection)?).and_then(state))
    }

    fn exclude(connection: &mut C) -> QueryResult<bool> {
        Ok(!Q::Queue::OPTIONS.exclusive || connection.try_exclude(&Self::target()?)?)
    }

    fn exclusion_holder(connection: &mut C) -> QueryResult<Option<String>> {
        if Q::Queue::OPTIONS.exclusive { connection.exclusion_holder(&Self::target()?) } else { Ok(None) }
    }

    fn end_exclusion(connection: &mut C) -> QueryResult<()> {
        if Q::Queue::OPTIONS.exclusive { connection.end_exclusion(&Self::target()?) } else { Ok(()) }
    }

    fn head(connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<Option<RowKey<Q::Key>>> {
        let head: Option<(Q::Key, String)> = first(Head::<Q, C::Backend>::new().in_stages(stages).load(connection)?);
        Ok(head.map(|(key, text)| row_key::<Q, C::Backend>(key, &text)))
    }

    fn another_is_leased(connection: &mut C, key: Option<&Q::Key>) -> QueryResult<bool> {
        let leased: Option<String> = first(AnotherIsLeased::<Q>::new(key).load(connection)?);
        Ok(leased.is_some())
    }
}
