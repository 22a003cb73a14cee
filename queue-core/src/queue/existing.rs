//! Enqueues rows that are older than the queue: at a limited pace, in small transactions, and resumable.

use std::thread;
use std::time::{Duration, Instant};

use diesel::Column;
use diesel::expression::{AsExpression, Expression};
use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;
use diesel::sql_types::SqlType;

use super::operate::{Operate, Progress};
use super::operation;
use super::queue::{Chosen, QueueRows, Selection};
use super::read::LoadsRows;
use super::sweep::Moment;
use crate::backend::{QueueConnection, execute};
use crate::entity::{Entity, HasVersion, QueueTable, StoredIn};
use crate::error::Error;
use crate::poller::wake;
use crate::statement::enqueue_if_newer;

/// The default number of rows in one transaction.
const DEFAULT_BATCH: u32 = 100;

/// A back-fill: see [`QueueRows::enqueue_existing`].
#[derive(Debug)]
#[must_use = "nothing happens before `run` is called"]
pub struct EnqueueExisting<Q, F> {
    queue: QueueRows<Q, F>,
    batch: u32,
    per_second: Option<u32>,
}

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Enqueues rows that were never enqueued, such as those that were in the table before the queue was: the back-fill
    /// of a new queue. Rows that were attempted, stopped, skipped or finished are left alone.
    ///
    /// It works in small transactions, no faster than the limit, and can be run again after an interruption: it goes on
    /// with the rows that are left, and enqueues none twice. It passes over rows that others have locked, and tries
    /// them once more at the end. Run it outside a transaction: inside the caller's, it would hold its locks until that
    /// ends.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
    /// # #[derive(Debug, Queryable, Selectable, Queueable)] struct Payment { id: i64, company_id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute(
    /// #     "CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL);
    /// #     INSERT INTO payments (company_id) VALUES (3345), (3345), (2)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// let enqueued = Payment::queue()
    ///     .filter(payments::company_id.eq(3345))
    ///     .enqueue_existing()
    ///     .per_second(500)
    ///     .run(&mut connection, |progress| println!("{progress}"))?;
    /// assert_eq!(enqueued, 2);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn enqueue_existing(self) -> EnqueueExisting<Q, F>
    where
        F: Chosen,
    {
        EnqueueExisting { queue: self, batch: DEFAULT_BATCH, per_second: None }
    }
}

impl<Q: Entity, F: Selection> EnqueueExisting<Q, F> {
    /// Sets the largest number of rows to enqueue in a second, at least 1. Without it only the database limits the
    /// pace.
    pub fn per_second(mut self, rows: u32) -> Self {
        self.per_second = Some(rows.max(1));
        self
    }

    /// Sets how many rows are enqueued in one transaction, 1 to 5,000. The default is 100. A transaction never takes
    /// more than a second's worth of rows.
    pub fn batch(mut self, rows: u32) -> Self {
        self.batch = rows;
        self
    }

    /// Enqueues the rows, and returns how many. `progress` is called after each transaction.
    ///
    /// # Errors
    ///
    /// As [`QueueRows::retry_now`], and [`Error::Interrupted`] if batches were committed before the error: run it again.
    pub fn run<C: LoadsRows<Q, F>>(
        &self,
        connection: &mut C,
        mut progress: impl FnMut(Progress),
    ) -> Result<usize, Error> {
        let kinds = operation::enqueue_existing().kinds();
        let total = kinds.iter().map(|states| self.queue.read_count(connection, states)).sum::<Result<i64, _>>()?;
        let total = usize::try_from(total).unwrap_or(0);
        let batch = self.batch.min(self.per_second.unwrap_or(u32::MAX));
        let mut pace = Pace { per_second: self.per_second, next: Instant::now() };
        let mut done = 0;
        let swept = self.queue.swept(connection, &Operate::EnqueueExisting, None, batch, |moment| {
            match moment {
                Moment::Begins => thread::sleep(pace.next.saturating_duration_since(Instant::now())),
                Moment::Done(rows) => {
                    done += rows;
                    wake::announce::<Q::Queue>();
                    progress(Progress { done, total });
                    pace.done(rows, Instant::now());
                }
            }
            true
        })?;
        Ok(swept.rows)
    }
}

/// Limits the number of rows in a second. It does not make up for lost time, because the limit is there to prevent
/// bursts.
struct Pace {
    per_second: Option<u32>,
    /// When the next batch may begin.
    next: Instant,
}

impl Pace {
    fn done(&mut self, rows: usize, now: Instant) {
        if let Some(per_second) = self.per_second {
            let took = Duration::from_secs_f64(rows as f64 / f64::from(per_second));
            self.next = (self.next + took).max(now);
        }
    }
}

/// The SQL type of a queue's version column.
type VersionType<T> = <<T as HasVersion>::Column as Expression>::SqlType;

/// An entity whose rows can be enqueued on one kind of connection by a version of type `V`. It is implemented wherever
/// the entity names a version column and Diesel can store `V` in it.
#[diagnostic::on_unimplemented(
    message = "a row of `{Self}` cannot be enqueued by a version of type `{V}` on `{C}`",
    note = "add `#[queue(version = my_column)]` to the entity, and give a value that can be stored in that column"
)]
pub trait EnqueueByVersion<C, V>: Entity {
    #[doc(hidden)]
    fn enqueue_version(connection: &mut C, key: &Self::Key, version: V) -> QueryResult<usize>;
}

impl<Q, C, V> EnqueueByVersion<C, V> for Q
where
    Q: StoredIn<C::Backend>,
    Q::Queue: HasVersion,
    VersionType<Q::Queue>: SqlType,
    <Q::Queue as HasVersion>::Column: Column<Table = <Q::Queue as QueueTable>::Table>,
    V: AsExpression<VersionType<Q::Queue>, Expression: QueryFragment<C::Backend>>,
    C: QueueConnection,
{
    fn enqueue_version(connection: &mut C, key: &Q::Key, version: V) -> QueryResult<usize> {
        execute(connection, &enqueue_if_newer(Q::row(key), version.as_expression()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_begin_at_the_pace_and_lost_time_is_not_made_up_for() {
        let start = Instant::now();
        let after = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut pace = Pace { per_second: Some(100), next: start };
        pace.done(5, after(10));
        assert_eq!(pace.next, after(50));
        pace.done(5, after(60));
        assert_eq!(pace.next, after(100));
        pace.done(5, after(500));
        assert_eq!(pace.next, after(500));
        pace.done(0, after(501));
        assert_eq!(pace.next, after(501));
        let mut unbounded = Pace { per_second: None, next: start };
        unbounded.done(1_000_000, after(1));
        assert_eq!(unbounded.next, start);
    }
}
