//! Operations on very many rows, in small transactions: the keys are read some ten thousand at a time, without a lock, and
//! then locked and worked in batches, each under the same condition once more.
//!
//! Whoever is killed in between has done whole batches, and whoever goes on finds the rows that are left.

use std::cell::RefCell;

use diesel::query_builder::QueryFragment;
use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};

use super::change::{held_on_conflict, in_transaction};
use super::queue::Queue;
use super::selection::Selection;
use crate::backend::{LockSql, QueueConnection, execute, load};
use crate::entity::Entity;
use crate::error::{Error, refused};
use crate::statement::{
    Archive, Change, ChangeKeys, Condition, CountAmong, Keys, RemoveKeys, ShownFrom, StateCondition,
};
use diesel::sql_types::BigInt;

/// How many keys are read at a time: enough that a million rows are looked through a hundred times and no more, and little
/// enough for the memory.
const CHUNK: usize = 10_000;

/// The most rows of one transaction. SQLite binds 32,766 values in a statement, and a key may have several columns.
const MOST_ROWS: usize = 5_000;

/// The rows that a sweep takes.
pub(crate) struct Sweep<'a> {
    /// Their state.
    pub(crate) states: &'a [StateCondition],
    /// Where they are, if not in the queue's table.
    pub(crate) archive: Option<&'a Archive>,
    /// How many are worked in one transaction.
    pub(crate) batch: u32,
    /// Whether rows that were passed over are left, and not looked for once more.
    pub(crate) once: bool,
}

/// What happens to a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Moment {
    /// The rows are looked through from the first.
    Anew,
    /// It is about to begin.
    Begins,
    /// It is committed, and this many of its rows were taken.
    Done(usize),
}

impl<Q: Entity, F: Selection> Queue<Q, F> {
    /// Works the rows in batches. `work` gets the keys of locked rows and takes them out of the condition, or leaves some;
    /// it returns how many it took. `at` is told of each batch outside its transaction.
    ///
    /// Rows that others hold are passed over, and looked for once more at the end.
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

    /// The same, where the database may refuse what `work` does with some of the rows: the other rows of their batch are
    /// worked all the same, and those stay and are counted.
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
        // What was refused is tried once more whenever the rows are looked through anew.
        let now_refused = RefCell::new(Refused::default());
        // A batch that is tried anew counts once.
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
            // The rows that stay come first in the next chunk: they are passed over by their number.
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
                        "rows whose keys cannot be decoded stay"
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

/// The rows of which the database does not let go.
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

    /// How many rows are done, or the error that tells of both.
    pub(crate) fn beside(self, done: usize) -> Result<usize, Error> {
        let Some(source) = self.first else { return Ok(done) };
        let refused = Error::Refused { rows: self.rows, source };
        match done {
            0 => Err(refused),
            rows => Err(Error::Interrupted { rows, source: Box::new(refused) }),
        }
    }
}

/// Whether the database refuses because of what else it holds: it will do so again.
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

/// Works in a savepoint. The error is that of the work, also where the database has ended the whole transaction with it. After a
/// refusal, which the caller passes over, it is that of the return to the savepoint, if that has failed.
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

/// Makes sure that a statement has changed each of the rows that were locked for it.
pub(crate) fn exactly(expected: usize, rows: usize) -> QueryResult<usize> {
    match rows == expected {
        true => Ok(rows),
        false => Err(refused(format!(
            "{expected} rows were locked and {rows} of them written: a trigger or a rule keeps them, nothing was changed"
        ))),
    }
}

/// The operations in batches of a selection on one kind of connection. It is implemented wherever Diesel can run them.
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
        let condition = Condition::new(self.selection.filter(), &states).within(archive);
        let keys = Q::load_some_keys(connection, &Keys::<Q, _>::some(condition, limit, offset))?;
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
        let condition = Condition::new(self.selection.filter(), &states).within(archive);
        let locked = Keys::<Q, _>::lock(condition, keys, passes_over);
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
        let condition = Condition::new(self.selection.filter(), &states).within(archive);
        let counts = load::<BigInt, i64, _>(connection, &CountAmong::<Q, _>::new(condition, keys))?;
        Ok(counts.into_iter().filter_map(|rows| usize::try_from(rows).ok()).sum())
    }

    fn change_keys(&self, connection: &mut C, keys: &[Q::Key], change: &Change) -> QueryResult<usize> {
        exactly(keys.len(), execute(connection, &ChangeKeys::<Q>::new(keys, change))?)
    }

    fn remove_keys(&self, connection: &mut C, keys: &[Q::Key], archive: Option<&Archive>) -> QueryResult<usize> {
        exactly(keys.len(), execute(connection, &RemoveKeys::<Q>::new(keys, archive))?)
    }
}
