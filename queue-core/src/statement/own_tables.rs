//! The statements about the tables of the library's own: pauses, limits and the environment's name in the control table, the
//! pollers that serve the queues, and the audit of what operators have changed.

use std::time::Duration;

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;
use diesel::sql_types::Nullable;

use self::Value::{Integer, Number, Once, Sql, Text, Time};
use super::writer::{split_at_name, statement_on_no_queue};
use crate::backend::{
    OwnTable, QueueBackend, QueueConnection, Statement, load_first, now, now_plus, statement_time, statement_time_plus,
};
use crate::row::{Instant, TimestampUtc};

/// A value in a statement about a table of the library's own.
pub(crate) enum Value<'a> {
    Text(&'a str),
    Integer(i32),
    Number(i64),
    Time(Instant),
    /// SQL, with names in braces.
    Sql(&'static str),
    /// SQL that is another each time. Each text is a statement of its own, which is not worth keeping prepared.
    Once(String),
}

/// Returns the statement that is this text. The names of tables and columns stand in braces, `{now}` and `{statement_time}` are
/// the database's times, and each `?` stands for a value.
pub(crate) fn own_statement<DB: QueueBackend>(text: impl Into<String>, values: Vec<Value<'_>>) -> impl Statement<DB> {
    statement_on_no_queue((text.into(), values), |(text, values), mut out| {
        let mut parts = text.split('?');
        push_named(&mut out, parts.next().unwrap_or_default())?;
        for (value, after) in values.iter().zip(parts) {
            match value {
                Text(text) => DB::bind_text(&mut out, text)?,
                Integer(integer) => DB::bind_integer(&mut out, integer)?,
                Number(number) => DB::bind_big_integer(&mut out, number)?,
                Time(time) => DB::bind_time(&mut out, time)?,
                Sql(text) => push_named(&mut out, text)?,
                Once(sql) => {
                    out.unsafe_to_cache_prepared();
                    out.push_sql(sql);
                }
            }
            push_named(&mut out, after)?;
        }
        Ok(())
    })
}

fn push_named<DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>, mut text: &str) -> QueryResult<()> {
    while let Some((before, name, after)) = split_at_name(text) {
        out.push_sql(before);
        match name {
            // The empty path in PostgreSQL's words for a time's text.
            "" => out.push_sql("{}"),
            "now" => out.push_sql(&now::<DB>()),
            "statement_time" => out.push_sql(&statement_time::<DB>()),
            name => out.push_identifier(name)?,
        }
        text = after;
    }
    out.push_sql(text);
    Ok(())
}

/// Returns the text that inserts values of these columns.
pub(super) fn insert(table: OwnTable, columns: &[impl AsRef<str>]) -> String {
    let names = listed(columns, |column| format!("{{{column}}}"));
    format!("INSERT INTO {{{}}} ({names}) VALUES ({})", table.name(), listed(columns, |_| "?".to_owned()))
}

/// Returns the same, with what becomes of a row of the control table that is there already: these columns take the new values.
fn insert_or_set<DB: QueueBackend>(key: &[&str], columns: &[&str]) -> String {
    let (before, after) = DB::INSERTED;
    let set = listed(columns, |column| format!("{{{column}}} = {before}{{{column}}}{after}"));
    [&insert(OwnTable::Control, &[key, columns].concat()), DB::ON_SAME_KEY, &set].concat()
}

pub(super) fn listed(columns: &[impl AsRef<str>], each: impl Fn(&str) -> String) -> String {
    columns.iter().map(|column| each(column.as_ref())).collect::<Vec<_>>().join(", ")
}

/// Returns the SQL that reads a time of the table in microseconds since 1970.
pub(super) fn since_1970<DB: QueueBackend>(time: &str) -> String {
    DB::MICROSECONDS_SINCE_1970.join(time)
}

pub(super) fn integer<DB: QueueBackend>(of: &str) -> String {
    [DB::AS_INTEGER.0, of, DB::AS_INTEGER.1].concat()
}

/// Reads the database's current time: the beginning of the leases, from which their end is counted.
pub fn present<DB: QueueBackend>() -> impl Statement<DB> {
    own_statement("SELECT {now}", Vec::new())
}

/// Reads that time.
pub(crate) fn read_present<C: QueueConnection>(connection: &mut C) -> QueryResult<Option<Instant>> {
    Ok(load_first::<Nullable<TimestampUtc>, Option<Instant>, _>(connection, &present())?.flatten())
}

/// The name under which the control table has what is not about a queue. No queue has it: a queue's name has a full stop.
pub(crate) const NO_QUEUE: &str = "queueable";

