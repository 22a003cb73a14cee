//! Why one row does not run now, or the first rows of a selection.

use std::any::TypeId;
use std::cmp::Reverse;
use std::time::Duration;

use chrono::DateTime;
use diesel::result::{Error as DieselError, QueryResult};
use diesel::sql_types::BigInt;

use super::explanation::{Explanation, Explanations, told_by_the_row};
use super::trial::{Tried, without_trace};
use crate::attempt::{is_refusal, nowhere};
use crate::backend::{AsQueueConnection, Loads, OwnTable, QueueConnection, TableName, load, load_first};
use crate::claim::Places;
use crate::control::{Paused, asked_of, name_of, runner_of, unserved};
use crate::entity::{Entity, LeaseMode, QueueTable, StoredIn};
use crate::error::Error;
use crate::queue::queue::{QueueRows, Selection};
use crate::queue::read::{BackendOf, ReadsRows};
use crate::row::{Lane, OnFinish, Options, RowKey, failure_text};
use crate::statement::{
    Change, Condition, InspectedRow, InspectedRowType, ListedRow, ListedRowType, Next, QueueOn, inspect,
    inspect_pending, is_archived, is_same, key_of, read_lane,
};

/// How many rows of a list are read.
const LISTED: usize = 1_000;

/// For how many values of the column by which rows take turns a list finds out whether there is a place. A guess: each takes some
/// statements.
const TURNS: usize = 50;

/// How many rows that wait for one turn are looked at one by one, until nothing is in the way of one. A guess.
const TRIED: usize = 10;

/// How many rows one statement locks: the text has a condition for each.
const LOCKED_AT_ONCE: usize = 100;

