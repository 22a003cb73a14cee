//! [`QueueBackend`] answers for the SQL text, [`QueueConnection`] for the session: how it is prepared, how a transaction
//! begins, and which errors are not the handler's fault. [`Schema`] answers for the DDL.

use std::time::Duration;

use diesel::backend::Backend;
use diesel::connection::{LoadConnection, TransactionManager};
use diesel::r2d2::{ConnectionManager, PooledConnection, R2D2Connection};
use diesel::result::{Error, QueryResult};
use diesel::sql_types::{BigInt, HasSqlType, Integer, Nullable, Text};

use super::bind::Binds;
use super::settings::SessionSettings;
use super::statement::Loads;
use super::target::{Schema, Target};
use crate::error::refused;
use crate::row::{DetailsRow, DetailsType, Instant, TextForm, TimestampUtc};

/// The text that the error quotes by which a handler's COMMIT of its group is refused. Nothing but another text for the row
/// follows from it.
pub(crate) const COMMIT_REFUSED: &str = "queueable: a handler cannot commit its group";

/// The SQL that differs between databases.
pub trait QueueBackend:
    Backend<QueryBuilder: Default>
    + Binds
    + Default
    + HasSqlType<Text>
    + HasSqlType<Integer>
    + HasSqlType<BigInt>
    + HasSqlType<TimestampUtc>
    + 'static
{
    /// The connection on which a queue in this database is worked.
    type Connection: QueueConnection<Backend = Self>;

    /// The present when the expression is evaluated. Settling counts from it.
    const NOW: &'static str;

    /// The present when the statement began. The claim compares with it: a volatile clock cannot bound an index scan.
    const STATEMENT_TIME: &'static str;

    /// What stands before and after a number of microseconds to add it to [`QueueBackend::NOW`].
    const NOW_PLUS_MICROSECONDS: (&'static str, &'static str);

    /// What stands before and after a number of microseconds to add it to [`QueueBackend::STATEMENT_TIME`].
    const STATEMENT_TIME_PLUS_MICROSECONDS: (&'static str, &'static str);

    /// What stands before and after a time column to give the microseconds from now until then, as a 64 bit integer.
    const MICROSECONDS_UNTIL: (&'static str, &'static str);

    /// What stands around a time, which stands between each two of the parts, to give the microseconds from 1970 until then, as
    /// a 64 bit integer; null for an odd time, one that cannot be told, as `infinity`.
    const MICROSECONDS_SINCE_1970: &'static [&'static str];

    /// What stands before and after an expression to make it text.
    const AS_TEXT: (&'static str, &'static str);

    /// What stands before and after a column of a primary key, whatever its type, to give a text that no other value has.
    const KEY_TEXT: (&'static str, &'static str);

    /// The same for one of several texts that stand in one, with commas between them.
    const KEY_PART_TEXT: (&'static str, &'static str);

    /// How such texts are to be read.
    const TEXT_FORM: TextForm;

    /// Whether a key's column of any type can be compared with a text, and its index is walked then.
    const FINDS_KEY_BY_TEXT: bool;

    /// What stands before and after a number to make it a 64 bit integer.
    const AS_INTEGER: (&'static str, &'static str);

    /// The clause that locks a claimed row and passes over rows that others hold.
    const CLAIM_LOCK: &'static str;

    /// The clause that locks a row and waits for whoever holds it.
    const ROW_LOCK: &'static str;

    /// What stands before and after the index's name to make a claim use it.
    ///
    /// MySQL sorts a small table instead of walking the index, and then locks every candidate it sorted.
    const INDEX_HINT: Option<(&'static str, &'static str)>;

    /// Whether a claim keeps the locks of rows that it passes because its condition is false.
    ///
    /// MariaDB's do where an index is walked. The application could not change such a row, and make the condition true, as
    /// long as the handler of another one runs. So where rows are passed, their keys are read first and locked then.
    const LOCKS_WHAT_IT_PASSES: bool;

    /// Whether one statement leases rows: it locks them, writes on them, and returns them as they were, in their order.
    const LEASES_AT_ONCE: bool;

    /// Whether rows are locked by keys that are read before, many at once, instead of along the index.
    ///
    /// InnoDB keeps the entries of finished rows in the index until they are purged, and a claim along it passes them all. It
    /// also keeps the locks of the entries whose rows others hold, who would wait for them when they settle.
    const PREFETCHES_KEYS: bool;

    /// The system columns that tell one version of a row from every other, if there are such: where it lies, and which
    /// transaction wrote it. Whole rows are prefetched where there are, and locked by their versions.
    const ROW_VERSION: Option<(&'static str, &'static str)>;

    /// What stands before and after the index's name to keep a change of many rows off it.
    ///
    /// A change that walks MySQL's queue index waits for every pending row on its way; one that walks the table passes over
    /// the locked rows that it does not concern.
    const IGNORE_INDEX: Option<(&'static str, &'static str)>;

    /// What stands before and after the index's name to make a claim in an order of the entity's own walk that index.
    ///
    /// SQLite guesses that a quarter of the rows is due, and would rather sort them.
    const ORDERED_INDEX_HINT: Option<(&'static str, &'static str)>;

    /// What follows a column in an index and in an order so that its nulls come first, as they do elsewhere by themselves.
    const NULLS_FIRST: &'static str;

    /// Whether an index can leave out the rows that are not pending. Elsewhere the index of an entity with an order of its
    /// own begins with a flag that they lack: it would be walked past every finished row otherwise.
    const PARTIAL_INDEXES: bool;

    /// What stands before and after a text column so that its comparison is exact, whatever its collation.
    ///
    /// MySQL's ignore blanks at the end, and case unless told otherwise: an unknown status would pass for one of ours,
    /// be claimed, and fail to decode for ever.
    const EXACTLY: (&'static str, &'static str);

    /// What stands before a column and between it and a value, so that they are compared and no index is walked for it: one
    /// enqueueing of many rows gives all of them the same time, and the row's key knows it better.
    const WITHOUT_INDEX_IS: (&'static str, &'static str);

    /// What stands before and after a text so that it is told from every other and put into an order, however long it is.
    ///
    /// MySQL compares no more than the first 1,024 bytes of what it sorts.
    const IDENTITY: (&'static str, &'static str);

    /// What stands before, between and after two expressions to join their texts.
    const CONCATENATION: (&'static str, &'static str, &'static str);

    /// Whether an update itself can be ordered and limited; elsewhere a subquery picks its rows.
    const UPDATE_HAS_LIMIT: bool;

    /// What stands after the columns of an insert that brings its own keys along, also where the database makes them.
    const INSERT_OWN_KEYS: &'static str;

    /// Whether a removal from a table under another name has to say what is removed: `DELETE name FROM table AS name`.
    const DELETE_NAMES_ALIAS: bool;

    /// Whether the locks that were taken after a savepoint end with the return to it.
    const SAVEPOINT_FREES_LOCKS: bool;

    /// Whether the database has one writer at a time. The workers of a process then take turns among themselves, which
    /// is cheaper and fairer than to wait for the database's lock.
    const ONE_WRITER: bool;

    /// How many savepoints a transaction bears in which something is written.
    ///
    /// PostgreSQL keeps 64 of them at hand; with one more, every session that reads looks the others up in shared memory.
    const MOST_SAVEPOINTS: u32;

    /// Whether several statements in one text are one round trip. For MySQL they are more than one each, because the client
    /// first has to be told that there are several.
    const STATEMENTS_TRAVEL_TOGETHER: bool;

    /// Whether a message can end in one round trip.
    const FINISHES_AT_ONCE: bool;

    /// Whether it does so by a [`FinishBlock`](crate::statement::FinishBlock), and not by [`QueueConnection::finish`].
    const FINISHES_IN_A_BLOCK: bool;

    /// Whether [`QueueConnection::commit_and_begin`] is cheaper than a COMMIT and a BEGIN.
    const COMMITS_AND_BEGINS: bool;

    /// Whether the server refuses a COMMIT of a handler's in the transaction of a group.
    const REFUSES_COMMITS: bool;

    /// Whether a commit can tell other sessions that a row has become due.
    const NOTIFIES: bool;

    /// Where messages end by blocks of statements: the settings of a session as one text, which `@queueable_settings` holds as it
    /// was, and what a block says that finds another one.
    const OTHER_SETTINGS: Option<(&'static str, &'static str)>;

    /// How long a handler may hold the message's transaction when nothing else is said.
    const DEFAULT_TIMEOUT: Duration;
}

