//! Operations on very many rows, in small transactions. The sweep reads some ten thousand keys at a time, without a
//! lock. It then locks and processes them in batches, each under the same condition once more.
//!
//! A sweep that is killed has finished whole batches, and the next one finds the rows that are left.

use std::slice;

use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};
use diesel::sql_types::BigInt;

use super::change::{held_on_conflict, in_transaction};
use super::operation::{Effect, Operation};
use super::queue::{QueueRows, Selection};
use super::read::{BackendOf, LoadsRows};
use crate::audit::Record;
use crate::backend::{QueueBackend, QueueConnection, Statement, TableName, execute, load};
use crate::entity::{Entity, IsKey, QueueSql};
use crate::error::{Error, refused};
use crate::statement::{
    And, Archive, Condition, IfAny, KeyRow, StateCondition, WithTexts, change_all, copy_rows, count, lock_keys,
    read_keys, remove_all, set_priority,
};

/// How many keys are read at a time: enough that a million rows take no more than a hundred reads, and few enough for
/// the memory.
const CHUNK: usize = 10_000;

/// The most rows of one transaction. SQLite binds 32,766 values in a statement, and a key may have several columns.
const MOST_ROWS: usize = 5_000;

/// How a sweep takes its rows, and what it does with them.
pub(crate) struct Sweep<DB: QueueBackend> {
    /// The call and its argument, for the audit.
    pub(crate) action: String,
    pub(crate) operation: Operation<Effect>,
    pub(crate) queue: &'static QueueSql<DB>,
    /// The queue's table.
    pub(crate) live: TableName,
    /// The archive that contains the rows, if they are not in that table.
    pub(crate) archive: Option<Archive>,
    /// How many are processed in one transaction.
    pub(crate) batch: u32,
    /// Whether the sweep ends after one pass, without another try at rows that it passed over.
    pub(crate) once: bool,
    /// Which errors concern single rows, if any do: the sweep still processes the other rows of their batch.
    pub(crate) is_refusal: Option<fn(&DieselError) -> bool>,
    /// Whether it passes over rows that others have locked.
    pub(crate) passes_over: bool,
}

/// A step of a sweep.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Moment {
    /// A batch is about to begin.
    Begins,
    /// The batch is committed, and this many of its rows were taken.
    Done(usize),
}

