//! Operations on very many rows, in small transactions. The sweep reads some ten thousand keys at a time, without a
//! lock. It then locks and processes them in batches, each under the same condition once more.
//!
//! A sweep that is killed has finished whole batches, and the next one finds the rows that are left.

use std::cell::RefCell;

use diesel::query_builder::QueryFragment;
use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};

use super::change::{held_on_conflict, in_transaction};
use super::queue::Queue;
use super::selection::Selection;
use crate::backend::{LockSql, QueueConnection, execute, load};
use crate::entity::Entity;
use crate::error::{Error, refused};
use crate::statement::{Archive, Change, ChangeKeys, CountAmong, Keys, RemoveKeys, ShownFrom, StateCondition};
use diesel::sql_types::BigInt;

/// How many keys are read at a time: enough that a million rows take no more than a hundred reads, and few enough for
/// the memory.
const CHUNK: usize = 10_000;

/// The most rows of one transaction. SQLite binds 32,766 values in a statement, and a key may have several columns.
const MOST_ROWS: usize = 5_000;

/// The rows that a sweep takes.
pub(crate) struct Sweep<'a> {
    /// Their state.
    pub(crate) states: &'a [StateCondition],
    /// The archive that contains them, if they are not in the queue's table.
    pub(crate) archive: Option<&'a Archive>,
    /// How many are processed in one transaction.
    pub(crate) batch: u32,
    /// Whether the sweep ends after one pass, without another try at rows that it passed over.
    pub(crate) once: bool,
}

/// A step of a sweep.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Moment {
    /// The sweep begins a pass with the first row.
    Anew,
    /// A batch is about to begin.
    Begins,
    /// The batch is committed, and this many of its rows were taken.
    Done(usize),
}

impl<Q: Entity, F: Selection> Queue<Q, F> {
    /// Processes the rows in batches. `work` gets the keys of locked rows and takes them out of the condition, or
    /// leaves some; it returns how many it took. The sweep calls `at` for each batch, outside the batch's transaction.
    ///
    /// It passes over rows that others have locked, and tries them once more at the end.
    pub(crate) fn sweep<C: QueueConnection>(
        &self,
        connection: &mut C,
        sweep: &Sweep<'_>,
        mut work: impl FnMut(&Self, &mut C, &[Q::Key]) -> QueryResult<usize>,
        mut at: impl FnMut(Moment),
    ) -> Result<usize, Error>
    where
        Self: SweepOn<C, Key = Q::Key>,
    {
        let mut done = 0;
        self.sweep_counting(connection, sweep, &mut work, &mut |moment| {
            if let Moment::Done(rows) = moment {
                done += rows;
            }
            at(moment);
        })
        .map_err(|error| match done {
            0 => error,
            rows => Error::Interrupted { rows, source: Box::new(error) },
        })?;
        Ok(done)
    }

    /// Does the same where the database may refuse `work` on some of the rows. The other rows of their batch are
    /// processed all the same; the refused ones stay and are counted.
    pub(crate) fn sweep_leaving<C: QueueConnection>(
        &self,
        connection: &mut C,
        sweep: &Sweep<'_>,
        refused: &mut Refused,
        work: impl Fn(&Self, &mut C, &[Q::Key]) -> QueryResult<usize>,
    ) -> Result<usize, Error>
    where
        Self: SweepOn<C, Key = Q::Key>,
    {
        // Each pass tries the refused rows once more.
        let now_refused = RefCell::new(Refused::default());
        // A batch that is tried again counts once.
        let refused_in_batch = RefCell::new(Refused::default());
        let each = |queue: &Self, connection: &mut C, keys: &[Q::Key]| {
            refused_in_batch.take();
            match undone_on_error(connection, |connection| work(queue, connection, keys)) {
                Err(error) if is_refusal(&error) => {}
                worked => return worked,
            }
            let mut worked = 0;
            for key in keys {
                match undone_on_error(connection, |connection| work(queue, connection, std::slice::from_ref(key))) {
                    Err(error) if is_refusal(&error) => refused_in_batch.borrow_mut().add(1, Some(error)),
                    one => worked += one?,
                }
            }
            Ok(worked)
        };
        let done = self.sweep(connection, sweep, each, |moment| match moment {
            Moment::Anew => drop(now_refused.take()),
            Moment::Begins => drop(refused_in_batch.take()),
            Moment::Done(_) => {
                let Refused { rows, first } = refused_in_batch.take();
                now_refused.borrow_mut().add(rows, first);
            }
        })?;
        let Refused { rows, first } = now_refused.into_inner();
        refused.add(rows, first);
        Ok(done)
    }

