//! A session: how it is prepared, how it is identified, and its notifications.

use std::fs::File;
use std::time::{Duration, Instant};

use diesel::Connection;
use diesel::result::QueryResult;

#[cfg(all(test, feature = "sqlite"))]
pub(crate) use self::watch::FirstWords;
#[cfg(any(feature = "_mysql", feature = "sqlite"))]
pub(crate) use self::watch::Watch;
use super::schema::Target;

/// The limits of a worker's session.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    /// How long a statement waits for a lock.
    pub lock_timeout: Duration,
    /// How long the session may be idle inside a transaction: as long as a handler may take.
    pub timeout: Duration,
    /// How long one statement may take. On MySQL and MariaDB it holds only where no attempts run, and on SQLite nowhere.
    pub statement_timeout: Duration,
    /// Whether attempts run on the session. On MySQL autocommit is off for them. It is on for the scout, whose probes
    /// would otherwise leave a transaction open.
    pub attempts: bool,
}

/// A session: how it is prepared, how it is identified, and its notifications.
pub trait SessionSetup<DB = <Self as Connection>::Backend>: Connection {
    /// Prepares a worker's private session and reads every setting back.
    ///
    /// # Errors
    ///
    /// If a statement fails, or a setting does not take effect; the text names the setting.
    fn prepare_session(&mut self, limits: SessionLimits) -> QueryResult<()>;

    /// Limits a session that only reads, for as long as it lasts: how long a statement may take, and how long it waits for a lock.
    ///
    /// # Errors
    ///
    /// If a statement fails, or a setting does not take effect.
    fn limit_session(&mut self, statement_timeout: Duration, lock_timeout: Duration) -> QueryResult<()>;

    /// Returns the number by which the server knows this session, so that another session can end it. SQLite has none.
    fn session_id(&mut self) -> QueryResult<Option<i64>>;

    /// Returns a name for the database, the same in every process that uses it.
    fn database_name(&mut self) -> QueryResult<String>;

    /// Returns an identity of the database's file, which changes if another file takes its place; `None` if the
    /// database has no file of its own.
    fn file_identity(&mut self) -> QueryResult<Option<(u64, u64)>> {
        Ok(None)
    }

    /// Ends another session of the same user. The server rolls its transaction back.
    fn end_session(&mut self, session: i64) -> QueryResult<()>;

    /// Ends a session of the same user if it has heard nothing for this long, unless it is still at work: then its answer
    /// comes late. After a failover the number may be another session's.
    fn end_silent_session(&mut self, session: i64, silent_for: Duration) -> QueryResult<()>;

    /// Returns the account as a GRANT names it; `None` if there are no grants.
    fn grantee(&mut self) -> QueryResult<Option<String>> {
        Ok(None)
    }

    /// Tells whether a claim can pass over rows that others hold (`SKIP LOCKED`): MariaDB can from 10.6, MySQL from 8.0.1.
    /// SQLite cannot, and need not: it has one writer.
    fn skips_locked_rows(&mut self) -> QueryResult<bool>;

    /// Listens on a notification channel of the database.
    fn listen(&mut self, _channel: &str) -> QueryResult<()> {
        Ok(())
    }

    /// Returns the channels with notifications since the last call, each once, without asking the server.
    ///
    /// # Errors
    ///
    /// If the connection is lost.
    fn notified(&mut self) -> QueryResult<Vec<String>> {
        Ok(Vec::new())
    }
}

/// The settings of a session: how they are read and restored.
pub trait SessionSettings<DB = <Self as Connection>::Backend>: Connection {
    /// The settings as they were when the session was prepared. The default knows none, and restores none.
    type Settings: Default + Send + 'static;

    /// Reads the settings, outside any transaction.
    fn read_settings(&mut self) -> QueryResult<Self::Settings>;

    /// Notes whether a handler has the connection.
    fn watch_handler(_settings: &Self::Settings, _is_lent: bool) {}

    /// Tells, without asking the database, whether a handler may have changed something that no comparison at the end of a message
    /// shows.
    fn may_have_moved(_settings: &Self::Settings) -> bool {
        false
    }

    /// Tells, without asking the database, whether the settings have to be compared at the end of this message.
    fn has_to_compare(_settings: &Self::Settings) -> bool {
        true
    }

    /// Notes what a comparison at the end of a message has found.
    fn note_compared(_settings: &Self::Settings, _are_same: bool) {}

    /// Restores the settings, inside a transaction or outside. `false`: some cannot be restored, so the session must
    /// not be used again.
    fn put_settings_back(&mut self, settings: &Self::Settings) -> QueryResult<bool>;

    /// Tells whether any setting has changed.
    fn has_other_settings(&mut self, settings: &Self::Settings) -> QueryResult<bool>;

    /// Lets the server close the session, and end its transaction, once it has been idle for a second longer than this; never if
    /// `None`. It is for servers that know no shorter limit inside a transaction.
    fn limit_idleness(&mut self, _settings: &Self::Settings, _timeout: Option<Duration>) -> QueryResult<()> {
        Ok(())
    }

