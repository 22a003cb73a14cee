//! Adds a queue to an existing table, as Diesel migrations or as SQL files.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use diesel::backend::Backend;
use diesel::connection::BoxableConnection;
use diesel::migration::{Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion, Result};
use diesel::result::QueryResult;

use super::queue_sql::StoredIn;
use super::release::Release;
use crate::backend::{OwnTable, QueueBackend, Schema, Step, Target, fingerprint};
use crate::row::Options;

/// Diesel's own table stores versions in 50 characters.
const MAX_VERSION: usize = 50;

/// The migrations of one or several entities, as a source for Diesel's
/// [`MigrationHarness`](https://docs.rs/diesel_migrations/latest/diesel_migrations/trait.MigrationHarness.html).
///
/// A migration adds the queue's columns and the index that serves the claim. It does not queue rows that already exist.
/// It adds only what is missing, so it can be run again after an interruption. Reverting it removes the index and the
/// columns, and with them the queue's state.
///
/// The version of a migration is made of the table's name and a hash of the columns' names. It sorts after versions
/// that begin with a digit, as those of the diesel CLI do, so the table exists before its queue. When an attribute
/// changes a name, a further migration becomes pending, which adds the new columns. It does not move the content of the
/// old columns; that is left to you.
///
/// ```
/// use diesel::prelude::*;
/// use diesel::connection::SimpleConnection;
/// use diesel_migrations::MigrationHarness;
/// use queueable::{Migrations, Queueable};
///
/// diesel::table! { payments (id) { id -> BigInt, } }
///
/// #[derive(Queryable, Selectable, Queueable)]
/// struct Payment { id: i64 }
///
/// let mut connection = SqliteConnection::establish(":memory:")?;
/// connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
/// connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// assert!(!connection.has_pending_migration(Migrations::new().entity::<Payment>())?);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Migrations<DB: Backend> {
    queues: Vec<fn() -> QueryResult<Target>>,
    others: Vec<Box<dyn MigrationSource<DB> + Send>>,
    own_tables: Vec<OwnTable>,
    blocks_writers: bool,
}

// Any backend, so that one without queues is an error only where an entity is added and where the source is used.
impl<DB: Backend> Migrations<DB> {
    /// Makes a source without migrations.
    #[expect(clippy::new_without_default, reason = "the backend is inferred from where the source is used")]
    pub fn new() -> Self {
        Migrations { queues: Vec::new(), others: Vec::new(), own_tables: Vec::new(), blocks_writers: false }
    }
}