/// What an error says about its cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The session is gone.
    ConnectionLost,
    /// A conflict with other transactions: deadlock, serialization failure, lock timeout, a changed plan. The same work
    /// may well succeed a moment later, so no try is used.
    Conflict,
    /// The server has no room left to write: nobody's fault, and it passes when somebody has made room. No try is used.
    NoRoom,
    /// Anything else.
    Other,
}

/// How far the end of a message came that was to be one round trip.
#[derive(Debug)]
pub enum Unfinished {
    /// The savepoint could not be released.
    Savepoint(Error),
    /// The row was not as it was claimed: no row was changed, or several.
    RowChanged(Error),
    /// The row could not be written.
    NotWritten(Error),
    /// The commit was refused, or its answer was lost.
    NotCommitted(Error),
    /// The handler has set something on the session, and nothing is done: it is to be put back first.
    OtherSettings(Error),
    /// The same, and the transaction is gone. On this session settings are put back first from now on.
    SettingsNotPutBack(Error),
}

/// What begins with the end of a message.
#[derive(Debug, Clone, Copy)]
pub enum AfterFinish<'a> {
    /// Nothing.
    Nothing,
    /// The next transaction.
    Begin,
    /// The next transaction, by locking a row: the name of a prepared [`LockVersion`](crate::statement::LockVersion) and its
    /// arguments. If the row can be locked, the savepoint is set anew as well. The token is none that an earlier message of the
    /// session may have left behind.
    Lock(&'a str, u64),
}