/// A connection on which the rows of an entity can be explained. It is implemented wherever Diesel can run the statements.
///
/// [`Queueable::explain`](crate::Queueable::explain) asks for it. The connection implements it, and not the entity: at a
/// call, the compiler does not know the connection's type at first. It leaves a bound on the connection alone until it
/// does; a bound on the entity takes it half a second.
#[diagnostic::on_unimplemented(
    message = "rows of `{Q}` cannot be explained on `{Self}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, and every field can be read \
            from it",
    note = "generic code names this bound: `C: Explains<Q>`"
)]
pub trait Explains<Q: Entity>: AsQueueConnection {
    #[doc(hidden)]
    fn explain_row_of(&mut self, key: &Q::Key) -> QueryResult<Explanation>;
    #[doc(hidden)]
    fn explain_rows_of(&mut self, rows: Condition<'_, BackendOf<Self>>) -> QueryResult<Explanations>;
}

#[diagnostic::do_not_recommend]
impl<Q, C> Explains<Q> for C
where
    C: AsQueueConnection<
        Connection: Loads<InspectedRowType, InspectedRow> + Loads<ListedRowType<Q>, ListedRow<<Q as Entity>::Key>>,
    >,
    Q: QueueOn<C::Connection>,
{
    fn explain_row_of(&mut self, key: &Q::Key) -> QueryResult<Explanation> {
        let (connection, key) = (self.as_queue_connection(), &RowKey::of(key.clone()));
        let inspect = inspect(Q::row(key));
        let Some(row) = load_first::<InspectedRowType, InspectedRow, _>(connection, &inspect)? else {
            return Ok(match archive_of::<Q, _>(connection, key)? {
                Some(table) => Explanation::Archived { table: table.to_owned() },
                None => Explanation::NoSuchRow,
            });
        };
        let stage = row.5.as_ref().map(|text| text.0.clone());
        if let Some(reason) = told_by_the_row::<Q>(row) {
            return named::<Q, _>(connection, reason, key);
        }
        let (pauses, limits) = asked_of(connection, &name_of(Q::SQL)?)?;
        let has_lanes = pauses.iter().any(|pause| pause.lane.is_some());
        let lane = if has_lanes { Q::QUEUE.lane_of(connection, key)? } else { None };
        if let Some(pause) = pause_of(&pauses, Q::SQL.options, stage.as_deref(), lane.as_ref()) {
            return Ok(Explanation::Paused { pause: pause.clone() });
        }
        if is_behind_head::<Q, _>(connection, key)? {
            return Ok(Explanation::BehindHead);
        }
        let found = hindrance::<Q, _>(connection, key)?;
        if found == Explanation::Due
            && let Some(behind) = behind_retry::<Q, _>(connection, key)?.or(full_lane::<Q, _>(
                connection,
                key,
                limits.and_then(|limits| limits.at_most),
            )?)
        {
            return Ok(behind);
        }
        let holder = if found == Explanation::Due { Q::QUEUE.exclusion_holder(connection)? } else { None };
        named::<Q, _>(connection, holder.map_or(found, |session| Explanation::TurnHeld { session }), key)
    }

    fn explain_rows_of(&mut self, rows: Condition<'_, BackendOf<C>>) -> QueryResult<Explanations> {
        let connection = self.as_queue_connection();
        let inspect = inspect_pending(rows, LISTED + 1);
        let listed = load::<ListedRowType<Q>, ListedRow<Q::Key>, _>(connection, &inspect)?;
        let (pauses, _) = asked_of(connection, &name_of(Q::SQL)?)?;
        let unserved = unserved(connection, &name_of(Q::SQL)?)?;
        let mut found = Explanations { more: listed.len() > LISTED, unserved, ..Explanations::default() };
        let mut due = Vec::new();
        for (row, stored, lane, key) in listed.into_iter().take(LISTED) {
            let (stage, key) =
                (row.5.as_ref().map(|text| text.0.clone()), key.0.map(|(key,)| key_of(Q::SQL, key, &stored)));
            let lane = lane.0.ok().and_then(|(lane,)| lane);
            let pause = || {
                let lane = read_lane(Q::SQL, lane.clone());
                Some(Explanation::Paused {
                    pause: pause_of(&pauses, Q::SQL.options, stage.as_deref(), Some(&lane))?.clone(),
                })
            };
            let reason = told_by_the_row::<Q>(row).or_else(pause);
            match (reason, key) {
                (None, Ok(key)) => due.push((lane, key)),
                // The worker that claims a row without a readable key fails it.
                (reason, key) => {
                    let example = key.map_or(stored, |key| key.to_string());
                    found.add(reason.unwrap_or(Explanation::Due), 1, &example);
                }
            }
        }
        let keys: Vec<_> = due.iter().map(|(_, key)| key).collect();
        let is_held = held_of::<Q, _>(connection, &keys)?;
        let mut turns: Vec<(_, Vec<_>)> = Vec::new();
        for ((lane, key), is_held) in due.into_iter().zip(is_held) {
            match turns.iter_mut().find(|(other, _)| *other == lane) {
                _ if is_held => found.add(Explanation::Held { since: None, by: None }, 1, key.text()),
                Some((_, keys)) => keys.push(key),
                None => turns.push((lane, vec![key])),
            }
        }
        found.more |= turns.len() > TURNS;
        for (_, keys) in turns.into_iter().take(TURNS) {
            explain_turn::<Q, C>(self, &keys, &mut found)?;
        }
        found.reasons.sort_by_key(|reason| Reverse(reason.rows));
        Ok(found)
    }
}

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Explains why nothing happens: why the pending rows do not run now, each reason with the number of rows and one of them as
    /// an example. It reads at most 1,000 rows, those first whose next attempt is the soonest.
    ///
    /// Each row has the first reason that applies, as of [`explain`](crate::Queueable::explain). Rows for which only their turn
    /// decides, by `serial_by`, `fair_by` or a limit, are explained by the first one of the same value, for at most 50 values; so
    /// are rows that the database refuses to change, of which it tries ten of each value. It takes the locks of the due rows for
    /// a moment, if no other session has them, under the same conditions.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64, company_id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// diesel::insert_into(payments::table)
    ///     .values((payments::company_id.eq(3345), Payment::due_now()))
    ///     .execute(&mut connection)?;
    /// let explanations = Payment::queue().filter(payments::company_id.eq(3345)).explain(&mut connection)?;
    /// assert_eq!(explanations.to_string(), "rows  example  why\n   1  1        due\n");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn explain<C>(&self, connection: &mut C) -> Result<Explanations, Error>
    where
        C: ReadsRows<Q, F> + Explains<Q>,
    {
        Ok(connection.explain_rows_of(C::condition(self, &self.terms.states))?)
    }
}