impl<DB: QueueBackend> Migrations<DB> {
    /// Adds the queue of an entity.
    pub fn entity<Q: StoredIn<DB> + 'static>(mut self) -> Self {
        self.queues.push(|| Q::SQL.target());
        self
    }

    /// Adds the queue of an entity whose table has columns that you made for the queue by hand.
    ///
    /// [`entity`](Migrations::entity) refuses a table that has a column with the name of one of the queue's, because the
    /// queue would write into it. A column is known as the queue's by a comment, which the migration adds with it, and
    /// which dumps and restores keep. With this method the columns that exist need no such comment: the queue takes them
    /// over, and adds only what is missing. Rows whose `next_attempt_time` is set are due at that time. Keep the call:
    /// it is also what lets a revert drop these columns.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel::connection::SimpleConnection;
    /// use diesel_migrations::MigrationHarness;
    /// use queueable::{Migrations, Queueable};
    ///
    /// diesel::table! { payments (id) { id -> BigInt, } }
    ///
    /// #[derive(Queryable, Selectable, Queueable)]
    /// struct Payment { id: i64 }
    ///
    /// let mut connection = SqliteConnection::establish(":memory:")?;
    /// connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, next_attempt_time TEXT)")?;
    /// let refused = connection.run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap_err();
    /// assert!(refused.to_string().contains("a column next_attempt_time that is not the queue's"));
    /// connection.run_pending_migrations(Migrations::new().adopt::<Payment>())?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The migration is refused, and changes nothing, if a column cannot hold what the queue writes; the error gives the
    /// SQL that mends it.
    pub fn adopt<Q: StoredIn<DB> + 'static>(mut self) -> Self {
        self.queues.push(|| Ok(Target { adopts: true, ..Q::SQL.target()? }));
        self
    }

    /// Adds the control table, `queueable_control`, in which [`pause`](crate::Queueable::pause) and
    /// [`set_limits`](crate::Queueable::set_limits) ask running pollers to pause or limit a queue, and which has the name of the
    /// [environment](crate::Poller::environment). Only pollers with [`control`](crate::Poller::control) read it.
    ///
    /// The table stands where the session makes a new table: in the first schema of PostgreSQL's `search_path`, in the
    /// current database of MySQL. Pollers and operators find it there, so their sessions need the same one. Its
    /// migration is one of its own. Reverting it drops the table, and so ends all pauses for pollers that start
    /// afterwards; those that run keep to the pauses that they know.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_migrations::MigrationHarness;
    /// use queueable::Migrations;
    ///
    /// let mut connection = SqliteConnection::establish(":memory:")?;
    /// connection.run_pending_migrations(Migrations::new().control())?;
    /// assert!(!connection.has_pending_migration(Migrations::new().control())?);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The migration is refused if another table has this name.
    pub fn control(self) -> Self {
        self.own_table(OwnTable::Control)
    }

    /// Adds the table of minutes, `queueable_minutes`, in which pollers with [`minutes`](crate::Poller::minutes) count what
    /// they have done, and from which [`statistics`](crate::QueueRows::statistics) read it.
    ///
    /// Of the place of the table, and of its migration, what [`control`](Migrations::control) says is true.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_migrations::MigrationHarness;
    /// use queueable::Migrations;
    ///
    /// let mut connection = SqliteConnection::establish(":memory:")?;
    /// connection.run_pending_migrations(Migrations::new().minutes())?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The migration is refused if another table has this name.
    pub fn minutes(self) -> Self {
        self.own_table(OwnTable::Minutes)
    }

    /// Adds the table of pollers, `queueable_pollers`, in which pollers with [`register`](crate::Poller::register) say what they are and
    /// do, and from which [`pollers`](crate::pollers) reads it.
    ///
    /// Of the place of the table, and of its migration, what [`control`](Migrations::control) says is true.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_migrations::MigrationHarness;
    /// use queueable::Migrations;
    ///
    /// let mut connection = SqliteConnection::establish(":memory:")?;
    /// connection.run_pending_migrations(Migrations::new().pollers())?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The migration is refused if another table has this name.
    pub fn pollers(self) -> Self {
        self.own_table(OwnTable::Pollers)
    }

    /// Adds the table of the audit, `queueable_audit`, in which every change that names its author leaves a row: each call of
    /// [`QueueRows`](crate::QueueRows) after [`by`](crate::QueueRows::by), and each [`pause`](crate::Queueable::pause).
    /// [`audit`](fn@crate::audit) reads it.
    ///
    /// Of the place of the table, and of its migration, what [`control`](Migrations::control) says is true. Reverting the
    /// migration drops the table with all that it says.
    ///
    /// ```
    /// use diesel::prelude::*;
    /// use diesel_migrations::MigrationHarness;
    /// use queueable::Migrations;
    ///
    /// let mut connection = SqliteConnection::establish(":memory:")?;
    /// connection.run_pending_migrations(Migrations::new().audit())?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The migration is refused if another table has this name.
    pub fn audit(self) -> Self {
        self.own_table(OwnTable::Audit)
    }

    fn own_table(mut self, table: OwnTable) -> Self {
        if !self.own_tables.contains(&table) {
            self.own_tables.push(table);
        }
        self
    }

    /// Adds the application's own migrations, so that one source knows them all. Diesel can revert or redo the last
    /// migration only with a source that contains it.
    pub fn and(mut self, source: impl MigrationSource<DB> + Send + 'static) -> Self {
        self.others.push(Box::new(source));
        self
    }

    /// Lets [`write_to`](Migrations::write_to) write the indexes of PostgreSQL into one folder.
    ///
    /// Without it, each index has a folder of its own, because the server takes `CREATE INDEX CONCURRENTLY` only as a
    /// statement of its own. With it, the indexes are built by `CREATE INDEX`, in one transaction: readers go on, but
    /// no session writes to the tables until all indexes are built. That takes about a second for some million rows. A
    /// partitioned table can have its migration from a folder in this way only. On other databases, and where the
    /// program runs the migrations, it changes nothing.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # let directory = std::env::temp_dir().join(format!("queueable_blocking_{}", std::process::id()));
    /// let migrations: Migrations<diesel::sqlite::Sqlite> = Migrations::new().entity::<Payment>().block_writers();
    /// assert_eq!(migrations.write_to(&directory)?.len(), 1);
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn block_writers(mut self) -> Self {
        self.blocks_writers = true;
        self
    }

    /// Writes the queues' migrations as folders with `up.sql` and `down.sql` for the diesel CLI, for `embed_migrations!`
    /// and for review, and returns the folders. Call it for each release of the application, with all entities.
    ///
    /// A call writes one folder for everything that is new: new entities, and options that were added to others. If
    /// nothing is new, it writes none. On PostgreSQL each index has a further folder, because it is built
    /// `CONCURRENTLY`, unless the migrations [block writers](Migrations::block_writers). A folder's version is the
    /// current time in UTC, as in `diesel migration generate`; its name says what it adds.
    ///
    /// What was written before is read from the lines `-- queueable ..` in the directory's `up.sql` files. So the SQL
    /// below them may be edited, and the folders may be renamed or put together. The application's own migrations are
    /// not written. The files do not look at what is there: a partitioned table of PostgreSQL needs the migration
    /// itself, which indexes each partition first, or `block_writers`. They add, and take nothing away: if a list of
    /// `rerun_on_change` has fewer columns than before, drop the earlier trigger, `zz_queueable_..`, by a migration of your own.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use queueable::{Migrations, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # diesel::table! { invoices (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Invoice { id: i64 }
    /// # let directory = &std::env::temp_dir().join(format!("queueable_release_{}", std::process::id()));
    /// let migrations: Migrations<diesel::sqlite::Sqlite> = Migrations::new().entity::<Payment>().entity::<Invoice>();
    /// let written = migrations.write_to(directory)?;
    /// assert!(written[0].to_string_lossy().ends_with("_queue_of_payments_and_invoices"));
    /// assert!(migrations.write_to(directory)?.is_empty());
    /// # std::fs::remove_dir_all(directory)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the directory cannot be read or written, or if an entity is [adopted](Migrations::adopt): a file cannot know
    /// which columns its table has.
    pub fn write_to(&self, directory: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
        let mut release = Release::begun_in(directory.as_ref())?;
        for queue in &self.queues {
            let target = queue().map_err(io::Error::other)?;
            if target.adopts {
                let table = &target.table;
                return Err(io::Error::other(format!(
                    "the columns that {table} lacks are known only when the migration runs: let the program run it, or \
                     write the ALTER TABLE yourself"
                )));
            }
            let queue = version_of(&Target { options: Options::NONE, ..target.clone() });
            let as_written = DB::steps(&Target { blocks_writers: self.blocks_writers, ..target.clone() });
            for (step, as_written) in DB::steps(&target).iter().zip(as_written) {
                let first_stage = target.options.stages.and_then(|stages| stages.names.first());
                release.add(&target.table.name, mark_of(&queue, step, first_stage), as_written);
            }
        }
        for table in &self.own_tables {
            let step = DB::own_step(*table);
            release.add(table.name(), mark_of(table.name(), &step, None), step);
        }
        release.write()
    }
}

