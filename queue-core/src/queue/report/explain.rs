//! Why one row does not run now.

use std::any::TypeId;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};
use diesel::sql_types::BigInt;

use super::explanation::Explanation;
use crate::attempt::{is_refusal, nowhere};
use crate::backend::{
    AsQueueConnection, DatabaseText, ErrorClass, Loads, LockSql, QueueConnection, TableName, load, load_first,
};
use crate::claim::Places;
use crate::control::{Paused, name_of, pauses_of};
use crate::entity::{Entity, LeaseMode, QueueTable, StoredIn, Window};
use crate::row::{Lane, OnFinish, Options, RowKey, Status, failure_text};
use crate::statement::{Change, InspectedRow, InspectedRowType, Next, QueueOn, inspect, is_archived, is_same};

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
}

#[diagnostic::do_not_recommend]
impl<Q, C> Explains<Q> for C
where
    C: AsQueueConnection<Connection: Loads<InspectedRowType, InspectedRow>>,
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
        let stage = row.5.clone();
        if let Some(reason) = told_by_the_row::<Q>(row) {
            return Ok(reason);
        }
        if let Some(pause) = pause_of::<Q, _>(connection, stage.as_deref())? {
            return Ok(Explanation::Paused { pause });
        }
        if is_behind_head::<Q, _>(connection, key)? {
            return Ok(Explanation::BehindHead);
        }
        let found = hindrance::<Q, _>(connection, key)?;
        if found == Explanation::Due
            && let Some(behind) = behind_retry::<Q, _>(connection, key)?.or(full_lane::<Q, _>(connection, key)?)
        {
            return Ok(behind);
        }
        let holder = if found == Explanation::Due { Q::QUEUE.exclusion_holder(connection)? } else { None };
        Ok(holder.map_or(found, |session| Explanation::TurnHeld { session }))
    }
}

/// Returns the reason that the row itself shows; `None` if it is due.
fn told_by_the_row<Q: Entity>(row: InspectedRow) -> Option<Explanation> {
    let (status, tries, error, (is_pending, is_due, condition_holds), (next, last, now), stage, (odd_next, odd_last)) =
        row;
    let options: Options = <Q::Queue as QueueTable>::OPTIONS;
    let at = |microseconds: Option<i64>| microseconds.and_then(DateTime::from_timestamp_micros);
    let Ok(known) = status.parse::<Status>() else { return Some(Explanation::UnknownStatus { status }) };
    if is_pending == 0 {
        return Some(match known {
            // A success clears the text. A row with a schedule was still pending, until it was stopped.
            Status::Success if options.periodic.is_some() && error.is_some() => Explanation::Stopped,
            Status::Success => Explanation::Succeeded { time: at(last) },
            Status::Skipped => Explanation::Skipped,
            Status::Failed => {
                let exhausted = u32::try_from(tries).is_ok_and(|tries| tries >= Q::SETTINGS.max_tries);
                Explanation::FailedForGood { tries, exhausted, error }
            }
            // `restart` makes the same distinction.
            Status::NotAttempted if error.is_none() => Explanation::NotQueued,
            _ => Explanation::Stopped,
        });
    }
    if is_due == 0 {
        let columns = <Q::Queue as QueueTable>::COLUMNS;
        let odd = |column: &str, text: DatabaseText| Explanation::OddTime { column: column.to_owned(), text: text.0 };
        return Some(match (known, odd_next, odd_last) {
            (Status::InProgress, _, None) => Explanation::Held { since: at(last) },
            (Status::InProgress, _, Some(text)) => odd(columns.last_attempt_time, text),
            (_, Some(text), _) => odd(columns.next_attempt_time, text),
            (_, None, _) => Explanation::ScheduledFor { time: at(next).unwrap_or(DateTime::<Utc>::MAX_UTC) },
        });
    }
    if condition_holds == 0 {
        return Some(Explanation::ConditionFalse);
    }
    let is_stage = |stage: &str| options.stages.is_none_or(|stages| stages.names.contains(&stage));
    if options.stages.is_some() && !stage.as_deref().is_some_and(is_stage) {
        return Some(Explanation::UnknownStage { stage });
    }
    closed_window(&options, at(now)).map(|opens| Explanation::OutsideWindow { opens })
}