/// Names the process that runs the row, if one has said so.
fn named<Q, C>(connection: &mut C, reason: Explanation, key: &RowKey<Q::Key>) -> QueryResult<Explanation>
where
    C: QueueConnection + Loads<ListedRowType<Q>, ListedRow<Q::Key>>,
    Q: QueueOn<C>,
{
    let Explanation::Held { since, .. } = reason else { return Ok(reason) };
    if !connection.may_read_own(OwnTable::Pollers)? {
        return Ok(Explanation::Held { since, by: None });
    }
    // A caller names a row by its value, and the database has the text by which the process knows it.
    let of_key = [Q::row(key).is_key];
    let listed = inspect_pending(Condition::of_keys(Q::SQL, &of_key), 1);
    let listed = load_first::<ListedRowType<Q>, ListedRow<Q::Key>, _>(connection, &listed)?;
    let key = listed.and_then(|(_, stored, _, key)| Some(key_of(Q::SQL, key.0.ok()?.0, &stored)));
    let by = key.map_or(Ok(None), |key| runner_of(connection, &name_of(Q::SQL)?, key.text()))?;
    Ok(Explanation::Held { since, by })
}

/// Explains due rows that wait for the same turn, by the first of them.
fn explain_turn<Q: Entity, C: Explains<Q>>(
    connection: &mut C,
    keys: &[RowKey<Q::Key>],
    found: &mut Explanations,
) -> QueryResult<()> {
    let is_exclusive = <Q::Queue as QueueTable>::OPTIONS.exclusive;
    for (place, key) in keys.iter().enumerate() {
        let (left, text) = (keys.len() - place, key.text());
        let reason = if place < TRIED { connection.explain_row_of(key)? } else { Explanation::Due };
        if reason.is_of_a_turn() {
            found.add(reason, left, text);
            return Ok(());
        }
        let (is_due, next) = (reason == Explanation::Due, keys.get(place + 1));
        let alike = if is_due && !is_exclusive { left } else { 1 };
        found.add(reason, alike, text);
        if let (true, Some(next)) = (is_due && is_exclusive, next) {
            found.add(Explanation::BehindHead, left - 1, next.text());
        }
        if is_due {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the pause of the whole queue, or else of this stage or this lane.
fn pause_of<'p>(
    pauses: &'p [Paused],
    options: &Options,
    stage: Option<&str>,
    lane: Option<&Lane>,
) -> Option<&'p Paused> {
    let lane = lane.and_then(|lane| Some(format!("{} {}", options.lanes?.column, lane.pause_name()?)));
    let is_of = |pause: &&Paused| match (&pause.stage, &pause.lane) {
        (None, None) => true,
        (Some(of), _) => stage == Some(of),
        (None, of) => lane == *of,
    };
    // The whole queue comes first, because its scope is empty.
    pauses.iter().find(is_of)
}

/// Tells whether the entity is exclusive and another row comes first: another is the first pending one, or a worker
/// holds another under a lease.
fn is_behind_head<Q: QueueOn<C>, C: QueueConnection>(connection: &mut C, key: &RowKey<Q::Key>) -> QueryResult<bool> {
    let options = <Q::Queue as QueueTable>::OPTIONS;
    if !options.exclusive {
        return Ok(false);
    }
    let head = match Q::QUEUE.head(connection, options.stages.map(|stages| stages.names)) {
        Ok(Some(head)) => head,
        Ok(None) => return Ok(false),
        // It is another row, because this one's key can be decoded.
        Err(DieselError::DeserializationError(_)) => return Ok(true),
        Err(error) => return Err(error),
    };
    let same = load::<BigInt, i64, _>(connection, &is_same(Q::row(key), Q::row(&head).is_key))?;
    Ok(same.iter().sum::<i64>() == 0 || Q::QUEUE.another_is_leased(connection, Some(key))?)
}

/// Tells whether another row of a strictly serial lane has failed and is retried first.
fn behind_retry<Q: QueueOn<C>, C: QueueConnection>(
    connection: &mut C,
    key: &RowKey<Q::Key>,
) -> QueryResult<Option<Explanation>> {
    let is_strict = <Q::Queue as QueueTable>::OPTIONS.lanes.is_some_and(|lanes| lanes.strict);
    let Some(lane @ Lane::Value(_)) = (if is_strict { Q::QUEUE.lane_of(connection, key)? } else { None }) else {
        return Ok(None);
    };
    let (Some(due_in), Some(ahead)) = (Q::QUEUE.ahead_due(connection, &lane)?, Q::QUEUE.ahead(connection, &lane)?)
    else {
        return Ok(None);
    };
    let same = load::<BigInt, i64, _>(connection, &is_same(Q::row(key), Q::row(&ahead).is_key))?;
    let time = DateTime::from(Q::QUEUE.present(connection)?) + due_in;
    Ok((same.iter().sum::<i64>() == 0).then(|| Explanation::Behind { key: ahead.to_string(), time }))
}

/// Tells whether the limit of the row's lane, or of the queue, is reached. `at_most`: the limit at run time.
fn full_lane<Q: QueueOn<C>, C: QueueConnection>(
    connection: &mut C,
    key: &RowKey<Q::Key>,
    at_most: Option<u32>,
) -> QueryResult<Option<Explanation>> {
    let is_leased = TypeId::of::<Q::Mode>() == TypeId::of::<LeaseMode>();
    let Some(lanes) = Places::of(Q::QUEUE, is_leased.then_some(Q::SETTINGS.lease))? else { return Ok(None) };
    lanes.set_limit(at_most);
    let mut found = None;
    // Rolled back, so that a place that it gets in order to find out is free again.
    let ended = connection.transaction::<(), DieselError, _>(|connection| {
        found = lanes.full_lane(connection, key)?;
        Err(DieselError::RollbackTransaction)
    });
    match ended {
        Err(DieselError::RollbackTransaction) => {}
        ended => ended?,
    }
    let column = <Q::Queue as QueueTable>::OPTIONS.lanes.map_or("", |lanes| lanes.column);
    Ok(found
        .map(|(value, at_most)| Explanation::NoPlace { by: value.map(|value| (column.to_owned(), value)), at_most }))
}

/// Returns the archive table that contains the row. If the entity's table names a schema, the key's condition cannot be
/// used on its archives, and the answer is `None`.
fn archive_of<Q, C>(connection: &mut C, key: &RowKey<Q::Key>) -> QueryResult<Option<&'static str>>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    let options = <Q::Queue as QueueTable>::OPTIONS;
    if TableName::of(<Q::Queue as QueueTable>::TABLE, &C::Backend::default())?.schema.is_some() {
        return Ok(None);
    }
    for on_finish in [options.on_success, options.on_failure] {
        if let OnFinish::Archive(table) = on_finish {
            let rows = load::<BigInt, i64, _>(connection, &is_archived(Q::row(key), table))?;
            if rows.iter().sum::<i64>() > 0 {
                return Ok(Some(table));
            }
        }
    }
    Ok(None)
}

