//! What the handlers note, in a database of its own: each entry is committed at once, whatever becomes of the attempt, and
//! has a number that the database counts up.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

use super::judge::{Entry, What};
use crate::db::{AUTO_KEY, BIGINT, Conn, Database, NAME, TEXT};

pub(super) struct Journal {
    database: Database,
    sessions: Mutex<Vec<Conn>>,
    entries: Mutex<usize>,
    more: Condvar,
}

#[derive(QueryableByName)]
struct Line {
    #[diesel(sql_type = BigInt)]
    number: i64,
    #[diesel(sql_type = BigInt)]
    attempt: i64,
    #[diesel(sql_type = BigInt)]
    job: i64,
    #[diesel(sql_type = Text)]
    what: String,
}

impl Journal {
    pub(super) fn new() -> Self {
        let database = Database::new();
        let table = format!(
            "CREATE TABLE entries (number {AUTO_KEY} NOT NULL, attempt {BIGINT} NOT NULL, job {BIGINT} NOT NULL, \
             what {TEXT} NOT NULL)"
        );
        database.connect().batch_execute(&table).unwrap();
        Journal { database, sessions: Mutex::default(), entries: Mutex::default(), more: Condvar::new() }
    }

    /// Uses a session that nobody else uses meanwhile.
    pub(super) fn with<T>(&self, what: impl FnOnce(&mut Conn) -> T) -> T {
        let idle = self.sessions.lock().unwrap().pop();
        let mut session = idle.unwrap_or_else(|| {
            let mut session = self.database.connect();
            if NAME == "sqlite" {
                session.batch_execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF").unwrap();
            }
            session
        });
        let result = what(&mut session);
        self.sessions.lock().unwrap().push(session);
        result
    }

    pub(super) fn note(&self, attempt: i64, job: i64, what: What) {
        let name = what.name();
        self.with(|session| {
            let insert = format!("INSERT INTO entries (attempt, job, what) VALUES ({attempt}, {job}, '{name}')");
            session.batch_execute(&insert).unwrap();
        });
        *self.entries.lock().unwrap() += 1;
        self.more.notify_all();
    }

    /// Lets time pass for others.
    pub(super) fn take_time(&self, round_trips: u8) {
        self.with(|session| (0..round_trips).for_each(|_| session.batch_execute("SELECT 1").unwrap()));
    }

    pub(super) fn len(&self) -> usize {
        *self.entries.lock().unwrap()
    }

    /// Waits for this many entries, but not for long.
    pub(super) fn await_entries(&self, number: usize) -> bool {
        let entries = self.entries.lock().unwrap();
        let wait = Duration::from_millis(5);
        let (entries, _) = self.more.wait_timeout_while(entries, wait, |entries| *entries < number).unwrap();
        *entries >= number
    }

    /// Returns all entries, and forgets them.
    pub(super) fn take(&self) -> Vec<Entry> {
        let lines: Vec<Line> = self.with(|session| {
            let lines = diesel::sql_query("SELECT number, attempt, job, what FROM entries ORDER BY number");
            let lines = lines.load(session).unwrap();
            session.batch_execute("DELETE FROM entries").unwrap();
            lines
        });
        let entry = |line: Line| Entry {
            number: line.number,
            attempt: line.attempt,
            job: line.job,
            what: What::of(&line.what).unwrap(),
        };
        lines.into_iter().map(entry).collect()
    }
}
