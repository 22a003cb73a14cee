//! Changes the priority of rows.

use super::dry_run::{DryRun, Preview};
use super::operation;
use super::queue::{LoadOn, Queue, ReadOn};
use super::selection::{Chosen, Selection};
use crate::backend::{AsQueueConnection, execute};
use crate::entity::{Entity, HasPriority};
use crate::error::Error;
use crate::statement::SetPriority;

impl<Q: Entity, F: Selection> Queue<Q, F> {
    /// Sets the priority of rows: among the rows that are due, those with a lower number are claimed first. A new row
    /// has the priority 0; a negative one comes before it.
    ///
    /// Nothing else of the row changes. It applies to every row that the conditions pick, except skipped ones: finished
    /// rows and rows that are not queued keep the priority for a later enqueueing. As all changing calls, it waits for
    /// a row that a worker has locked. A row under a lease is changed, and its attempt goes on.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
    /// #[derive(Queryable, Selectable, Queueable)]
    /// #[queue(priority)]
    /// struct Payment { id: i64, company_id: i64 }
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    ///
    /// // The rest of this company's payments had better wait.
    /// Payment::queue().filter(payments::company_id.eq(3345)).pending().set_priority(&mut connection, 10)?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now).
    pub fn set_priority<C: AsQueueConnection>(&self, connection: &mut C, priority: i32) -> Result<usize, Error>
    where
        F: Chosen,
        Q::Queue: HasPriority,
        Self: ReadOn<C::Connection>,
    {
        let operation = operation::set_priority(priority);
        self.each_kind(connection.as_queue_connection(), &operation, |connection, condition, priority, alone| {
            execute(connection, &SetPriority { condition, priority: *priority, keep_off_index: alone })
        })
    }
}

impl<Q: Entity, F: Selection> DryRun<Q, F> {
    /// Reads what [`Queue::set_priority`] would do.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn set_priority<C: AsQueueConnection>(&self, connection: &mut C, priority: i32) -> Result<Preview<Q>, Error>
    where
        Q::Queue: HasPriority,
        Queue<Q, F>: LoadOn<C::Connection, Entity = Q>,
    {
        self.0.preview(connection, &operation::set_priority(priority))
    }
}
