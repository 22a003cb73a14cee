//! Moves finished rows to their archive, and archived rows back into the queue.

use std::fmt;

use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};
use serde::{Deserialize, Serialize};

use super::dry_run::{DryRun, Preview, PreviewOn};
use super::operation;
use super::queue::Queue;
use super::selection::{Chosen, Selection};
use super::sweep::{Moment, Refused, Sweep, SweepOn, exactly};
use crate::backend::{AsQueueConnection, QueueConnection, Schema, TableName, execute};
use crate::entity::{Entity, HasArchive, QueueTable, StoredIn};
use crate::error::Error;
use crate::poller::wake;
use crate::row::OnFinish;
use crate::statement::{Archive, CopyRows};

/// What [`Queue::redrive`] came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Redriven {
    /// How many rows were moved back and are due.
    pub rows: usize,
    /// How many rows stay in the archive, because the table has a row with their key, or with another value that must be
    /// unique.
    pub conflicts: usize,
}

impl fmt::Display for Redriven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows are back in the queue", self.rows)?;
        match self.conflicts {
            0 => Ok(()),
            conflicts => write!(f, ", {conflicts} stay archived, because the table has others in their place"),
        }
    }
}

/// Which archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Failed,
    Succeeded,
}

impl<Q: Entity, F: Chosen> Queue<Q, F>
where
    Q::Queue: HasArchive,
{
    /// Moves finished rows to their archive: those with `SUCCESS` to the one for successes, those that have `FAILED` to the one
    /// for failures, as far as the entity names them. Pollers do so by themselves; this is for rows that had finished before
    /// the archive was there. Skipped rows are left alone.
    ///
    /// A row is copied whole and removed in one transaction, of 1,000 rows or as many as [`batch`](Queue::batch) says. Rows that
    /// others hold are passed over.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now), and [`Error::Interrupted`] when batches were committed before. Rows that cannot be
    /// moved, because the archive has their key already or others refer to them, stay; when all others are moved,
    /// [`Error::Refused`] tells how many there are, within [`Error::Interrupted`] if there were others.
    pub fn archive<C: AsQueueConnection>(&self, connection: &mut C) -> Result<usize, Error>
    where
        Self: SweepOn<C::Connection, Key = Q::Key> + ArchiveOn<C::Connection, Key = Q::Key>,
    {
        let connection = connection.as_queue_connection();
        let live = self.live_table()?;
        let (mut rows, mut refused) = (0, Refused::default());
        for (states, archive) in operation::archive(&Q::Queue::OPTIONS).0 {
            let archive = live.beside(archive);
            let sweep = Sweep { states: &states, archive: None, batch: self.batch, once: false };
            let work = |queue: &Self, connection: &mut C::Connection, keys: &[Q::Key]| {
                // Under the rows' locks, which keep the application from adding a column in between.
                let columns = connection.copied_columns(&live)?;
                queue.copy_to(connection, &archive, &columns, keys)?;
                queue.remove_keys(connection, keys, None)
            };
            rows += self.sweep_leaving(connection, &sweep, &mut refused, work)?;
        }
        refused.beside(rows)
    }

    /// Moves rows back from the archive for failures, and enqueues them: they are due, and their tries start anew. What has failed
    /// is retried, so it keeps its [idempotency key](crate::Message::idempotency_key). The filter and the other conditions are asked of the archived rows.
    ///
    /// A row is copied whole and removed from the archive in one transaction, of 1,000 rows or as many as
    /// [`batch`](Queue::batch) says. A row whose key is taken in the table stays archived, and is counted in
    /// [`Redriven::conflicts`].
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
    /// #[derive(Queryable, Selectable, Queueable)]
    /// #[queue(archive(failed = payments_failed))]
    /// struct Payment { id: i64, company_id: i64 }
    ///
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// let redriven = Payment::queue().filter(payments::company_id.eq(3345)).redrive(&mut connection)?;
    /// assert_eq!((redriven.rows, redriven.conflicts), (0, 0));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`retry_now`](Queue::retry_now); [`Error::Interrupted`] when batches were committed before; [`Error::Archive`] when
    /// the entity names no archive for failures, or its `table!` names a schema.
    pub fn redrive<C: AsQueueConnection>(&self, connection: &mut C) -> Result<Redriven, Error>
    where
        Self: SweepOn<C::Connection, Key = Q::Key> + ArchiveOn<C::Connection, Key = Q::Key>,
    {
        self.redrive_from(connection.as_queue_connection(), Side::Failed)
    }

    /// The same from the archive for successes: the work is done once more, as another occasion where the entity counts them.
    ///
    /// # Errors
    ///
    /// As [`redrive`](Queue::redrive).
    pub fn redrive_succeeded<C: AsQueueConnection>(&self, connection: &mut C) -> Result<Redriven, Error>
    where
        Self: SweepOn<C::Connection, Key = Q::Key> + ArchiveOn<C::Connection, Key = Q::Key>,
    {
        self.redrive_from(connection.as_queue_connection(), Side::Succeeded)
    }

    fn redrive_from<C: QueueConnection>(&self, connection: &mut C, side: Side) -> Result<Redriven, Error>
    where
        Self: SweepOn<C, Key = Q::Key> + ArchiveOn<C, Key = Q::Key>,
    {
        let live = self.live_table()?;
        let archive = side.archive::<Q>(&live)?;
        let mut redriven = Redriven::default();
        for (states, change) in operation::redrive(side == Side::Succeeded).0 {
            // Once: rows that are in conflict would be tried again, and counted twice.
            let sweep = Sweep { states: &states, archive: Some(&archive), batch: self.batch, once: true };
            let work = |queue: &Self, connection: &mut C, keys: &[Q::Key]| {
                let archived = connection.copied_columns(archive.table())?;
                let mut columns = connection.copied_columns(&live)?;
                columns.retain(|column| archived.iter().any(|archived| archived.eq_ignore_ascii_case(column)));
                let move_back = |connection: &mut C, keys: &[Q::Key]| {
                    connection.transaction(|connection| {
                        queue.copy_from(connection, &archive, &columns, keys)?;
                        queue.change_keys(connection, keys, &change)?;
                        queue.remove_keys(connection, keys, Some(&archive))
                    })
                };
                match move_back(connection, keys) {
                    Err(error) if is_conflict(&error) => {}
                    moved => return moved,
                }
                let mut moved = 0;
                for key in keys {
                    match move_back(connection, std::slice::from_ref(key)) {
                        Err(error) if is_conflict(&error) => redriven.conflicts += 1,
                        one => moved += one?,
                    }
                }
                Ok(moved)
            };
            redriven.rows += self.sweep(connection, &sweep, work, |moment| {
                if let Moment::Done(1..) = moment {
                    wake::announce::<Q::Queue>();
                }
            })?;
        }
        Ok(redriven)
    }
}