    fn sweep_counting<C: QueueConnection>(
        &self,
        connection: &mut C,
        sweep: &Sweep<'_>,
        work: &mut impl FnMut(&Self, &mut C, &[Q::Key]) -> QueryResult<usize>,
        at: &mut impl FnMut(Moment),
    ) -> Result<(), Error>
    where
        Self: SweepOn<C, Key = Q::Key>,
    {
        let passes_over = C::Backend::ONE_WRITER || held_on_conflict::<C, _>(connection.skips_locked_rows())?;
        loop {
            at(Moment::Anew);
            // The rows that stay come first in the next chunk, so the next read skips as many.
            let (mut taken, mut left) = (0, 0);
            loop {
                let read =
                    held_on_conflict::<C, _>(self.read_keys(connection, sweep.states, sweep.archive, CHUNK, left))?;
                let is_last = read.len() < CHUNK;
                let rows = read.len();
                let keys: Vec<_> = read.into_iter().flatten().collect();
                if keys.len() < rows {
                    tracing::warn!(
                        entity = Q::ENTITY,
                        rows = rows - keys.len(),
                        "rows whose keys cannot be decoded are left as they are"
                    );
                    left += rows - keys.len();
                }
                for batch in keys.chunks(usize::try_from(sweep.batch).unwrap_or(MOST_ROWS).clamp(1, MOST_ROWS)) {
                    at(Moment::Begins);
                    let rows = in_transaction(connection, self.wait, |connection, _| {
                        let locked = self.lock_keys(connection, sweep.states, sweep.archive, batch, passes_over)?;
                        if locked.is_empty() { Ok(0) } else { work(self, connection, &locked) }
                    })?;
                    if rows < batch.len() {
                        let stay = self.count_among(connection, sweep.states, sweep.archive, batch);
                        left += held_on_conflict::<C, _>(stay)?;
                    }
                    taken += rows;
                    at(Moment::Done(rows));
                }
                if is_last {
                    break;
                }
            }
            if sweep.once || taken == 0 || left == 0 {
                return Ok(());
            }
        }
    }
}

/// The rows that the database refuses to change.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    rows: usize,
    first: Option<DieselError>,
}

impl Refused {
    fn add(&mut self, rows: usize, error: Option<DieselError>) {
        self.rows += rows;
        self.first = self.first.take().or(error);
    }

    /// Returns how many rows are done, or the error that reports both.
    pub(crate) fn beside(self, done: usize) -> Result<usize, Error> {
        let Some(source) = self.first else { return Ok(done) };
        let refused = Error::Refused { rows: self.rows, source };
        match done {
            0 => Err(refused),
            rows => Err(Error::Interrupted { rows, source: Box::new(refused) }),
        }
    }
}