/// Returns what tells a step from all others. The queue and the name are enough for the steps of every queue. For the
/// others their SQL counts too, because another option makes another step of the same name. The default of a column of stages does
/// not count: with another first stage, a second step would add a column that is there.
fn mark_of(queue: &str, step: &Step, first_stage: Option<&&str>) -> u64 {
    let default = first_stage.map_or_else(String::new, |stage| format!("'{stage}'"));
    match step.name {
        "columns" | "index" => fingerprint(&format!("{queue}\n{}", step.name)),
        name => fingerprint(&format!("{queue}\n{name}\n{}", step.up.join("\n").replace(&default, ""))),
    }
}

impl<DB: Backend> fmt::Debug for Migrations<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migrations")
            .field("queues", &self.queues.len())
            .field("own_tables", &self.own_tables)
            .field("others", &self.others.len())
            .finish()
    }
}

impl<DB: QueueBackend + 'static> MigrationSource<DB> for Migrations<DB> {
    fn migrations(&self) -> Result<Vec<Box<dyn Migration<DB>>>> {
        let mut migrations = Vec::new();
        for other in &self.others {
            migrations.extend(other.migrations()?);
        }
        for queue in &self.queues {
            let target = queue()?;
            migrations
                .push(Box::new(OwnMigration { version: version_of(&target), adds: Adds::Queue(Box::new(target)) }));
        }
        for table in &self.own_tables {
            // Further columns make a further migration.
            let version = format!("{}_{:016x}", table.name(), fingerprint(&table.columns().join("\n")));
            migrations.push(Box::new(OwnMigration { version, adds: Adds::Table(*table) }));
        }
        Ok(migrations)
    }
}