/// What a sweep has done.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    /// How many rows were taken.
    pub(crate) rows: usize,
    /// How many rows stay, because the database refuses the operation on them.
    pub(crate) refused: usize,
    /// The first of these refusals; a value that another row has only if there is no other.
    pub(crate) refusal: Option<DieselError>,
    /// The call's row in the audit.
    record: Record,
}

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Processes rows in batches: those that were picked and are of the operation still, until `at` says no, or else all that are of it.
    /// `at` is called for each batch, outside the batch's transaction.
    ///
    /// It passes over rows that others have locked. A sweep of all rows tries them once more at the end.
    pub(super) fn sweep<C: LoadsRows<Q, F>>(
        &self,
        connection: &mut C,
        sweep: &Sweep<BackendOf<C>>,
        picked: Option<(&[PickedPart<Q::Key>], &str)>,
        mut at: impl FnMut(Moment) -> bool,
    ) -> Result<Swept, Error> {
        let record = self.record(connection, &sweep.action, picked.map_or("", |(_, by)| by), true)?;
        let mut swept = Swept { record, ..Swept::default() };
        let done = match picked {
            Some((parts, _)) => self.sweep_picked(connection, sweep, parts, &mut swept, &mut at),
            None => sweep.operation.0.iter().try_for_each(|kind| {
                self.sweep_kind(connection, kind, sweep, &mut swept, &mut |moment| _ = at(moment))
            }),
        };
        done.map_err(|error| swept.interrupted_by(error))?;
        self.close(connection, &swept.record)?;
        Ok(swept)
    }

    /// Processes the rows in these states, in passes until one takes nothing more.
    fn sweep_kind<C: LoadsRows<Q, F>>(
        &self,
        connection: &mut C,
        kind: &(Vec<StateCondition>, Effect),
        sweep: &Sweep<BackendOf<C>>,
        swept: &mut Swept,
        at: &mut impl FnMut(Moment),
    ) -> Result<(), Error> {
        let (kinds, states) = (slice::from_ref(kind), self.states_and(&kind.0));
        let condition = C::condition(self, &states).within(sweep.archive.as_ref());
        loop {
            // Each pass tries the refused rows once more.
            let (mut pass, mut left) = (Swept::default(), 0);
            loop {
                // The rows that stay come first in the next chunk, so the next read skips as many.
                let chunk = C::load_keys(connection.as_queue_connection(), &read_keys(condition, CHUNK, left));
                let chunk = held_on_conflict::<C::Connection, _>(chunk)?;
                let rows = chunk.len();
                let keys = decoded(chunk);
                if keys.len() < rows {
                    let rows = rows - keys.len();
                    tracing::warn!(entity = Q::ENTITY, rows, "passed over rows whose keys cannot be decoded");
                    left += rows;
                }
                for batch in keys.chunks(sweep.size()) {
                    at(Moment::Begins);
                    let done = self.sweep_batch(connection, kinds, (batch, None), sweep, &mut swept.record)?;
                    if done.rows < batch.len() {
                        let among = C::are_keys(batch);
                        let stay = count(condition.among(&among));
                        let stay = load::<BigInt, i64, _>(connection.as_queue_connection(), &stay);
                        let stay = held_on_conflict::<C::Connection, _>(stay)?.into_iter();
                        left += stay.filter_map(|rows| usize::try_from(rows).ok()).sum::<usize>();
                    }
                    swept.rows += done.rows;
                    at(Moment::Done(done.rows));
                    pass.rows += done.rows;
                    pass.add_refused(done.refused, done.refusal);
                }
                if rows < CHUNK {
                    break;
                }
            }
            if sweep.once || pass.rows == 0 || left == 0 {
                swept.add_refused(pass.refused, pass.refusal);
                return Ok(());
            }
        }
    }

    /// Processes those rows of a batch that are of the operation still, in one transaction.
    fn sweep_batch<C: LoadsRows<Q, F>>(
        &self,
        connection: &mut C,
        kinds: &[(Vec<StateCondition>, Effect)],
        (batch, texts): (&[Q::Key], Option<&[String]>),
        sweep: &Sweep<BackendOf<C>>,
        record: &mut Record,
    ) -> Result<Swept, Error> {
        let among = C::are_keys(batch);
        // The result of the last try alone: one that was rolled back before has done nothing.
        let done = in_transaction(connection.as_queue_connection(), self.terms.wait, |connection, _| {
            let mut done = Swept::default();
            for (states, effect) in kinds {
                let states = self.states_and(states);
                let condition = C::condition(self, &states).within(sweep.archive.as_ref()).among(&among);
                let filter = texts.map(|texts| And(IfAny(condition.filter), WithTexts(condition.queue, texts)));
                let filter = filter.as_ref().map(|filter| filter as _).or(condition.filter);
                let condition = Condition { filter, ..condition };
                let removes = !matches!(effect, Effect::Changes(_) | Effect::Sets(_));
                let lock = lock_keys(condition, sweep.passes_over, removes);
                let locked = decoded(C::load_keys(connection, &lock)?);
                let part = sweep.work_on(connection, &C::are_keys(&locked), effect)?;
                done.rows += part.rows;
                done.add_refused(part.refused, part.refusal);
            }
            record.write(connection, done.rows)?;
            Ok(done)
        })?;
        record.committed(done.rows);
        Ok(done)
    }

    /// Processes picked rows. All kinds of an operation share a batch's transaction, so that no worker comes between them.
    fn sweep_picked<C: LoadsRows<Q, F>>(
        &self,
        connection: &mut C,
        sweep: &Sweep<BackendOf<C>>,
        parts: &[PickedPart<Q::Key>],
        swept: &mut Swept,
        at: &mut impl FnMut(Moment) -> bool,
    ) -> Result<(), Error> {
        let batches =
            parts.iter().flat_map(|part| part.keys.chunks(sweep.size()).map(|batch| (batch, part.texts.as_deref())));
        for of in batches {
            if !at(Moment::Begins) {
                break;
            }
            let done = self.sweep_batch(connection, &sweep.operation.0, of, sweep, &mut swept.record)?;
            swept.rows += done.rows;
            swept.add_refused(done.refused, done.refusal);
            if !at(Moment::Done(of.0.len())) {
                break;
            }
        }
        Ok(())
    }
}

/// Rows that were picked together.
#[derive(Debug, Clone)]
pub(crate) struct PickedPart<K> {
    /// Their keys.
    pub(crate) keys: Vec<K>,
    /// The texts of their failures, if they were picked by those.
    pub(crate) texts: Option<Vec<String>>,
}

/// Leaves out the keys that cannot be decoded.
pub(super) fn decoded<K>(keys: Vec<KeyRow<K>>) -> Vec<K> {
    keys.into_iter().filter_map(|(key,)| Some(key.ok()?.0)).collect()
}

impl<DB: QueueBackend> Sweep<DB> {
    /// Returns how many rows a transaction takes at the most.
    fn size(&self) -> usize {
        usize::try_from(self.batch).unwrap_or(MOST_ROWS).clamp(1, MOST_ROWS)
    }

    /// Reads the columns to copy, if rows are copied: once for a batch and under its rows' locks, so that the application
    /// cannot add a column in between.
    fn columns<C: QueueConnection<Backend = DB>>(
        &self,
        connection: &mut C,
        effect: &Effect,
    ) -> QueryResult<Vec<String>> {
        if !matches!(effect, Effect::MovesTo(_) | Effect::MovesBack(_)) {
            return Ok(Vec::new());
        }
        let mut columns = connection.copied_columns(&self.live)?;
        if let Some(archive) = &self.archive {
            let archived = connection.copied_columns(archive.table())?;
            columns.retain(|column| archived.iter().any(|archived| archived.eq_ignore_ascii_case(column)));
        }
        Ok(columns)
    }