    /// Runs the statement that ends a handler's savepoint, restores the settings before or after it, and runs the
    /// statement that may follow. `false`: some of the settings could not be restored.
    fn end_handler(
        &mut self,
        end: &'static str,
        then: Option<&'static str>,
        settings: &Self::Settings,
    ) -> QueryResult<bool>;
}

/// The lock of an exclusive queue, which processes one message at a time.
pub trait Exclusion<DB = <Self as Connection>::Backend>: Connection {
    /// Takes the queue's lock without waiting. `false`: another session holds it. A session that already holds it gets
    /// it again. The call must be in a transaction. The lock ends with that transaction or, on some databases, with
    /// [`end_exclusion`](Self::end_exclusion) after it. The end of the session always ends it.
    fn try_exclude(&mut self, target: &Target) -> QueryResult<bool>;

    /// Takes, for the session, the lock of the one process that has this duty for a queue, without waiting. `false`: another
    /// holds it. A session that already holds it gets it again. It ends with the session, and on SQLite with the file in
    /// `lead`.
    fn try_lead(&mut self, target: &Target, duty: LeadersDuty, lead: &mut Option<File>) -> QueryResult<bool>;

    /// Returns the session that holds the lock, in words by which an operator finds it. `None`: this session, or none.
    fn exclusion_holder(&mut self, _target: &Target) -> QueryResult<Option<String>> {
        Ok(None)
    }

    /// Gives the lock back after the end of the transaction, if it outlives the transaction.
    fn end_exclusion(&mut self, _target: &Target) -> QueryResult<()> {
        Ok(())
    }

    /// Takes one of this number of places of a lane without waiting, and returns which. `None`: other sessions hold all
    /// of them. The call must be in a transaction. The place ends with that transaction or, on some databases, with
    /// [`leave_place`](Self::leave_place) after it. The end of the session always ends it.
    fn take_place(&mut self, target: &Target, lane: &str, places: u32) -> QueryResult<Option<u32>>;

    /// Keeps the queue's lock, or the only place of a lane, which end with the transaction, until
    /// [`end_kept_locks`](Self::end_kept_locks): nobody takes it before the session's next transaction does. SQLite cannot.
    fn keep_lock(&mut self, _target: &Target, _lane: Option<&str>) -> QueryResult<()> {
        Ok(())
    }

    /// Gives back what the session keeps beside the locks of its transaction.
    fn end_kept_locks(&mut self) -> QueryResult<()> {
        Ok(())
    }

    /// Gives a place back after the end of the transaction, if it outlives the transaction.
    fn leave_place(&mut self, _target: &Target, _lane: &str, _place: u32) -> QueryResult<()> {
        Ok(())
    }
}

/// What one process at a time does for a queue. Each has a lock of its own: a process that has one may not have the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeadersDuty {
    /// It reports the gauges.
    Gauges,
    /// It removes the rows that the entity keeps no longer.
    Upkeep,
}

/// One of the places of a lane, as the session's lock names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The queue among those of its table.
    pub(crate) queue: String,
    /// The table.
    pub(crate) table: String,
    /// The lane among those of the queue.
    pub(crate) lane: String,
    /// How many places the lane has.
    pub(crate) places: i64,
}

impl Place {
    /// One of this number of places.
    pub fn of(target: &Target, lane: &str, places: u32) -> Self {
        Place {
            queue: format!("queueable {}", target.columns.status),
            table: target.table.to_string(),
            lane: lane.to_owned(),
            // The servers have fewer locks.
            places: i64::from(places.min(i32::MAX.unsigned_abs())),
        }
    }
}

/// The channels on which a session listens.
#[derive(Default)]
pub(crate) struct Subscriptions {
    pub(crate) channels: Vec<String>,
    /// When it tries again to listen on the channels on which it could not.
    pub(crate) next_try: Option<Instant>,
}

impl Subscriptions {
    pub(crate) fn listen(&self, channel: &str) -> bool {
        self.channels.iter().any(|listened| listened == channel)
    }
}

/// What the databases use that have no cheaper way to see what a handler has set.
#[cfg(any(feature = "_mysql", feature = "sqlite"))]
mod watch {
    use std::any::{Any, TypeId};
    use std::fmt::{self, Display, Write};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use diesel::Connection;
    use diesel::connection::{Instrumentation, InstrumentationEvent};

    /// Watches the statements of handlers on a connection, through Diesel's instrumentation.
    pub(crate) struct Watch(Arc<Seen>);

    /// What is known of a handler's statements.
    #[derive(Default)]
    struct Seen {
        /// Whether the connection is lent to a handler.
        is_lent: AtomicBool,
        is_unusual: AtomicBool,
        has_moved: AtomicBool,
    }

