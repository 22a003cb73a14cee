//! Moves finished rows to their archive and archived rows back into the queue, and deletes rows whose work ended long ago.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::operate::Operate;
use super::queue::{QueueRows, Selection};
use super::read::{LoadsRows, MovesRows};
use super::sweep::Moment;
use crate::entity::{Entity, HasArchive};
use crate::error::Error;
use crate::poller::wake;

/// The result of [`QueueRows::redrive`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Redriven {
    /// How many rows were moved back and are due now.
    pub rows: usize,
    /// How many rows stay in the archive, because the table has another row with their key, or with another value that
    /// must be unique.
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

impl<Q: Entity, F: Selection> QueueRows<Q, F> {
    /// Moves finished rows to their archive: rows with `SUCCESS` to the archive for successes and `FAILED` rows to the
    /// archive for failures, if the entity names them. Pollers do this by themselves; call it for rows that finished
    /// before the archive existed. Skipped rows are left alone.
    ///
    /// Each transaction copies whole rows and removes them from the table: 1,000 rows, or as many as
    /// [`batch`](QueueRows::batch) says. It passes over rows that others have locked.
    ///
    /// # Errors
    ///
    /// As [`retry_now`](QueueRows::retry_now), and [`Error::Interrupted`] if batches were committed before the error. Rows
    /// that cannot be moved, because the archive already has their key or others refer to them, stay. When all others
    /// are moved, [`Error::Refused`] says how many stay, inside [`Error::Interrupted`] if other rows were moved.
    pub fn archive<C: MovesRows<Q, F>>(&self, connection: &mut C) -> Result<usize, Error>
    where
        Q::Queue: HasArchive,
    {
        self.swept(connection, &Operate::Archive, None, self.terms.batch, |_| true)?.unless_refused()
    }

    /// Moves rows back from the archive for failures, and enqueues them: they are due, and their tries start anew. This
    /// retries failed work, so each row keeps its [idempotency key](crate::Message::idempotency_key). The filter and
    /// the other conditions apply to the archived rows.
    ///
    /// Each transaction copies whole rows and removes them from the archive: 1,000 rows, or as many as
    /// [`batch`](QueueRows::batch) says. A row whose key is taken in the table stays archived, and is counted in
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
    /// As [`retry_now`](QueueRows::retry_now); [`Error::Interrupted`] if batches were committed before the error;
    /// [`Error::Archive`] if the entity names no archive for failures, or its `table!` names a schema. If the table refuses
    /// some rows for another reason than a taken value, such as a foreign key whose row is gone, all others are moved, and
    /// [`Error::Refused`] says how many stay, inside [`Error::Interrupted`] if other rows were moved.
    pub fn redrive<C: MovesRows<Q, F>>(&self, connection: &mut C) -> Result<Redriven, Error>
    where
        Q::Queue: HasArchive,
    {
        self.redrive_by(connection, &Operate::Redrive)
    }

    /// Does the same from the archive for successes: the work is done once more, from its first stage, and as a new occasion if
    /// the entity counts occasions.
    ///
    /// # Errors
    ///
    /// As [`redrive`](QueueRows::redrive).
    pub fn redrive_succeeded<C: MovesRows<Q, F>>(&self, connection: &mut C) -> Result<Redriven, Error>
    where
        Q::Queue: HasArchive,
    {
        self.redrive_by(connection, &Operate::RedriveSucceeded)
    }

    /// Deletes rows whose work has ended (`SUCCESS`, `FAILED` or `SKIPPED`, and no next attempt time) and whose last attempt
    /// was at least `older_than` ago, by the database's clock. Pending rows are never deleted, however old they are.
    ///
    /// Rows without a recorded attempt stay, because the database does not know how long ago their work ended: rows
    /// that an operator skipped before any attempt, and rows that were never enqueued. [`delete`](QueueRows::delete)
    /// removes them.
    ///
    /// It works in transactions of 1,000 rows, or as many as [`batch`](QueueRows::batch) says, and passes over rows that
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
    /// As [`retry_now`](QueueRows::retry_now), and [`Error::Interrupted`] if batches were committed before the error. Rows
    /// that cannot be deleted, because others refer to them, stay. When all others are deleted, [`Error::Refused`] says
    /// how many stay, inside [`Error::Interrupted`] if other rows were deleted.
    pub fn purge<C: MovesRows<Q, F>>(&self, connection: &mut C, older_than: Duration) -> Result<usize, Error> {
        self.swept(connection, &Operate::Purge(older_than), None, self.terms.batch, |_| true)?.unless_refused()
    }

    fn redrive_by<C: LoadsRows<Q, F>>(&self, connection: &mut C, operate: &Operate) -> Result<Redriven, Error> {
        let swept = self.swept(connection, operate, None, self.terms.batch, |moment| {
            if let Moment::Done(1..) = moment {
                wake::announce::<Q::Queue>();
            }
            true
        })?;
        match swept.are_conflicts() {
            true => Ok(Redriven { rows: swept.rows, conflicts: swept.refused }),
            false => Err(swept.unless_refused().expect_err("some are refused")),
        }
    }
}
