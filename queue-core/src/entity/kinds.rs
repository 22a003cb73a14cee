//! Traits for what an entity has beyond the five columns. Operations ask for them in their bounds.

use diesel::Column;

use super::entity::Entity;
use super::entity::QueueTable;
use crate::row::Stage;

/// A queue whose rows have a priority: `#[queue(priority)]`. The derive implements it.
#[diagnostic::on_unimplemented(message = "this queue has no priority", note = "add `#[queue(priority)]` to the entity")]
pub trait HasPriority: QueueTable {}

/// A queue whose rows pass through the stages of the enum `S`: `#[queue(stage = ..)]`. The derive implements it. The enum
/// is a parameter, so that it may be more private than the entity.
#[diagnostic::on_unimplemented(
    message = "this queue has no stages",
    note = "add `#[queue(stage = MyStage)]` to the entity, where `MyStage` is an enum that derives `Stage`"
)]
pub trait HasStages<S>: QueueTable {}

/// A stage of the entity `Q`: a value of the enum that `#[queue(stage = ..)]` names. There is nothing to implement by
/// hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a stage of `{Q}`",
    label = "no stage of `{Q}`",
    note = "the stages of an entity are the values of the enum in `#[queue(stage = MyStage)]`"
)]
pub trait StageOf<Q>: Stage {}

#[diagnostic::do_not_recommend]
impl<Q: Entity<Queue: HasStages<S>>, S: Stage> StageOf<Q> for S {}

/// A queue whose rows have schedules: `#[queue(periodic)]`. The derive implements it.
///
/// A row whose `period` (seconds) or `cron` is set is due again after each run, at the next time on its schedule. Its
/// status is `SUCCESS` or, after a run that failed for good, `ERROR` with the failure's text. A row with neither runs
/// once, as in any other queue. The first run is at the time for which the row is enqueued, and a period is counted
/// from there:
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// use queueable::{Queueable, Schedule};
///
/// # diesel::table! { jobs (id) { id -> BigInt, name -> Text, } }
/// #[derive(Queryable, Selectable, Queueable)]
/// #[queue(periodic)]
/// struct Job {
///     id: i64,
///     name: String,
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # diesel::connection::SimpleConnection::batch_execute(&mut connection,
/// #     "CREATE TABLE jobs (id INTEGER PRIMARY KEY NOT NULL, name TEXT NOT NULL)")?;
/// # connection.run_pending_migrations(queueable::Migrations::new().entity::<Job>())?;
/// let every_minute = (jobs::name.eq("ping"), job_queue::period.eq(60), Job::due_now());
/// diesel::insert_into(jobs::table).values(every_minute).execute(&mut connection)?;
///
/// let first = Schedule::cron("30 2 * * Mon-Fri", "Europe/Berlin")?.next(chrono::Utc::now()).expect("it never ends");
/// let nightly = (job_queue::cron.eq("30 2 * * Mon-Fri"), job_queue::time_zone.eq("Europe/Berlin"), Job::due_at(first));
/// diesel::insert_into(jobs::table).values((jobs::name.eq("books"), nightly)).execute(&mut connection)?;
/// # Ok(()) }
/// ```
///
/// Each run is an occasion of its own, with its own [idempotency key](crate::Message::idempotency_key): `occasion`
/// counts them.
///
/// `scheduled_time` is the scheduled time of the run that comes next, or of one that is not finished yet. A retry, or
/// an operator's [`retry_now`](crate::QueueRows::retry_now), moves the next attempt and not the schedule. To begin a
/// schedule anew, also after a change of its columns, set `scheduled_time` to null together with `due_at(..)`. The
/// queue sets a row aside as `FAILED` when the row has ended its process three times, and when its columns make no
/// valid schedule. The text on the row says which.
#[diagnostic::on_unimplemented(
    message = "this queue has no schedules",
    note = "add `#[queue(periodic)]` to the entity"
)]
pub trait HasSchedule: QueueTable {}

/// A queue whose rows have a version: `#[queue(version = ..)]`. The derive implements it.
#[diagnostic::on_unimplemented(
    message = "this queue has no version",
    note = "add `#[queue(version = my_column)]` to the entity"
)]
pub trait HasVersion: QueueTable {
    /// The column.
    type Column: Column<Table = Self::Table> + Default;
}

/// A queue whose finished rows can be archived: `#[queue(archive(..))]`. The derive implements it.
#[diagnostic::on_unimplemented(
    message = "this queue has no archive",
    note = "add `#[queue(archive(success = my_table, failed = my_other_table))]` to the entity"
)]
pub trait HasArchive: QueueTable {}