    /// Has its effect on each of these locked rows.
    fn work<C: QueueConnection<Backend = DB>>(
        &self,
        connection: &mut C,
        keys: &[IsKey<DB>],
        columns: &[String],
        effect: &Effect,
    ) -> QueryResult<usize> {
        let condition = Condition::of_keys(self.queue, keys);
        match effect {
            Effect::Changes(change) => execute_on_each(connection, keys, &change_all(condition, change, false)),
            Effect::Removes => execute_on_each(connection, keys, &remove_all(condition)),
            Effect::Sets(priority) => execute_on_each(connection, keys, &set_priority(condition, *priority, false)),
            Effect::MovesTo(name) => {
                execute_on_each(connection, keys, &copy_rows(condition, Some(&self.live.beside(name)), columns))?;
                execute_on_each(connection, keys, &remove_all(condition))
            }
            Effect::MovesBack(change) => {
                let archived = condition.within(self.archive.as_ref());
                execute_on_each(connection, keys, &copy_rows(archived, None, columns))?;
                execute_on_each(connection, keys, &change_all(condition, change, false))?;
                execute_on_each(connection, keys, &remove_all(archived))
            }
        }
    }

    /// Processes locked rows, together if possible, and else one by one.
    fn work_on<C: QueueConnection<Backend = DB>>(
        &self,
        connection: &mut C,
        keys: &[IsKey<DB>],
        effect: &Effect,
    ) -> QueryResult<Swept> {
        if keys.is_empty() {
            return Ok(Swept::default());
        }
        let columns = &self.columns(connection, effect)?;
        let work = |connection: &mut C, keys: &[_]| self.work(connection, keys, columns, effect);
        let Some(is_refusal) = self.is_refusal else {
            return Ok(Swept { rows: work(connection, keys)?, ..Swept::default() });
        };
        match undone_on_error(connection, is_refusal, |connection| work(connection, keys)) {
            Err(error) if is_refusal(&error) => {}
            worked => return Ok(Swept { rows: worked?, ..Swept::default() }),
        }
        let mut swept = Swept::default();
        for key in keys {
            match undone_on_error(connection, is_refusal, |connection| work(connection, slice::from_ref(key))) {
                Err(error) if is_refusal(&error) => swept.add_refused(1, Some(error)),
                one => swept.rows += one?,
            }
        }
        Ok(swept)
    }
}

impl Swept {
    fn add_refused(&mut self, rows: usize, refusal: Option<DieselError>) {
        self.refused += rows;
        let known = self.refusal.take_if(|known| refusal.is_none() || !is_conflict(known));
        self.refusal = known.or(refusal);
    }

    /// Tells whether all refused rows have values that other rows have.
    pub(super) fn are_conflicts(&self) -> bool {
        self.refusal.as_ref().is_none_or(is_conflict)
    }

    /// Returns how many rows were taken, or the error that reports both.
    pub(crate) fn unless_refused(mut self) -> Result<usize, Error> {
        match self.refusal.take() {
            None => Ok(self.rows),
            Some(source) => Err(self.interrupted_by(Error::Refused { rows: self.refused, source })),
        }
    }

    pub(super) fn interrupted_by(&self, error: Error) -> Error {
        match self.rows {
            0 => error,
            rows => Error::Interrupted { rows, source: Box::new(error) },
        }
    }
}

/// Tells whether another row has a value that must be unique.
fn is_conflict(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _))
}

/// Tells whether the database refuses because of its other data: it will do so again.
pub(super) fn is_refusal(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(
            DatabaseErrorKind::UniqueViolation
                | DatabaseErrorKind::ForeignKeyViolation
                | DatabaseErrorKind::RestrictViolation
                | DatabaseErrorKind::NotNullViolation
                | DatabaseErrorKind::CheckViolation
                | DatabaseErrorKind::ExclusionViolation,
            _
        )
    )
}

/// Runs `work` in a savepoint. The error is the one of `work`, even if the database has ended the whole transaction
/// with it. After a refusal, which the caller passes over, it is the error of the rollback to the savepoint, if that
/// failed.
fn undone_on_error<C: QueueConnection, T>(
    connection: &mut C,
    is_refusal: fn(&DieselError) -> bool,
    work: impl FnOnce(&mut C) -> QueryResult<T>,
) -> QueryResult<T> {
    let mut cause = None;
    let done = connection.transaction(|connection| {
        work(connection).map_err(|error| {
            cause = Some(error);
            DieselError::RollbackTransaction
        })
    });
    done.map_err(|error| match cause {
        Some(cause) if matches!(error, DieselError::RollbackTransaction) || !is_refusal(&cause) => cause,
        _ => error,
    })
}

/// Runs a statement that must change each of the locked rows.
fn execute_on_each<C: QueueConnection>(
    connection: &mut C,
    locked: &[IsKey<C::Backend>],
    statement: &dyn Statement<C::Backend>,
) -> QueryResult<usize> {
    let locked = locked.len();
    match execute(connection, statement)? {
        written if written == locked => Ok(written),
        written => Err(refused(format!(
            "{locked} rows were locked and {written} of them written: a trigger or a rule keeps the others, nothing was changed"
        ))),
    }
}
