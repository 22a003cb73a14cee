//! The SQL that differs between databases, by task, and the abilities of a database. What most of them do is the default.

use crate::row::{TextForm, ValueKind};

/// How times are written.
pub trait TimeSql {
    /// The time when the expression is evaluated. A settlement counts from it.
    const NOW: &'static str;

    /// The time when the statement began. The claim compares with it, because a volatile clock cannot bound an index
    /// scan.
    const STATEMENT_TIME: &'static str = Self::NOW;

    /// The SQL before and after a number of microseconds that adds it to [`NOW`](Self::NOW).
    const NOW_PLUS_MICROSECONDS: (&'static str, &'static str);

    /// The SQL before and after a number of microseconds that adds it to [`STATEMENT_TIME`](Self::STATEMENT_TIME).
    const STATEMENT_TIME_PLUS_MICROSECONDS: (&'static str, &'static str) = Self::NOW_PLUS_MICROSECONDS;

    /// The SQL before and after a time of the calendar in UTC, with six places after the second, that makes it a value of a time
    /// column.
    const TIME_LITERAL: (&'static str, &'static str);

    /// The SQL before and after a time column that gives the microseconds from now until then, as a 64 bit integer.
    const MICROSECONDS_UNTIL: (&'static str, &'static str);

    /// The SQL around a time that gives the microseconds from 1970 until then, as a 64 bit integer. The time stands
    /// between each two of the parts. An odd time, which cannot be read as a time, such as `infinity`, gives null.
    const MICROSECONDS_SINCE_1970: &'static [&'static str];

    /// The SQL before and after a time that is not odd which gives a text that [`TIME_OF_TEXT`](Self::TIME_OF_TEXT) reads as the
    /// same value, whatever the session's settings.
    const TEXT_OF_TIME: (&'static str, &'static str);

    /// The SQL before and after such a text that makes it comparable with the column.
    const TIME_OF_TEXT: (&'static str, &'static str);
}

/// How texts and numbers are written, compared and joined.
pub trait TextSql {
    /// The SQL before and after an expression that makes it text.
    const AS_TEXT: (&'static str, &'static str);

    /// The SQL around a column of texts that makes bytes in it readable. Only SQLite stores some there.
    const READABLE: &'static [&'static str] = &["", ""];

    /// The SQL before and after bytes that makes them text.
    const BYTES_TEXT: (&'static str, &'static str) = ("HEX(", ")");

    /// The SQL before and after a list of texts that makes it a list of JSON.
    const JSON_LIST: (&'static str, &'static str) = ("JSON_ARRAY(", ")");

    /// The SQL before and after JSON that makes it text.
    const JSON_TEXT: (&'static str, &'static str) = ("", "");

    /// The SQL before and after a number that makes it a 64 bit integer.
    const AS_INTEGER: (&'static str, &'static str);

    /// The SQL before and after a column of a primary key, of any type, that gives a text that no other value has.
    const KEY_TEXT: (&'static str, &'static str);

    /// The same for one of several texts that are joined by commas.
    const KEY_PART_TEXT: (&'static str, &'static str) = Self::KEY_TEXT;

    /// How to read such texts.
    const TEXT_FORM: TextForm;

    /// Whether a key's column of any type can be compared with a text by a walk along its index.
    const FINDS_KEY_BY_TEXT: bool = false;

    /// The SQL before and after a text column that makes its comparison exact, whatever its collation.
    ///
    /// MySQL's collations ignore trailing blanks, and case by default: an unknown status would compare equal to one of
    /// the queue's, be claimed, and fail to decode for ever.
    const EXACTLY: (&'static str, &'static str) = ("", "");

    /// The SQL before and after a text that distinguishes it from every other in a sort, however long it is.
    ///
    /// MySQL compares no more than the first 1,024 bytes of what it sorts.
    const IDENTITY: (&'static str, &'static str) = ("", "");

    /// The SQL around a text that gives the lowest of some, by their first 1,000 characters, which are the same in all of them.
    const LOWEST_OF_EQUAL_TEXTS: &'static [&'static str] = &["MIN(SUBSTR(", ", 1, 1000))"];

    /// The SQL before, between and after two expressions that joins their texts.
    const CONCATENATION: (&'static str, &'static str, &'static str) = ("(", " || ", ")");
}

/// How a statement finds several lanes along their index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneWalk {
    /// A recursion jumps from one lane to the next.
    Recursive,
    /// The database itself jumps from group to group. In a recursion, MariaDB would read the index from its beginning.
    Grouped,
}