/// Returns the pause of the whole queue, or else of this stage. If there is no control table, that is all
/// it finds out.
fn pause_of<Q, C>(connection: &mut C, stage: Option<&str>) -> QueryResult<Option<Paused>>
where
    C: QueueConnection,
    Q: StoredIn<C::Backend>,
{
    let pauses = pauses_of(connection, &name_of(Q::SQL)?)?;
    // The whole queue comes first, because its scope is empty.
    Ok(pauses.into_iter().find(|pause| pause.stage.is_none() || pause.stage.as_deref() == stage))
}

/// Returns when the entity's window opens, if it has one that is closed now. A poller refuses to start with a window
/// that cannot be read, so such a window counts as none here.
fn closed_window(options: &Options, now: Option<DateTime<Utc>>) -> Option<Option<DateTime<Utc>>> {
    let window: Window = options.window?.parse().ok()?;
    let now = now?;
    (!window.is_open(now)).then(|| window.next_opening(now))
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

/// Tells whether the limit of the row's lane, or of the queue, is reached.
fn full_lane<Q: QueueOn<C>, C: QueueConnection>(connection: &mut C, key: &RowKey<Q::Key>) -> QueryResult<Option<Explanation>> {
    let is_leased = TypeId::of::<Q::Mode>() == TypeId::of::<LeaseMode>();
    let Some(lanes) = Places::of(Q::QUEUE, is_leased.then_some(Q::SETTINGS.lease))? else { return Ok(None) };
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

/// Finds out what keeps a due row from running: another session's lock, or a refusal of the database. It takes the
/// row's lock, unless another session has it, and writes a change of no effect on the row. It rolls back all of this at
/// once.
///
/// It answers that nothing is in the way where it cannot try: inside a transaction on MySQL and SQLite, which would
/// keep the lock to its end, on a server without `SKIP LOCKED`, and in a session that may only read.
fn hindrance<Q: QueueOn<C>, C: QueueConnection>(connection: &mut C, key: &RowKey<Q::Key>) -> QueryResult<Explanation> {
    let mut found = Explanation::Due;
    if C::Backend::ONE_WRITER {
        // Rolled back, because without WAL even an empty commit would wait for readers.
        let writes = connection.with_lock_wait(Duration::ZERO, |connection, alone| {
            // The caller's transaction would keep the lock of a write to its end.
            if alone {
                found = refusal::<Q, C>(connection, key)?;
            }
            Err::<(), _>(DieselError::RollbackTransaction)
        });
        return match writes {
            Err(DieselError::RollbackTransaction) => Ok(found),
            Err(error) if C::classify(&error) == ErrorClass::Conflict => Ok(Explanation::Held { since: None }),
            writes => writes.map(|()| found),
        };
    }
    let depth = C::TransactionManager::transaction_manager_status_mut(connection).transaction_depth();
    let is_inside = !matches!(depth, Ok(None));
    if (is_inside && !C::Backend::SAVEPOINT_FREES_LOCKS) || !connection.skips_locked_rows()? {
        return Ok(found);
    }
    let ended = connection.transaction::<(), DieselError, _>(|connection| {
        found = refusal::<Q, C>(connection, key)?;
        Err(DieselError::RollbackTransaction)
    });
    match ended {
        Err(error) if C::classify(&error) == ErrorClass::ConnectionLost => Err(error),
        _ => Ok(found),
    }
}

/// Locks the row, and finds out whether it can be written on. Run it in a transaction that is rolled back.
fn refusal<Q: QueueOn<C>, C: QueueConnection>(connection: &mut C, key: &RowKey<Q::Key>) -> QueryResult<Explanation> {
    let Some(fence) = Q::QUEUE.recall_unless_locked(connection, key)? else {
        return Ok(Explanation::Held { since: None });
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