/// Reads the rows of one queue or of all, also those whose pause has ended.
pub fn read_control<DB: QueueBackend>(queue: Option<&str>) -> impl Statement<DB> {
    let is_set = |time| integer::<DB>(&format!("CASE WHEN {time} IS NULL THEN 0 ELSE 1 END"));
    let [is_paused, has_end] = ["{paused_at}", "{paused_until}"].map(is_set);
    let [since, until, now, limited] =
        ["{paused_at}", "{paused_until}", "{statement_time}", "{limited_at}"].map(since_1970::<DB>);
    let [workers, at_most, retry_delay] = ["{workers}", "{at_most}", "{retry_delay_ms}"].map(integer::<DB>);
    let of_queue = if queue.is_some() { " WHERE {queue} = ?" } else { "" };
    let text = format!(
        "SELECT {{queue}}, {{scope}}, {{paused_by}}, {{pause_reason}}, {{paused_value}}, {is_paused}, {has_end}, {since}, \
         {until}, {now}, {{limited_by}}, {{limit_reason}}, {limited}, {workers}, {at_most}, {retry_delay}, {{environment}} \
         FROM {{queueable_control}}{of_queue} ORDER BY {{queue}}, {{scope}}"
    );
    own_statement(text, queue.map(Text).into_iter().collect())
}

/// Writes the limits of a queue from now on: the workers of each process, the rows at the same time, and the milliseconds until a
/// retry. If there are some already, these take their place.
pub fn set_limits<'a, DB: QueueBackend>(
    queue: &'a str,
    (by, reason): (&'a str, &'a str),
    limits: [Option<i64>; 3],
) -> impl Statement<DB> {
    let columns = ["limited_at", "limited_by", "limit_reason", "workers", "at_most", "retry_delay_ms"];
    let [workers, at_most, retry_delay] = limits.map(|limit| limit.map_or(Sql("NULL"), Number));
    own_statement(
        insert_or_set::<DB>(&["queue", "scope"], &columns),
        vec![Text(queue), Sql("''"), Sql("{now}"), Text(by), Text(reason), workers, at_most, retry_delay],
    )
}

/// Ends the limits of a queue.
pub fn end_limits<DB: QueueBackend>(queue: &str) -> impl Statement<DB> {
    own_statement(
        "UPDATE {queueable_control} SET {limited_at} = NULL, {limited_by} = NULL, {limit_reason} = NULL, {workers} = NULL, \
         {at_most} = NULL, {retry_delay_ms} = NULL WHERE {limited_at} IS NOT NULL AND {scope} = '' AND {queue} = ?",
        vec![Text(queue)],
    )
}

/// Writes the environment's name. `replaces`: also if there is one already.
pub fn set_environment<DB: QueueBackend>(name: &str, replaces: bool) -> impl Statement<DB> {
    let (before, after) = DB::INSERTED;
    let inserted = format!("{before}{{environment}}{after}");
    let new = match replaces {
        true => inserted,
        false => format!("COALESCE({{queueable_control}}.{{environment}}, {inserted})"),
    };
    let text = format!(
        "INSERT INTO {{queueable_control}} ({{queue}}, {{scope}}, {{environment}}) VALUES ('{NO_QUEUE}', '', ?){}\
         {{environment}} = {new}",
        DB::ON_SAME_KEY
    );
    own_statement(text, vec![Text(name)])
}

/// When a pause ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseEnd {
    /// It does not.
    Never,
    /// At this time.
    At(Instant),
    /// After this time.
    After(Duration),
}

/// Writes a pause of a part of a queue from now on, of the whole if `scope` is empty. `value` is the value whose rows are paused,
/// as people read it. If there is a pause already, this one takes its place.
pub fn set_pause<'a, DB: QueueBackend>(
    (queue, scope): (&'a str, &'a str),
    (by, reason): (&'a str, &'a str),
    value: Option<&'a str>,
    end: PauseEnd,
) -> impl Statement<DB> {
    let until = match end {
        PauseEnd::Never => Sql("NULL"),
        PauseEnd::At(time) => Time(time),
        PauseEnd::After(time) => Once(now_plus::<DB>(time)),
    };
    let columns = ["paused_at", "paused_until", "paused_by", "pause_reason", "paused_value"];
    own_statement(
        insert_or_set::<DB>(&["queue", "scope"], &columns),
        vec![Text(queue), Text(scope), Sql("{now}"), until, Text(by), Text(reason), value.map_or(Sql("NULL"), Text)],
    )
}

/// Ends the pause of a queue or of a part of it; of the whole if `scope` is empty. The row stays: it may say more about the
/// queue than the pause.
pub fn end_pause<'a, DB: QueueBackend>(queue: &'a str, scope: &'a str) -> impl Statement<DB> {
    own_statement(
        "UPDATE {queueable_control} SET {paused_at} = NULL, {paused_until} = NULL, {paused_by} = NULL, {pause_reason} = NULL, \
         {paused_value} = NULL WHERE {paused_at} IS NOT NULL AND {queue} = ? AND {scope} = ?",
        vec![Text(queue), Text(scope)],
    )
}

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
    /// Returns the values, but for the number and the times.
    fn values(&self) -> Vec<Value<'_>> {
        vec![
            Text(&self.host),
            Number(self.pid),
            Text(&self.version),
            Text(&self.application),
            Text(self.state),
            Integer(self.workers),
            Text(&self.queues),
            Text(&self.running),
        ]
    }
}

