//! The statements about the table of pollers: who serves the queues.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::writer::{push_named, push_number, statement_on_no_queue};
use crate::backend::{QueueBackend, Statement, statement_time, statement_time_plus};

/// What a poller writes of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PollerEntry {
    /// A number of its own.
    pub(crate) id: i64,
    pub(crate) host: String,
    pub(crate) pid: i64,
    /// The library's version.
    pub(crate) version: String,
    /// What the application says of itself; empty if it says nothing.
    pub(crate) application: String,
    /// A word.
    pub(crate) state: &'static str,
    pub(crate) workers: i32,
    /// As JSON.
    pub(crate) queues: String,
    /// As JSON.
    pub(crate) running: String,
    /// How long ago it started, in microseconds.
    pub(crate) age: i64,
}

impl PollerEntry {
    /// Writes the values, but for the number: each with what stands before it.
    fn push_values<'b, DB: QueueBackend>(&'b self, out: &mut AstPass<'_, 'b, DB>, names: bool) -> QueryResult<()> {
        let before = |out: &mut AstPass<'_, 'b, DB>, name: &str| match names {
            true => push_named(out, &format!("{}{{{name}}} = ", if name == "host" { "" } else { ", " })),
            false => {
                out.push_sql(", ");
                Ok(())
            }
        };
        before(out, "host")?;
        DB::bind_text(out, &self.host)?;
        before(out, "pid")?;
        DB::bind_big_integer(out, &self.pid)?;
        for (name, text) in [("version", &*self.version), ("application", &*self.application), ("state", self.state)] {
            before(out, name)?;
            DB::bind_text(out, text)?;
        }
        before(out, "workers")?;
        DB::bind_integer(out, &self.workers)?;
        for (name, text) in [("queues", &self.queues), ("running", &self.running)] {
            before(out, name)?;
            DB::bind_text(out, text)?;
        }
        if !names {
            out.push_sql(", ");
            // A number of our own. Each text is a statement of its own, which is not worth keeping.
            out.unsafe_to_cache_prepared();
            push_named(out, &statement_time_plus::<DB>(-self.age))?;
        }
        before(out, "seen_at")?;
        push_named(out, &statement_time::<DB>())
    }
}

/// Writes what a poller says of itself over what it said before.
pub fn update_poller<DB: QueueBackend>(entry: &PollerEntry) -> impl Statement<DB> {
    statement_on_no_queue(entry, |entry, mut out| {
        push_named(&mut out, "UPDATE {queueable_pollers} SET ")?;
        entry.push_values(&mut out, true)?;
        push_number(&mut out, " WHERE {id} = ", &entry.id)
    })
}

/// Writes what a poller says of itself for the first time.
pub fn insert_poller<DB: QueueBackend>(entry: &PollerEntry) -> impl Statement<DB> {
    statement_on_no_queue(entry, |entry, mut out| {
        let out = &mut out;
        push_named(out, "INSERT INTO {queueable_pollers} ({id}, {host}, {pid}, {version}, {application}, {state}, ")?;
        push_number(out, "{workers}, {queues}, {running}, {started_at}, {seen_at}) VALUES (", &entry.id)?;
        entry.push_values(out, false)?;
        out.push_sql(")");
        Ok(())
    })
}

/// Reads what all pollers have written, the latest first.
pub fn read_pollers<DB: QueueBackend>() -> impl Statement<DB> {
    statement_on_no_queue((), |(), mut out| {
        let out = &mut out;
        let (before, after) = DB::AS_INTEGER;
        push_named(out, "SELECT {id}, {host}, {pid}, {version}, {application}, {state}, ")?;
        push_named(out, &format!("{before}{{workers}}{after}, {{queues}}, {{running}}"))?;
        for time in ["{started_at}", "{seen_at}", &*statement_time::<DB>()] {
            out.push_sql(", ");
            push_named(out, &DB::MICROSECONDS_SINCE_1970.join(time))?;
        }
        push_named(out, " FROM {queueable_pollers} ORDER BY {seen_at} DESC, {id}")
    })
}

/// Removes a poller.
pub fn remove_poller<DB: QueueBackend>(id: i64) -> impl Statement<DB> {
    statement_on_no_queue(id, |id, mut out| push_number(&mut out, "DELETE FROM {queueable_pollers} WHERE {id} = ", id))
}
