//! The SQL that differs between databases, by task, and what a database can do.

use crate::row::TextForm;

/// How times are written.
pub trait TimeSql {
    /// The present when the expression is evaluated. Settling counts from it.
    const NOW: &'static str;

    /// The present when the statement began. The claim compares with it: a volatile clock cannot bound an index scan.
    const STATEMENT_TIME: &'static str;

    /// What stands before and after a number of microseconds to add it to [`NOW`](Self::NOW).
    const NOW_PLUS_MICROSECONDS: (&'static str, &'static str);

    /// What stands before and after a number of microseconds to add it to [`STATEMENT_TIME`](Self::STATEMENT_TIME).
    const STATEMENT_TIME_PLUS_MICROSECONDS: (&'static str, &'static str);

    /// What stands before and after a time column to give the microseconds from now until then, as a 64 bit integer.
    const MICROSECONDS_UNTIL: (&'static str, &'static str);

    /// What stands around a time, which stands between each two of the parts, to give the microseconds from 1970 until then, as
    /// a 64 bit integer; null for an odd time, one that cannot be told, as `infinity`.
    const MICROSECONDS_SINCE_1970: &'static [&'static str];
}

/// How texts and numbers are written, compared and joined.
pub trait TextSql {
    /// What stands before and after an expression to make it text.
    const AS_TEXT: (&'static str, &'static str);

    /// What stands before and after a number to make it a 64 bit integer.
    const AS_INTEGER: (&'static str, &'static str);

    /// What stands before and after a column of a primary key, whatever its type, to give a text that no other value has.
    const KEY_TEXT: (&'static str, &'static str);

    /// The same for one of several texts that stand in one, with commas between them.
    const KEY_PART_TEXT: (&'static str, &'static str);

    /// How such texts are to be read.
    const TEXT_FORM: TextForm;

    /// Whether a key's column of any type can be compared with a text, and its index is walked then.
    const FINDS_KEY_BY_TEXT: bool;

    /// What stands before and after a text column so that its comparison is exact, whatever its collation.
    ///
    /// MySQL's ignore blanks at the end, and case unless told otherwise: an unknown status would pass for one of ours,
    /// be claimed, and fail to decode for ever.
    const EXACTLY: (&'static str, &'static str);

    /// What stands before and after a text so that it is told from every other and put into an order, however long it is.
    ///
    /// MySQL compares no more than the first 1,024 bytes of what it sorts.
    const IDENTITY: (&'static str, &'static str);

    /// What stands before, between and after two expressions to join their texts.
    const CONCATENATION: (&'static str, &'static str, &'static str);
}

/// How rows are locked, and what locks do.
pub trait LockSql {
    /// The clause that locks a claimed row and passes over rows that others hold.
    const CLAIM_LOCK: &'static str;

    /// The clause that locks a row and waits for whoever holds it.
    const ROW_LOCK: &'static str;

    /// Whether a claim keeps the locks of rows that it passes because its condition is false.
    ///
    /// MariaDB's do where an index is walked. The application could not change such a row, and make the condition true, as
    /// long as the handler of another one runs. So where rows are passed, their keys are read first and locked then.
    const LOCKS_WHAT_IT_PASSES: bool;

    /// Whether the locks that were taken after a savepoint end with the return to it.
    const SAVEPOINT_FREES_LOCKS: bool;

    /// Whether the database has one writer at a time. The workers of a process then take turns among themselves, which
    /// is cheaper and fairer than to wait for the database's lock.
    const ONE_WRITER: bool;

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
}

/// How an index is walked, or not.
pub trait IndexSql {
    /// What stands before and after the index's name to make a claim use it.
    ///
    /// MySQL sorts a small table instead of walking the index, and then locks every candidate it sorted.
    const INDEX_HINT: Option<(&'static str, &'static str)>;

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

    /// What stands before a column and between it and a value, so that they are compared and no index is walked for it: one
    /// enqueueing of many rows gives all of them the same time, and the row's key knows it better.
    const WITHOUT_INDEX_IS: (&'static str, &'static str);
}

/// How rows are changed, copied and removed.
pub trait ChangeSql {
    /// Whether an update itself can be ordered and limited; elsewhere a subquery picks its rows.
    const UPDATE_HAS_LIMIT: bool;

    /// What stands after the columns of an insert that brings its own keys along, also where the database makes them.
    const INSERT_OWN_KEYS: &'static str;

    /// Whether a removal from a table under another name has to say what is removed: `DELETE name FROM table AS name`.
    const DELETE_NAMES_ALIAS: bool;
}

/// What a message costs on the way to the server and back.
pub trait RoundTrips {
    /// How many savepoints a transaction bears in which something is written.
    ///
    /// PostgreSQL keeps 64 of them at hand; with one more, every session that reads looks the others up in shared memory.
    const MOST_SAVEPOINTS: u32;

    /// Whether several statements in one text are one round trip. For MySQL they are more than one each, because the client
    /// first has to be told that there are several.
    const STATEMENTS_TRAVEL_TOGETHER: bool;

    /// Whether a message can end in one round trip.
    const FINISHES_AT_ONCE: bool;

    /// Whether it does so by a [`FinishBlock`](crate::statement::FinishBlock), and not by [`OneRoundTrip::finish`](super::one_round_trip::OneRoundTrip::finish).
    const FINISHES_IN_A_BLOCK: bool;

    /// Whether [`Transactions::commit_and_begin`](super::transactions::Transactions::commit_and_begin) is cheaper than a COMMIT and a BEGIN.
    const COMMITS_AND_BEGINS: bool;

    /// Whether the server refuses a COMMIT of a handler's in the transaction of a group.
    const REFUSES_COMMITS: bool;

    /// Where messages end by blocks of statements: the settings of a session as one text, which `@queueable_settings` holds as it
    /// was, and what a block says that finds another one.
    const OTHER_SETTINGS: Option<(&'static str, &'static str)>;

    /// Whether a commit can tell other sessions that a row has become due.
    const NOTIFIES: bool;
}
