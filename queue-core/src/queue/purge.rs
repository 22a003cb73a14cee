//! Removes rows whose work ended long ago.

use std::time::Duration;

use super::operation;
use super::queue::{LoadOn, Queue, ReadOn};
use super::selection::{Chosen, Selection};
use super::sweep::{Sweep, execute_on_each, is_refusal, no_columns};
use crate::backend::AsQueueConnection;
use crate::entity::Entity;
use crate::error::Error;
use crate::statement::{Condition, RemoveAll};

impl<Q: Entity, F: Selection> Queue<Q, F> {
    /// Deletes rows whose work has ended (`SUCCESS`, `FAILED` or `SKIPPED`, and no next attempt time) and whose last attempt
    /// was at least `older_than` ago, by the database's clock. Pending rows are never deleted, however old they are.
    ///
    /// Rows without a recorded attempt stay, because the database does not know how long ago their work ended: rows
    /// that an operator skipped before any attempt, and rows that were never enqueued. [`delete`](Queue::delete)
    /// removes them.
    ///
    /// It works in transactions of 1,000 rows, or as many as [`batch`](Queue::batch) says, and passes over rows that
    /// others have locked. Inside the caller's transaction all batches belong to that transaction.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Debug, Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// let month = Duration::from_secs(30 * 24 * 60 * 60);
    /// let purged = Payment::queue().all_rows().purge(&mut connection, month)?;
    /// # assert_eq!(purged, 0);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now), and [`Error::Interrupted`] if batches were committed before the error. Rows
    /// that cannot be deleted, because others refer to them, stay. When all others are deleted, [`Error::Refused`] says
    /// how many stay, inside [`Error::Interrupted`] if other rows were deleted.
    pub fn purge<C: AsQueueConnection>(&self, connection: &mut C, older_than: Duration) -> Result<usize, Error>
    where
        F: Chosen,
        Self: LoadOn<C::Connection>,
    {
        let batch = self.batch;
        let sweep = Sweep { archive: None, batch, once: false, is_refusal: Some(is_refusal), columns: &no_columns };
        let queue = self.condition(&[]).queue;
        let remove = |connection: &mut C::Connection, keys: &[_], _: &[String], _: &_| {
            execute_on_each(connection, keys, &RemoveAll(Condition::of_keys(queue, keys)))
        };
        let connection = connection.as_queue_connection();
        self.sweep(connection, &operation::purge(older_than), &sweep, remove, |_| {})?.unless_refused()
    }
}