impl<Q: Entity, F: Chosen> DryRun<Q, F>
where
    Q::Queue: HasArchive,
{
    /// What [`Queue::archive`] would do.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    pub fn archive<C: AsQueueConnection>(&self, connection: &mut C) -> Result<Preview<Q>, Error>
    where
        Queue<Q, F>: PreviewOn<C::Connection, Entity = Q>,
    {
        self.0.preview(connection, &operation::archive(&Q::Queue::OPTIONS))
    }

    /// What [`Queue::redrive`] would do. Rows that would be in conflict count too.
    ///
    /// # Errors
    ///
    /// As [`Queue::redrive`].
    pub fn redrive<C: AsQueueConnection>(&self, connection: &mut C) -> Result<Preview<Q>, Error>
    where
        Queue<Q, F>: PreviewOn<C::Connection, Entity = Q> + ArchiveOn<C::Connection, Key = Q::Key>,
    {
        self.redrive_from(connection.as_queue_connection(), Side::Failed)
    }

    /// What [`Queue::redrive_succeeded`] would do. Rows that would be in conflict count too.
    ///
    /// # Errors
    ///
    /// As [`Queue::redrive`].
    pub fn redrive_succeeded<C: AsQueueConnection>(&self, connection: &mut C) -> Result<Preview<Q>, Error>
    where
        Queue<Q, F>: PreviewOn<C::Connection, Entity = Q> + ArchiveOn<C::Connection, Key = Q::Key>,
    {
        self.redrive_from(connection.as_queue_connection(), Side::Succeeded)
    }

    fn redrive_from<C: QueueConnection>(&self, connection: &mut C, side: Side) -> Result<Preview<Q>, Error>
    where
        Queue<Q, F>: PreviewOn<C, Entity = Q> + ArchiveOn<C, Key = Q::Key>,
    {
        let archive = side.archive::<Q>(&self.0.live_table()?)?;
        Ok(self.0.read_preview(connection, &operation::redrive(false).kinds(), Some(&archive))?)
    }
}

impl Side {
    fn archive<Q: Entity>(self, live: &TableName) -> Result<Archive, Error> {
        let options = Q::Queue::OPTIONS;
        let (on_finish, rows, key) = match self {
            Side::Failed => (options.on_failure, "failed", "failed"),
            Side::Succeeded => (options.on_success, "succeeded", "success"),
        };
        match on_finish {
            OnFinish::Archive(name) => Archive::of(live, name),
            _ => Err(Error::Archive(format!(
                "{} has no archive for rows that have {rows}: name it with #[queue(archive({key} = ..))]",
                Q::ENTITY
            ))),
        }
    }
}

fn is_conflict(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _))
}

/// The moves of a selection's rows on one kind of connection. It is implemented wherever Diesel can run them.
pub trait ArchiveOn<C> {
    /// The primary key.
    type Key;
    #[doc(hidden)]
    fn live_table(&self) -> QueryResult<TableName>;
    #[doc(hidden)]
    fn copy_to(
        &self,
        connection: &mut C,
        archive: &TableName,
        columns: &[String],
        keys: &[Self::Key],
    ) -> QueryResult<usize>;
    #[doc(hidden)]
    fn copy_from(
        &self,
        connection: &mut C,
        archive: &Archive,
        columns: &[String],
        keys: &[Self::Key],
    ) -> QueryResult<usize>;
}

impl<Q, F, C> ArchiveOn<C> for Queue<Q, F>
where
    Q: StoredIn<C::Backend>,
    F: Selection,
    C: QueueConnection,
{
    type Key = Q::Key;

    fn live_table(&self) -> QueryResult<TableName> {
        TableName::of(Q::Queue::TABLE, &C::Backend::default())
    }

    fn copy_to(
        &self,
        connection: &mut C,
        archive: &TableName,
        columns: &[String],
        keys: &[Q::Key],
    ) -> QueryResult<usize> {
        exactly(keys.len(), execute(connection, &CopyRows::<Q>::to(archive, columns, keys))?)
    }

    fn copy_from(
        &self,
        connection: &mut C,
        archive: &Archive,
        columns: &[String],
        keys: &[Q::Key],
    ) -> QueryResult<usize> {
        exactly(keys.len(), execute(connection, &CopyRows::<Q>::from(archive, columns, keys))?)
    }
}
