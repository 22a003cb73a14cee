//! A SQLite file for each test, copied from one that was migrated once.

use std::error::Error;
use std::path::Path;
use std::sync::OnceLock;
use std::{fmt, fs};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use tempfile::TempDir;

/// Makes the tables of an application.
type SetUp = fn(&mut SqliteConnection) -> Result<(), Box<dyn Error + Send + Sync>>;

/// A test's connection waits so long for other connections to its file, and does not wait for the disk: nobody reads the file
/// after a crash.
const OF_TESTS: &str = "PRAGMA busy_timeout = 5000; PRAGMA synchronous = OFF";

/// The tables of an application on SQLite, of which each test gets a file of its own.
///
/// The first test runs the migrations, on a temporary file. Its contents are kept in memory, and every test gets a copy. A copy
/// takes less than a millisecond, so tests may all run at once, also those that commit.
///
/// Put it into a `static`. It takes any closure that makes the tables: with the application's own migrations, with SQL text, and
/// with rows that every test needs.
///
/// ```
/// use diesel::connection::SimpleConnection;
/// use diesel::prelude::*;
/// use diesel_migrations::MigrationHarness;
/// use queueable::testing::{SqliteTemplate, TestQueue};
/// use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable};
///
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// static SHOP: SqliteTemplate = SqliteTemplate::new(|connection| {
///     // Or `connection.run_pending_migrations(MIGRATIONS)?`, with the application's `EmbeddedMigrations`.
///     connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
///     connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
///     Ok(())
/// });
///
/// // #[test]
/// fn a_payment_is_charged() {
///     let mut shop = SHOP.begin();
///     let payment = (payments::id.eq(1), Payment::due_now());
///     diesel::insert_into(payments::table).values(payment).execute(&mut shop.connection).unwrap();
///     assert_eq!(Payment::drain(&mut shop.connection, &charge).unwrap().succeeded(), 1);
/// }
/// # a_payment_is_charged();
/// ```
///
/// Settings of the file, such as `PRAGMA journal_mode = WAL`, hold in the copies. Settings of a connection, such as `PRAGMA
/// foreign_keys`, do not: make them on the connection of an [opened](Self::open) database, before a transaction begins.
pub struct SqliteTemplate {
    set_up: SetUp,
    contents: OnceLock<Vec<u8>>,
}

impl SqliteTemplate {
    /// Makes a template. The closure runs when the first test asks for a database, once in the process.
    pub const fn new(set_up: SetUp) -> Self {
        SqliteTemplate { set_up, contents: OnceLock::new() }
    }

    /// Makes a database for a test, and opens a connection to it.
    ///
    /// # Panics
    ///
    /// If the template cannot be set up, or no file can be written in the system's temporary directory.
    #[track_caller]
    pub fn open(&self) -> SqliteDatabase {
        let contents = self.contents.get_or_init(|| match contents_after(self.set_up) {
            Ok(contents) => contents,
            Err(error) => panic!("the tables of the tests cannot be made: {error}"),
        });
        SqliteDatabase::holding(contents).unwrap_or_else(|error| panic!("a test's database cannot be made: {error}"))
    }

    /// Makes a database for a test, and begins Diesel's test transaction on its connection, which is never committed.
    ///
    /// In it the [clock](crate::testing::travel) of a test stays where the test moves it. Choose [`open`](Self::open) if other
    /// connections, of a pool or of a poller, have to write into the file too: SQLite has one writer at a time.
    ///
    /// # Panics
    ///
    /// As [`open`](Self::open) does.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use queueable::testing::SqliteTemplate;
    /// # static SHOP: SqliteTemplate = SqliteTemplate::new(|_| Ok(()));
    /// let mut shop = SHOP.begin();
    /// queueable::testing::freeze(&mut shop.connection)?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[track_caller]
    pub fn begin(&self) -> SqliteDatabase {
        let mut database = self.open();
        database.connection.begin_test_transaction().expect("a new connection has no transaction");
        database
    }
}

impl fmt::Debug for SqliteTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTemplate").field("bytes", &self.contents.get().map(Vec::len)).finish_non_exhaustive()
    }
}

/// Sets up a file, and returns what is in it then. The file goes.
fn contents_after(set_up: SetUp) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let directory = directory()?;
    let file = directory.path().join("template.sqlite");
    let mut connection = connect(text_of(&file)?)?;
    set_up(&mut connection)?;
    // Also writes the file if nothing else has.
    connection.batch_execute("BEGIN IMMEDIATE; COMMIT").map_err(|error| {
        format!("{error}; the closure of the template has to commit what it writes, and to leave no transaction open")
    })?;
    // The last connection to a file writes what its journal has into it.
    drop(connection);
    Ok(fs::read(file)?)
}

/// The database of one test, made by a [`SqliteTemplate`]. Its file goes with it.
///
/// ```
/// # use diesel::connection::SimpleConnection;
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::testing::SqliteTemplate;
/// # use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # static SHOP: SqliteTemplate = SqliteTemplate::new(|connection| {
/// #     connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
/// #     connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// #     Ok(())
/// # });
/// use diesel::r2d2::{ConnectionManager, Pool};
///
/// let mut shop = SHOP.open();
/// diesel::insert_into(payments::table).values((payments::id.eq(1), Payment::due_now())).execute(&mut shop.connection)?;
///
/// let pool = Pool::builder().max_size(2).build(ConnectionManager::<SqliteConnection>::new(shop.url()))?;
/// assert_eq!(Payment::poller(pool, charge).workers(1).run_until_idle()?.succeeded, 1);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use = "the file goes with it"]
pub struct SqliteDatabase {
    /// The test's connection.
    pub connection: SqliteConnection,
    url: String,
    /// Dropped after the connection: some systems remove no open file.
    _directory: TempDir,
}

impl SqliteDatabase {
    fn holding(contents: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let directory = directory()?;
        let file = directory.path().join("test.sqlite");
        fs::write(&file, contents)?;
        let url = text_of(&file)?.to_owned();
        Ok(SqliteDatabase { connection: connect(&url)?, url, _directory: directory })
    }

    /// Returns where the file is, as Diesel and its pools take it. It is there as long as this value.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Opens one more connection. It waits up to five seconds for the others, as [`connection`](Self::connection) does.
    ///
    /// # Panics
    ///
    /// If the file cannot be opened.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use queueable::testing::SqliteTemplate;
    /// # static SHOP: SqliteTemplate = SqliteTemplate::new(|_| Ok(()));
    /// let shop = SHOP.open();
    /// let mut other = shop.connect();
    /// # diesel::sql_query("SELECT 1").execute(&mut other)?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[track_caller]
    pub fn connect(&self) -> SqliteConnection {
        connect(&self.url).unwrap_or_else(|error| panic!("{}: {error}", self.url))
    }
}

impl fmt::Debug for SqliteDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteDatabase").field("url", &self.url).finish_non_exhaustive()
    }
}

fn connect(url: &str) -> Result<SqliteConnection, Box<dyn Error + Send + Sync>> {
    let mut connection = SqliteConnection::establish(url)?;
    connection.batch_execute(OF_TESTS)?;
    Ok(connection)
}

fn directory() -> Result<TempDir, Box<dyn Error + Send + Sync>> {
    Ok(tempfile::Builder::new().prefix("queueable-test-").tempdir()?)
}

fn text_of(file: &Path) -> Result<&str, String> {
    file.to_str().ok_or_else(|| format!("{}: SQLite takes a path that is UTF-8", file.display()))
}