/// `queueable_<table>_<hash of all names>`, in at most 50 characters.
fn version_of(target: &Target) -> String {
    let table = target.table.to_string();
    let mut shape = vec![table.as_str()];
    shape.extend(target.columns.all());
    shape.extend(target.options.shape());
    let hash = format!("_{:016x}", fingerprint(&shape.join("\n")));
    let mut version = "queueable_".to_owned();
    for c in target.table.name.chars() {
        if version.len() + c.len_utf8() + hash.len() > MAX_VERSION {
            break;
        }
        // The version becomes the name of a folder.
        version.push(if c.is_alphanumeric() { c } else { '_' });
    }
    version + &hash
}

/// What a migration adds.
pub(crate) enum Adds {
    Queue(Box<Target>),
    Table(OwnTable),
}

/// Adds a queue or a table of the library's own.
pub(crate) struct OwnMigration {
    /// Its version, which is also its name.
    pub(crate) version: String,
    pub(crate) adds: Adds,
}

impl OwnMigration {
    /// Returns the queue's connection behind the one on which the migration is run.
    fn connection<'a, DB: QueueBackend + 'static>(
        &self,
        connection: &'a mut dyn BoxableConnection<DB>,
    ) -> Result<&'a mut dyn Schema> {
        DB::own_connection(connection).ok_or_else(|| {
            let what = match &self.adds {
                Adds::Queue(target) => format!("the queue of {}", target.table),
                Adds::Table(table) => format!("the table {}", table.name()),
            };
            format!("{what} can only be added on a connection that a queue can use, pooled or not").into()
        })
    }
}

impl<DB: QueueBackend + 'static> Migration<DB> for OwnMigration {
    fn run(&self, connection: &mut dyn BoxableConnection<DB>) -> Result<()> {
        let connection = self.connection(connection)?;
        Ok(match &self.adds {
            Adds::Queue(target) => connection.add_queue(target),
            Adds::Table(table) => connection.add_own(*table),
        }?)
    }

    fn revert(&self, connection: &mut dyn BoxableConnection<DB>) -> Result<()> {
        let connection = self.connection(connection)?;
        Ok(match &self.adds {
            Adds::Queue(target) => connection.remove_queue(target),
            Adds::Table(table) => connection.remove_own(*table),
        }?)
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        self
    }

    fn name(&self) -> &dyn MigrationName {
        self
    }
}

impl MigrationMetadata for OwnMigration {
    fn run_in_transaction(&self) -> bool {
        // PostgreSQL builds an index without blocking writers only outside a transaction, and MySQL commits at DDL.
        false
    }
}

impl MigrationName for OwnMigration {
    fn version(&self) -> MigrationVersion<'_> {
        MigrationVersion::from(&self.version)
    }
}

impl fmt::Display for OwnMigration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.version)
    }
}