    /// The first words of the statements after which a session has the settings that it had before, unless a trigger or a function
    /// has changed them.
    const USUAL: [&str; 11] = [
        "select",
        "insert",
        "update",
        "delete",
        "replace",
        "with",
        "values",
        "savepoint",
        "release",
        "rollback",
        "explain",
    ];

    impl Watch {
        /// Watches a connection. `none`: Diesel's private type for no instrumentation. `None`: the application has one of its own for
        /// the connection, which stays.
        pub(crate) fn on<C: Connection>(connection: &mut C, none: TypeId) -> Option<Self> {
            let found: &dyn Any = &*connection.instrumentation();
            (none == found.type_id()).then(|| {
                let seen = Arc::<Seen>::default();
                connection.set_instrumentation(Watching(seen.clone()));
                Watch(seen)
            })
        }

        /// Notes whether a handler has the connection.
        pub(crate) fn lend(&self, is_lent: bool) {
            self.0.is_lent.store(is_lent, Ordering::Relaxed);
        }

        /// Tells whether a handler may have sent a statement that changes a setting.
        pub(crate) fn is_unusual(&self) -> bool {
            self.0.is_unusual.load(Ordering::Relaxed) || self.is_replaced()
        }

        /// Tells whether a handler may have sent a `USE`.
        #[cfg(feature = "_mysql")]
        pub(crate) fn has_moved(&self) -> bool {
            self.0.has_moved.load(Ordering::Relaxed) || self.is_replaced()
        }

        /// Tells whether a handler has replaced the instrumentation.
        fn is_replaced(&self) -> bool {
            Arc::strong_count(&self.0) == 1
        }

        /// Begins anew, after the settings were compared.
        pub(crate) fn forget(&self) {
            self.0.is_unusual.store(false, Ordering::Relaxed);
        }
    }

    struct Watching(Arc<Seen>);

    impl Instrumentation for Watching {
        fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
            let InstrumentationEvent::StartQuery { query, .. } = event else { return };
            let seen = &self.0;
            if seen.is_lent.load(Ordering::Relaxed) && !seen.has_moved.load(Ordering::Relaxed) {
                let found = FirstWords::of(query);
                seen.is_unusual.fetch_or(found.is_unusual, Ordering::Relaxed);
                seen.has_moved.store(found.moves, Ordering::Relaxed);
            }
        }
    }

    /// Looks at the first words of the statements in a text that is written to it. A semicolon in a value or a comment makes more of
    /// a text than there is, and never less.
    pub(crate) struct FirstWords {
        /// Whether the next word begins a statement.
        begins: bool,
        pub(crate) is_unusual: bool,
        moves: bool,
    }

    impl FirstWords {
        pub(crate) fn of(text: &dyn Display) -> Self {
            let mut words = FirstWords { begins: true, is_unusual: false, moves: false };
            // The writer stops the text before the values.
            let _ = write!(words, "{text}");
            words
        }
    }

    impl Write for FirstWords {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            if text.starts_with(" -- binds: ") {
                return Err(fmt::Error);
            }
            for statement in text.split_inclusive(';') {
                let word = statement.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '(' | ';'));
                if self.begins && !word.is_empty() {
                    let end = word.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(word.len());
                    self.is_unusual |= !USUAL.iter().any(|usual| word[..end].eq_ignore_ascii_case(usual));
                    self.moves |= word[..end].eq_ignore_ascii_case("use");
                    self.begins = false;
                }
                self.begins |= statement.ends_with(';');
            }
            Ok(())
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_first_word_of_each_statement_is_looked_at() {
            let found = |text: &str| {
                let words = FirstWords::of(&text);
                (words.is_unusual, words.moves)
            };
            for text in
                ["SELECT 1", " (select 1);", "Insert INTO t VALUES ('use')", "SAVEPOINT a; RELEASE SAVEPOINT a", ""]
            {
                assert_eq!(found(text), (false, false), "{text}");
            }
            let pragmas = [
                "PRAGMA query_only = 1",
                "SELECT 1;pragma foreign_keys=1",
                "Attach 'a' AS b",
                "CREATE TEMP TABLE t (a)",
            ];
            let sets =
                ["SET timestamp = 1", "/* a */ SELECT 1", "CALL p()", "{d}", "DO 1", "BEGIN NOT ATOMIC SET a = 1; END"];
            for text in pragmas.into_iter().chain(sets) {
                assert_eq!(found(text), (true, false), "{text}");
            }
            for text in ["USE b", "use `b`", "SELECT 1; \n Use b", "DELETE FROM t;;USE b;"] {
                assert_eq!(found(text), (true, true), "{text}");
            }
            let mut words = FirstWords { begins: true, is_unusual: false, moves: false };
            for part in ["SELECT ", "a", " FROM t WHERE ';' = ?", " -- binds: "] {
                let _ = words.write_str(part);
            }
            assert!(words.is_unusual, "a semicolon may begin a statement");
        }
    }
}