/// Tells whether the database refuses because of its other data: it will do so again.
fn is_refusal(error: &DieselError) -> bool {
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

/// Makes sure that a statement has changed each of the rows that it had locked.
pub(crate) fn exactly(expected: usize, rows: usize) -> QueryResult<usize> {
    match rows == expected {
        true => Ok(rows),
        false => Err(refused(format!(
            "{expected} rows were locked and {rows} of them written: a trigger or a rule keeps them, nothing was changed"
        ))),
    }
}

/// Runs a selection's operations in batches on one kind of connection. It is implemented wherever Diesel can run the
/// statements.
#[diagnostic::on_unimplemented(
    message = "these rows of the queue cannot be changed on `{C}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, and the filter's values can be \
            stored there",
    note = "generic code names this bound: `Queue<Q, F>: SweepOn<C>`"
)]
pub trait SweepOn<C> {
    /// The primary key.
    type Key;
    #[doc(hidden)]
    fn read_keys(
        &self,
        connection: &mut C,
        states: &[StateCondition],
        archive: Option<&Archive>,
        limit: usize,
        offset: usize,
    ) -> QueryResult<Vec<Option<Self::Key>>>;
    #[doc(hidden)]
    fn lock_keys(
        &self,
        connection: &mut C,
        states: &[StateCondition],
        archive: Option<&Archive>,
        keys: &[Self::Key],
        passes_over: bool,
    ) -> QueryResult<Vec<Self::Key>>;
    #[doc(hidden)]
    fn count_among(
        &self,
        connection: &mut C,
        states: &[StateCondition],
        archive: Option<&Archive>,
        keys: &[Self::Key],
    ) -> QueryResult<usize>;
    #[doc(hidden)]
    fn change_keys(&self, connection: &mut C, keys: &[Self::Key], change: &Change) -> QueryResult<usize>;
    #[doc(hidden)]
    fn remove_keys(&self, connection: &mut C, keys: &[Self::Key], archive: Option<&Archive>) -> QueryResult<usize>;
}

#[diagnostic::do_not_recommend]
impl<Q, F, C> SweepOn<C> for Queue<Q, F>
where
    Q: ShownFrom<C::Backend>,
    F: Selection<Filter: QueryFragment<C::Backend>>,
    C: QueueConnection,
{
    type Key = Q::Key;

    fn read_keys(
        &self,
        connection: &mut C,
        states: &[StateCondition],
        archive: Option<&Archive>,
        limit: usize,
        offset: usize,
    ) -> QueryResult<Vec<Option<Q::Key>>> {
        let states = self.states_and(states);
        let condition = self.condition(&states).within(archive);
        let keys = Q::load_some_keys(connection, &Keys::some(condition, limit, offset))?;
        Ok(keys.into_iter().map(|(key,)| Some(key.ok()?.0)).collect())
    }

    fn lock_keys(
        &self,
        connection: &mut C,
        states: &[StateCondition],
        archive: Option<&Archive>,
        keys: &[Q::Key],
        passes_over: bool,
    ) -> QueryResult<Vec<Q::Key>> {
        let states = self.states_and(states);
        let condition = self.condition(&states).within(archive);
        let locked = Keys::lock(condition, Q::rows(keys), passes_over);
        let keys = Q::load_some_keys(connection, &locked)?;
        Ok(keys.into_iter().filter_map(|(key,)| Some(key.ok()?.0)).collect())
    }

    fn count_among(
        &self,
        connection: &mut C,
        states: &[StateCondition],
        archive: Option<&Archive>,
        keys: &[Q::Key],
    ) -> QueryResult<usize> {
        let states = self.states_and(states);
        let condition = self.condition(&states).within(archive);
        let counts = load::<BigInt, i64, _>(connection, &CountAmong::new(condition, Q::rows(keys)))?;
        Ok(counts.into_iter().filter_map(|rows| usize::try_from(rows).ok()).sum())
    }

    fn change_keys(&self, connection: &mut C, keys: &[Q::Key], change: &Change) -> QueryResult<usize> {
        exactly(keys.len(), execute(connection, &ChangeKeys::new(Q::SQL, Q::rows(keys), change))?)
    }

    fn remove_keys(&self, connection: &mut C, keys: &[Q::Key], archive: Option<&Archive>) -> QueryResult<usize> {
        exactly(keys.len(), execute(connection, &RemoveKeys::new(Q::SQL, Q::rows(keys), archive))?)
    }
}