/// How the values that make lanes are read and compared, how rows are locked and changed, how an index is used or avoided, and
/// which round trips a message costs.
pub trait Dialect {
    /// Whether the text of a value that is a text begins with its identity: texts that differ may be equal by the
    /// collation of their column.
    const TEXT_HAS_IDENTITY: bool = false;

    /// Whether a place in a lane ends with the transaction in which it was taken. Elsewhere it ends with the session,
    /// unless it is given back.
    const PLACES_END_WITH_TRANSACTION: bool = true;

    /// Whether a claim picks the rows of a lane by a range of values, from the lane's value to the same, and sorts by the
    /// value first. Only the index of lanes has this order.
    ///
    /// PostgreSQL would walk along the due times of all lanes if it believes that most rows are this lane's.
    const LANE_IS_RANGE: bool = false;

    /// Whether the index of lanes has to name the primary key, so that rows with equal due times come in its order. InnoDB's
    /// indexes end with it anyway, and SQLite's with the rowid.
    const TIES_NEED_KEY: bool = false;

    /// The SQL before and after the condition that picks the rows of a lane.
    ///
    /// SQLite may assume that a lane has many rows, and would rather skip through the index by due time, and sort.
    const IS_IN_LANE: (&'static str, &'static str) = ("", "");

    /// The SQL around the number of a lane's places, the queue, its table and the lane: an expression that takes one of
    /// the places for the transaction, and is null if all are taken. `None`: a claim cannot take a place itself.
    const PLACE_IN_CLAIM: Option<[&'static str; 5]> = None;

    /// How a statement finds the next lanes along their index.
    const LANE_WALK: LaneWalk = LaneWalk::Recursive;

    /// Returns the SQL around a value that makes it text. The value stands between each two of the parts.
    fn value_text(kind: ValueKind) -> &'static [&'static str];

    /// Returns the SQL before and after a bound value that makes it comparable with a column of this kind.
    fn bound_value(_kind: ValueKind) -> (&'static str, &'static str) {
        ("", "")
    }

    /// The SQL before a text, for the number of characters of the longest one.
    const MOST_CHARACTERS: &'static str = "MAX(LENGTH(";

    /// The clause that locks a claimed row and passes over rows that others hold.
    const CLAIM_LOCK: &'static str;

    /// The clause that does the same for rows that are to be removed.
    const REMOVAL_LOCK: &'static str = Self::CLAIM_LOCK;

    /// The clause that locks a row and waits for the session that holds it.
    const ROW_LOCK: &'static str;

    /// Whether a claim keeps the locks of rows that it passes because its condition is false.
    ///
    /// A claim on MariaDB does so when it walks an index. The application could not change such a row, and make the
    /// condition true, as long as the handler of another row runs. So if a claim may pass rows, it reads their keys
    /// first and locks the rows afterwards.
    const LOCKS_WHAT_IT_PASSES: bool = false;

    /// Whether a rollback to a savepoint releases the locks that were taken after it.
    const SAVEPOINT_FREES_LOCKS: bool = true;

    /// Whether the database has one writer at a time. The workers of a process then take turns among themselves, which
    /// is cheaper and fairer than waiting for the database's lock.
    const ONE_WRITER: bool = false;

    /// Whether one statement can lease rows: it locks them, writes on them, and returns them as they were, in their
    /// order.
    const LEASES_AT_ONCE: bool = false;

    /// Whether rows are locked by keys that are read before, many at once, instead of along the index.
    ///
    /// InnoDB keeps the entries of finished rows in the index until they are purged, and a claim along the index passes
    /// all of them. It also keeps the locks of entries whose rows others hold, and these would wait for them when they
    /// settle.
    const PREFETCHES_KEYS: bool = false;