/// Finds out what keeps a due row from running: another session's lock, or a refusal of the database. It takes the row's
/// lock, unless another session has it, and writes a change of no effect on the row.
fn hindrance<Q: QueueOn<C>, C: QueueConnection>(connection: &mut C, key: &RowKey<Q::Key>) -> QueryResult<Explanation> {
    Ok(match without_trace(connection, |connection| refusal::<Q, C>(connection, key))? {
        Tried::Done(found) => found,
        Tried::OthersWrite => Explanation::Held { since: None, by: None },
        Tried::Nothing => Explanation::Due,
    })
}

/// Tells of each of the rows whether another session has locked it. It takes the locks of the others.
fn held_of<Q: QueueOn<C>, C: QueueConnection>(connection: &mut C, keys: &[&RowKey<Q::Key>]) -> QueryResult<Vec<bool>> {
    let tried = without_trace(connection, |connection| {
        let mut held = vec![true; keys.len()];
        for (part, keys) in keys.chunks(LOCKED_AT_ONCE).enumerate() {
            for (place, _) in Q::QUEUE.lock_free(connection, keys)? {
                held[part * LOCKED_AT_ONCE + place] = false;
            }
        }
        Ok(held)
    });
    Ok(match tried? {
        Tried::Done(held) => held,
        Tried::OthersWrite => vec![true; keys.len()],
        Tried::Nothing => vec![false; keys.len()],
    })
}

/// Locks the row, and finds out whether it can be written on. Run it in a transaction that is rolled back.
fn refusal<Q: QueueOn<C>, C: QueueConnection>(connection: &mut C, key: &RowKey<Q::Key>) -> QueryResult<Explanation> {
    let Some(fence) = Q::QUEUE.recall_unless_locked(connection, key)? else {
        return Ok(Explanation::Held { since: None, by: None });
    };
    let change = Change { next: Some(Next::In(Duration::ZERO)), ..Change::default() };
    // In a transaction of its own, so that an error ends this one and not the caller's.
    let mut write = |fence| connection.transaction(|connection| Q::QUEUE.settle(connection, key, fence, &change));
    Ok(match write(fence) {
        Ok(0) => Explanation::Refused { error: None },
        // If the session may write on no row at all, the refusal is not about this row.
        Err(error) if is_refusal::<C>(&error) && write(nowhere(fence)).is_ok() => {
            Explanation::Refused { error: Some(failure_text(&error, 500)) }
        }
        _ => Explanation::Due,
    })
}