/// A connection on which a queue can be worked.
///
/// It is implemented for Diesel's three synchronous connections.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection that a queue can use",
    note = "use `PgConnection`, `MysqlConnection` or `SqliteConnection`, and switch on the feature of queueable with that name"
)]
pub trait QueueConnection:
    LoadConnection<Backend: QueueBackend>
    + Loads<Text, String>
    + Loads<BigInt, i64>
    + Loads<Nullable<Text>, Option<String>>
    + Loads<Nullable<TimestampUtc>, Option<Instant>>
    + Loads<(Text, Integer), (String, i32)>
    + Loads<(Text, BigInt), (String, i64)>
    + Loads<DetailsType, DetailsRow>
    + R2D2Connection
    + Schema
    + SessionSettings
    + Send
    + 'static
{
    /// Prepares a worker's private session and reads every setting back.
    ///
    /// # Errors
    ///
    /// When a statement fails, or a setting did not take; the text names the setting.
    fn prepare_session(&mut self, limits: SessionLimits) -> QueryResult<()>;

    /// Returns the number under which the server knows this session, so that another can end it. SQLite has none.
    fn session_id(&mut self) -> QueryResult<Option<i64>>;

    /// Returns a name for the database, by which the processes that work on it know each other's crash records.
    fn database_name(&mut self) -> QueryResult<String>;

    /// Returns what tells the database's file from another one that was put in its place; `None` where it has none of its own.
    fn file_identity(&mut self) -> QueryResult<Option<(u64, u64)>> {
        Ok(None)
    }

    /// Ends another session of the same user; its transaction is rolled back by the server.
    fn end_session(&mut self, session: i64) -> QueryResult<()>;

    /// Begins the message's transaction: READ COMMITTED stated where the database has it, `BEGIN IMMEDIATE` on SQLite.
    fn begin(&mut self) -> QueryResult<()>;

    /// Begins the transaction of a group, in which no statement waits longer than `wait` for a lock. Where the server
    /// [can](QueueBackend::REFUSES_COMMITS), it is [`commit_group`](Self::commit_group) alone that commits it.
    fn begin_impatiently(&mut self, wait: Duration) -> QueryResult<()>;

    /// Commits the transaction of a group. Where `wait` is given, the next group's may have begun with it: `true`. Diesel
    /// knows nothing of that: it is to it as if the first went on.
    fn commit_group(&mut self, _wait: Option<Duration>) -> QueryResult<bool> {
        <Self::TransactionManager as TransactionManager<Self>>::commit_transaction(self).map(|()| false)
    }

    /// Puts the session's own lock wait back after [`begin_impatiently`](Self::begin_impatiently) and the end of its
    /// transaction. After an error the session is of no further use.
    fn restore_patience(&mut self, wait: Duration) -> QueryResult<()>;

    /// Runs a statement that controls the transaction, in as few round trips as there can be.
    fn control(&mut self, statement: &'static str) -> QueryResult<()> {
        self.batch_execute(statement)
    }

    /// Whether the server runs several statements as one outside of routines, as MariaDB does. `refused` is what it has
    /// answered to that: `false` then says that it has not understood, and done nothing.
    fn has_compounds(_refused: Option<&Error>) -> bool {
        false
    }

    /// Commits the transaction and begins the next one, of which Diesel knows nothing: it is to it as if the first went on.
    fn commit_and_begin(&mut self) -> QueryResult<()>;

    /// Ends a message in one round trip: releases the savepoint, settles, commits, and begins what comes next. `settle` is the
    /// name of a prepared [`Finish`](crate::statement::Finish) and its arguments, which compares the settings too. Returns whether
    /// the next row is locked, if that was asked for; if it is not, the transaction has begun all the same.
    ///
    /// # Errors
    ///
    /// [`Unfinished`] says how far it came. Nothing is committed, unless the connection was lost or the
    /// statement was cancelled.
    fn finish(
        &mut self,
        _savepoint: &str,
        _settle: &str,
        _next: AfterFinish<'_>,
        _settings: &Self::Settings,
    ) -> Result<bool, Unfinished> {
        Err(Unfinished::NotWritten(refused("this database does not end a message at once".to_owned())))
    }

    /// Begins a transaction, locks a row and sets the savepoint in one round trip. `hold` is the name of a prepared
    /// [`LockLeased`](crate::statement::LockLeased) and its arguments. `false`: there is no such row, and no transaction.
    fn begin_holding(&mut self, _hold: &str, _savepoint: &str) -> QueryResult<bool> {
        Err(refused("this database does not begin a transaction by locking".to_owned()))
    }

    /// Says how far a [`FinishBlock`](crate::statement::FinishBlock) came that has failed. `not_one_row` is in the message if
    /// the row was not as it was claimed.
    fn unfinished(error: Error, _not_one_row: &str) -> Unfinished {
        Unfinished::NotWritten(error)
    }

    /// Locks a row in the transaction that has begun and sets the savepoint, in one round trip. `lock` is the name of a prepared
    /// [`LockVersion`](crate::statement::LockVersion) and its arguments. `false`: it cannot be locked; the transaction has
    /// begun anew.
    fn lock_next(&mut self, _lock: &str, _savepoint: &str) -> QueryResult<bool> {
        Ok(false)
    }

    /// Prepares a [`LockVersion`](crate::statement::LockVersion) under a name.
    fn prepare_lock(&mut self, _name: &str, _statement: &str) -> QueryResult<()> {
        Ok(())
    }

    /// Prepares a [`Finish`](crate::statement::Finish) or a [`LockLeased`](crate::statement::LockLeased) under a name. An error
    /// where the server cannot end a message at once. Where settings are given, the statement compares them.
    fn prepare_finish(&mut self, _name: &str, _statement: &str, _settings: Option<&Self::Settings>) -> QueryResult<()> {
        Ok(())
    }

    /// Says what an error means.
    ///
    /// Diesel hands over a kind for a few errors, and the message for all. A message may quote what a user has written, so it
    /// is compared as a whole, or by what stands at both of its ends, and never searched.
    fn classify(error: &Error) -> ErrorClass;

    /// Whether the database refuses every write: a standby, a server or a file that is read only.
    fn refuses_writes(error: &Error) -> bool;

    /// Whether the account lacks a right, where the database hides what it may not touch.
    fn denies_right(_error: &Error) -> bool {
        false
    }

    /// The account as a GRANT names it; `None` where there are no grants.
    fn grantee(&mut self) -> QueryResult<Option<String>> {
        Ok(None)
    }

    /// Whether a block was not begun because the settings of the session are not what they were.
    fn says_other_settings(_error: &Error) -> bool {
        false
    }

    /// Whether this error tells that the server has rolled the whole transaction back.
    fn rolls_back(_error: &Error) -> bool {
        false
    }

    /// Whether a transaction may be committed although its COMMIT has ended with this error: the answer was lost.
    fn leaves_commit_in_doubt(error: &Error) -> bool {
        Self::classify(error) == ErrorClass::ConnectionLost
    }

    /// Whether this is the error by which a COMMIT of a group is refused whose cursor is gone, see
    /// [`QueueBackend::REFUSES_COMMITS`].
    fn lacks_group_cursor(_error: &Error) -> bool {
        false
    }

    /// Tells whether a claim can pass over rows that others hold (`SKIP LOCKED`): MariaDB can from 10.6, MySQL from 8.0.1.
    /// SQLite cannot, and need not: it has one writer.
    fn skips_locked_rows(&mut self) -> QueryResult<bool>;

    /// Takes the lock with which a queue works one message at a time, without waiting. `false`: another session has it. A
    /// session that has it already gets it again. It is called in a transaction, whose end ends it, or
    /// [`end_exclusion`](Self::end_exclusion) after that; so does the session's end, however it comes.
    fn try_exclude(&mut self, target: &Target) -> QueryResult<bool>;

    /// The session that has that lock, in the words by which an operator finds it. `None`: this one, or none.
    fn exclusion_holder(&mut self, _target: &Target) -> QueryResult<Option<String>> {
        Ok(None)
    }

    /// Gives that lock back once the transaction has ended, where it outlives the transaction.
    fn end_exclusion(&mut self, target: &Target) -> QueryResult<()>;

    /// Listens on a channel of the database's.
    fn listen(&mut self, _channel: &str) -> QueryResult<()> {
        Ok(())
    }

    /// Returns the channels of which was notified since the last call, once each, without asking the server.
    ///
    /// # Errors
    ///
    /// When the connection is lost.
    fn notified(&mut self) -> QueryResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// Runs `change` in a transaction of its own (a savepoint inside an open one) in which no statement waits longer
    /// than `wait` for a lock. `change` is told whether the transaction is its own.
    ///
    /// # Errors
    ///
    /// What `change` or the transaction answers; nothing is changed then.
    fn with_lock_wait<T>(
        &mut self,
        wait: Duration,
        change: impl FnOnce(&mut Self, bool) -> QueryResult<T>,
    ) -> QueryResult<T>;
}

/// A [`QueueConnection`], or a pooled one.
pub trait AsQueueConnection {
    /// The connection behind it.
    type Connection: QueueConnection;

    /// Returns the connection.
    fn as_queue_connection(&mut self) -> &mut Self::Connection;
}

impl<C: QueueConnection> AsQueueConnection for C {
    type Connection = C;

    fn as_queue_connection(&mut self) -> &mut C {
        self
    }
}

impl<C: QueueConnection> AsQueueConnection for PooledConnection<ConnectionManager<C>> {
    type Connection = C;

    fn as_queue_connection(&mut self) -> &mut C {
        self
    }
}

/// The limits of a worker's session.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// How long a statement waits for a lock.
    pub lock_timeout: Duration,
    /// How long the session may sit idle inside a transaction: as long as a handler may take.
    pub timeout: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// Whether attempts run on the session. MySQL's autocommit is off for them and on for the scout, whose probes would
    /// otherwise leave a transaction open.
    pub attempts: bool,
}