    /// The system columns that distinguish one version of a row from every other, if there are any: its place, and the
    /// transaction that wrote it. With them, whole rows are prefetched, and locked by their versions.
    const ROW_VERSION: Option<[&'static str; 2]> = None;

    /// The SQL before and after the index's name that makes a claim use the index.
    ///
    /// MySQL sorts a small table instead of walking the index, and then locks every candidate that it sorted.
    const INDEX_HINT: Option<(&'static str, &'static str)> = None;

    /// The SQL before and after the index's name that keeps a change of many rows off the index.
    ///
    /// A change that walks MySQL's queue index waits for every pending row on its way. One that walks the table passes
    /// over locked rows that it does not change.
    const IGNORE_INDEX: Option<(&'static str, &'static str)> = None;

    /// The SQL before and after the index's name that makes a claim in the entity's own order walk that index.
    ///
    /// SQLite assumes that a quarter of the rows is due, and would rather sort them.
    const ORDERED_INDEX_HINT: Option<(&'static str, &'static str)> = Self::INDEX_HINT;

    /// The SQL after a column in a descending index or order, whose nulls come last.
    const DESCENDING: &'static str = " DESC";

    /// The SQL after a column in an index or an order that puts its nulls first, where the database does not by
    /// default.
    const NULLS_FIRST: &'static str = "";

    /// Returns the SQL before and after a text or bytes in an index that has so many of them, and wherever a statement walks
    /// along it. The database refuses a row whose values are too long for an index, also from an insert of the application.
    fn long_value(_of: usize) -> (&'static str, &'static str) {
        ("", "")
    }

    /// Returns the SQL before and after a column that makes it what the queue's indexes have of it. `of`: how many texts and
    /// bytes are among the columns of the order and the lanes.
    fn indexed(is_long: bool, of: usize) -> (&'static str, &'static str) {
        if is_long { Self::long_value(of) } else { ("", "") }
    }

    /// Whether an index can leave out the rows that are not pending. On other databases the index of an entity with its
    /// own order begins with a flag that only pending rows have. Otherwise a claim would walk it past every finished
    /// row.
    const PARTIAL_INDEXES: bool = true;

    /// The SQL before a column, and between it and a value, that compares them without a walk along the column's index.
    /// An application that enqueues many rows gives all of them the same time, and the row's key selects better.
    const WITHOUT_INDEX_IS: (&'static str, &'static str);

    /// Whether the rows of a whole queue are counted by ranges of its index. Elsewhere one walk counts all of them, and evaluates an
    /// expression of each row for each number: MariaDB takes as long for two of these as to read the row from the index.
    const COUNTS_BY_RANGES: bool = false;

    /// Whether an update itself can have an order and a limit; elsewhere a subquery picks its rows.
    const UPDATE_HAS_LIMIT: bool = false;

    /// The SQL after the columns of an insert that brings its own keys along, even for columns whose keys the database
    /// makes.
    const INSERT_OWN_KEYS: &'static str = "";

    /// Whether a DELETE from a table with an alias has to name the alias: `DELETE name FROM table AS name`.
    const DELETE_NAMES_ALIAS: bool = false;

    /// The SQL after the values of an insert into the control table that changes the row instead if there is one with the
    /// same key.
    const ON_SAME_KEY: &'static str = " ON CONFLICT ({queue}, {scope}) DO UPDATE SET ";

    /// The SQL before and after the name of a column that gives, in such a change, the value that was to be inserted.
    const INSERTED: (&'static str, &'static str) = ("excluded.", "");

    /// The largest number of savepoints in a transaction that write something.
    ///
    /// PostgreSQL caches 64 of them. With one more, every session that reads has to look the others up in shared
    /// memory.
    const MOST_SAVEPOINTS: u32 = u32::MAX;

    /// Whether several statements in one text are one round trip. On MySQL they are more than one each, because the
    /// client first has to announce that there are several.
    const STATEMENTS_TRAVEL_TOGETHER: bool = true;

    /// Whether a message can end in one round trip.
    const FINISHES_AT_ONCE: bool = true;

    /// Whether it does so by a [`finish_block`](crate::statement::finish_block), and not by
    /// [`OneRoundTrip::finish`](super::transactions::OneRoundTrip::finish).
    const FINISHES_IN_A_BLOCK: bool = false;

    /// Whether [`Transactions::commit_and_begin`](super::transactions::Transactions::commit_and_begin) is cheaper than a COMMIT and a BEGIN.
    const COMMITS_AND_BEGINS: bool = true;

    /// Whether the server refuses a handler's COMMIT in the transaction of a group.
    const REFUSES_COMMITS: bool = false;

    /// For databases on which messages end by blocks of statements: an expression for the settings of a session as one
    /// text, whose original value `@queueable_settings` holds, and the error text of a block that finds another value.
    const OTHER_SETTINGS: Option<(&'static str, &'static str)> = None;

    /// Whether a commit can tell other sessions that a row has become due.
    const NOTIFIES: bool = false;
}