/// Writes what a poller says of itself over what it said before.
pub fn update_poller<DB: QueueBackend>(entry: &PollerEntry) -> impl Statement<DB> {
    let mut values = entry.values();
    values.push(Number(entry.id));
    own_statement(
        "UPDATE {queueable_pollers} SET {host} = ?, {pid} = ?, {version} = ?, {application} = ?, {state} = ?, {workers} = ?, \
         {queues} = ?, {running} = ?, {seen_at} = {statement_time} WHERE {id} = ?",
        values,
    )
}

/// Writes what a poller says of itself for the first time.
pub fn insert_poller<DB: QueueBackend>(entry: &PollerEntry) -> impl Statement<DB> {
    let mut values = vec![Number(entry.id)];
    values.extend(entry.values());
    values.extend([Once(statement_time_plus::<DB>(-entry.age)), Sql("{statement_time}")]);
    own_statement(insert(OwnTable::Pollers, &OwnTable::Pollers.columns()), values)
}

/// Reads what all pollers have written, the latest first.
pub fn read_pollers<DB: QueueBackend>() -> impl Statement<DB> {
    let [started, seen, now] = ["{started_at}", "{seen_at}", "{statement_time}"].map(since_1970::<DB>);
    let text = format!(
        "SELECT {{id}}, {{host}}, {{pid}}, {{version}}, {{application}}, {{state}}, {}, {{queues}}, {{running}}, {started}, \
         {seen}, {now} FROM {{queueable_pollers}} ORDER BY {{seen_at}} DESC, {{id}}",
        integer::<DB>("{workers}")
    );
    own_statement(text, Vec::new())
}

/// Removes a poller.
pub fn remove_poller<DB: QueueBackend>(id: i64) -> impl Statement<DB> {
    own_statement("DELETE FROM {queueable_pollers} WHERE {id} = ?", vec![Number(id)])
}

/// A row of the audit, without its number of rows.
#[derive(Debug)]
pub struct AuditEntry {
    /// When the operator asked, by the database's clock.
    pub at: Instant,
    /// A random number that tells it from other rows of the same time.
    pub id: i64,
    /// Who asked.
    pub by: String,
    /// Why.
    pub reason: String,
    /// The queue's name.
    pub queue: String,
    /// The call, and its argument.
    pub action: String,
    /// The conditions that picked the rows.
    pub filter: String,
}

/// Adds a row.
pub fn insert_audit<DB: QueueBackend>(entry: &AuditEntry, rows: i64) -> impl Statement<DB> {
    let texts = [&entry.by, &entry.reason, &entry.queue, &entry.action, &entry.filter];
    let mut values = vec![Time(entry.at), Number(entry.id)];
    values.extend(texts.map(|text| Text(text)));
    values.push(Number(rows));
    own_statement(insert(OwnTable::Audit, &OwnTable::Audit.columns()), values)
}

/// Sets the number of rows.
pub fn update_audit<DB: QueueBackend>(entry: &AuditEntry, rows: i64) -> impl Statement<DB> {
    own_statement(
        "UPDATE {queueable_audit} SET {row_count} = ? WHERE {changed_at} = ? AND {id} = ?",
        vec![Number(rows), Time(entry.at), Number(entry.id)],
    )
}

/// Reads rows along the key, the newest first: of one queue or of all, from the newest or after a row, which its time as text and
/// its number name. Rows whose time is odd are left out.
pub fn read_audit<'a, DB: QueueBackend>(
    queue: Option<&'a str>,
    after: Option<&'a (String, i64)>,
    limit: i64,
) -> impl Statement<DB> {
    let ((before, behind), (time, time_end)) = (DB::TEXT_OF_TIME, DB::TIME_OF_TEXT);
    let mut text = format!(
        "SELECT {since}, {before}{{changed_at}}{behind}, {{id}}, {{changed_by}}, {{reason}}, {{queue}}, {{action}}, {{filter}}, \
         {rows} FROM {{queueable_audit}} WHERE {since} IS NOT NULL",
        since = since_1970::<DB>("{changed_at}"),
        rows = integer::<DB>("{row_count}"),
    );
    let mut values = Vec::new();
    if let Some(queue) = queue {
        text += " AND {queue} = ?";
        values.push(Text(queue));
    }
    if let Some((last, id)) = after {
        // A range for the key, and within it what comes after the row.
        text +=
            &format!(" AND {{changed_at}} <= {time}?{time_end} AND ({{changed_at}} < {time}?{time_end} OR {{id}} < ?)");
        values.extend([Text(last), Text(last), Number(*id)]);
    }
    values.push(Number(limit));
    own_statement(text + " ORDER BY {changed_at} DESC, {id} DESC LIMIT ?", values)
}
