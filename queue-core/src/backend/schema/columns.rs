//! The queue's columns, and their comparison with those of the live table.

use std::slice;

use diesel::Connection;
use diesel::result::QueryResult;

use super::archive::ArchiveSchema;
use super::index::{Index, indexes};
use super::live_table::{LiveColumn, find_column, until_done};
use super::table_name::TableName;
use super::target::{Step, Target, finding};
use super::trigger::Triggers;
use crate::error::{Finding, refused};
use crate::row::{Options, Status};

/// The SQL types of the columns on one database.
pub(crate) struct Types {
    pub(crate) status: ColumnType,
    pub(crate) time: ColumnType,
    pub(crate) try_count: ColumnType,
    pub(crate) message: ColumnType,
    /// A word: a stage, a cron expression, a time zone.
    pub(crate) word: ColumnType,
    /// A whole number of 64 bits.
    pub(crate) count: ColumnType,
}

/// A type as DDL writes it, and the types that the catalogue may give for it.
pub(crate) struct ColumnType(pub(crate) &'static str, pub(crate) &'static [&'static str]);

/// A database's words for columns, indexes and the control table.
pub(crate) trait Ddl<DB = <Self as Connection>::Backend>: Triggers<DB> + ArchiveSchema<DB> {
    /// The SQL types of the columns.
    const TYPES: Types;

    /// The statement that creates the control table, unless it exists. Its checks refuse what no pause can be.
    const CREATE_CONTROL: &'static str;

    /// The SQL type of a queue's name, in a key.
    const NAME_TYPE: &'static str = "TEXT";

    /// What follows the columns of a table.
    const END_OF_TABLE: &'static str = "";

    /// Tells whether the account may read a table of which it knows that it is there. Elsewhere it sees only what it may read.
    fn may_read(&mut self, _table: &TableName) -> QueryResult<bool> {
        Ok(true)
    }

    /// Writes the statements that add the columns.
    fn add_columns(target: &Target, columns: &[NeededColumn]) -> Vec<String>;

    /// Writes the statements that drop the columns with these names.
    fn drop_columns(target: &Target, names: &[&str]) -> Vec<String>;

    /// Writes the SQL that gives an existing column its definition, with the queue's mark if it had that.
    fn redefine(target: &Target, column: &NeededColumn, marked: bool) -> String;

    /// Writes the SQL that marks an existing column as the queue's.
    fn mark(target: &Target, column: &NeededColumn) -> String {
        Self::redefine(target, column, true)
    }

    /// Returns the steps of a migration that create an index.
    fn index_steps(target: &Target, index: &Index) -> Vec<Step>;

    /// Returns the statements that are still to be run for an index; none if the live table has it, or one that serves
    /// as well.
    fn lacking(&mut self, target: &Target, index: &Index) -> QueryResult<Vec<String>>;

    /// Builds the indexes that are missing.
    fn add_indexes(&mut self, target: &Target) -> QueryResult<()> {
        indexes::<Self::Backend>(target)
            .iter()
            .try_for_each(|index| until_done(self, |connection| connection.lacking(target, index), Self::alter))
    }

    /// Drops the indexes that exist.
    fn drop_indexes(&mut self, target: &Target) -> QueryResult<()>;

    /// Finds a column of the domain whose values may be too long for an index of the queue.
    fn too_long(&mut self, _target: &Target) -> QueryResult<Option<Finding>> {
        Ok(None)
    }

    /// Returns the findings about the indexes.
    fn check_indexes(&mut self, target: &Target) -> QueryResult<Vec<Finding>> {
        let mut findings = Vec::from_iter(self.too_long(target)?);
        if !findings.is_empty() {
            return Ok(findings);
        }
        for index in indexes::<Self::Backend>(target) {
            let mend = self.lacking(target, &index)?;
            if !mend.is_empty() {
                let name = &index.name;
                let (kind, purpose) = match index.widened {
                    Some(_) => ("", "with the columns that `report_index` needs"),
                    None => ("usable ", "for the claim"),
                };
                let problem = format!("the table {} has no {kind}index {name} {purpose}", target.table);
                findings.push(finding(target, problem, mend.join("; ")));
            }
        }
        Ok(findings)
    }

    /// Adapts the definitions of needed columns to what the table takes.
    fn suit(&mut self, _target: &Target, _needed: &mut [NeededColumn]) {}

    /// Returns the findings that only this database has, about the table and the server's settings.
    fn check_own(&mut self, _target: &Target) -> QueryResult<Vec<Finding>> {
        Ok(Vec::new())
    }
}

/// A column that the queue needs.
#[derive(PartialEq)]
pub(crate) struct NeededColumn {
    pub(crate) name: &'static str,
    /// Its type, default and nullability, as DDL.
    pub(crate) definition: String,
    /// Its type alone.
    pub(crate) sql_type: &'static str,
    /// Its default, if it must not be null.
    pub(crate) default: Option<String>,
    accepted: &'static [&'static str],
    /// The number of characters that a text in it may have at least, if its type is limited.
    shortest: i64,
    nullable: bool,
}

impl NeededColumn {
    /// Returns the types that serve, for people: where the catalogue's word leaves something open, as the migration
    /// writes them.
    fn wanted(&self) -> String {
        match self.accepted {
            [one] if self.sql_type.to_ascii_lowercase().starts_with(one) => self.sql_type.to_ascii_lowercase(),
            several => several.join(" or "),
        }
    }
}

/// Stages, cron expressions, time zones: as many characters as a column of MySQL gets, where they may be in an index.
const WORD_LENGTH: i64 = 191;

/// More than the longest error text that a poller writes by default.
const MESSAGE_LENGTH: i64 = 65_535;

/// Returns the queue's columns: the five, and those that the entity's options ask for.
pub(crate) fn needed_columns<D: Ddl>(target: &Target) -> Vec<NeededColumn> {
    let (names, types) = (target.columns, D::TYPES);
    let nullable = |name, &ColumnType(sql_type, accepted): &ColumnType| NeededColumn {
        name,
        definition: sql_type.to_owned(),
        sql_type,
        default: None,
        accepted,
        shortest: 0,
        nullable: true,
    };
    let required = |name, sql_type: &ColumnType, default: &str| NeededColumn {
        definition: format!("{} NOT NULL DEFAULT {default}", sql_type.0),
        default: Some(default.to_owned()),
        nullable: false,
        ..nullable(name, sql_type)
    };
    let at_least = |shortest, column: NeededColumn| NeededColumn { shortest, ..column };
    let time = |name| nullable(name, &types.time);
    let word = |name| at_least(WORD_LENGTH, nullable(name, &types.word));
    let longest_status = Status::ALL.map(|status| status.as_str().len()).into_iter().max().unwrap_or_default() as i64;
    let mut columns = vec![
        at_least(longest_status, required(names.status, &types.status, "'NOT_ATTEMPTED'")),
        time(names.next_attempt_time),
        required(names.try_count, &types.try_count, "0"),
        time(names.last_attempt_time),
        at_least(MESSAGE_LENGTH, nullable(names.last_attempt_error_message, &types.message)),
    ];
    let Options { priority, stages, periodic, rerun_on_change, timestamps, occasion, traceparent, .. } = target.options;
    columns.extend(priority.map(|name| required(name, &types.try_count, "0")));
    columns.extend(stages.map(|stages| {
        let first = stages.names.first().copied().unwrap_or_default().replace('\'', "''");
        at_least(WORD_LENGTH, required(stages.column, &types.word, &format!("'{first}'")))
    }));
    if let Some(periodic) = periodic {
        columns.push(nullable(periodic.period, &types.count));
        columns.extend([word(periodic.cron), word(periodic.time_zone), time(periodic.scheduled_time)]);
    }
    columns.extend(rerun_on_change.map(|rerun| required(rerun.change_count, &types.count, "0")));
    columns.extend(occasion.map(|name| required(name, &types.count, "0")));
    columns.extend(traceparent.map(word));
    columns.extend(
        [timestamps.created, timestamps.updated, timestamps.begin, timestamps.end].into_iter().flatten().map(time),
    );
    columns
}

/// Returns them with definitions that the live table takes.
pub(crate) fn suited_columns<D: Ddl>(connection: &mut D, target: &Target) -> Vec<NeededColumn> {
    let mut needed = needed_columns::<D>(target);
    connection.suit(target, &mut needed);
    needed
}

/// The number of columns that every queue has.
pub(crate) const OWN: usize = 5;

/// Returns the needed columns that the live table lacks; `None` if it has them all.
///
/// # Errors
///
/// If the table has a column of such a name that is the application's own, or, where the queue adopts it, one that the
/// queue could not use.
pub(crate) fn missing<D: Ddl>(
    target: &Target,
    needed: Vec<NeededColumn>,
    live: &[LiveColumn],
) -> QueryResult<Option<Vec<NeededColumn>>> {
    let mut missing = Vec::new();
    for column in needed {
        match find_column(live, column.name) {
            None => missing.push(column),
            Some(live) if live.marked => {}
            Some(live) if target.adopts => {
                if let Some((problem, mend)) = unfit::<D>(target, &column, live) {
                    return Err(refused(format!(
                        "the table {} is not ready for its queue: {problem}; {mend}",
                        target.table
                    )));
                }
            }
            Some(_) => return Err(refused(not_the_queues(target, column.name))),
        }
    }
    Ok((!missing.is_empty()).then_some(missing))
}

/// Returns the names of the needed columns that the live table has and that a revert drops.
///
/// # Errors
///
/// If one of them is the application's own.
pub(crate) fn present<D: Ddl>(target: &Target, live: &[LiveColumn]) -> QueryResult<Vec<&'static str>> {
    let mut present = Vec::new();
    for column in needed_columns::<D>(target) {
        match find_column(live, column.name) {
            Some(live) if !live.marked && !target.adopts => {
                return Err(refused(not_the_queues(target, column.name)));
            }
            Some(live) if live.marked || !live.computed => present.push(column.name),
            _ => {}
        }
    }
    Ok(present)
}

/// Says that a column is the application's own, and what can be done.
fn not_the_queues(target: &Target, column: &str) -> String {
    format!(
        "the table {} has a column {column} that is not the queue's, because no migration of the queue has added it: {}",
        target.table,
        not_taken_over(target)
    )
}

fn not_taken_over(target: &Target) -> String {
    format!("{OTHER_NAMES}, or, if you made it for the queue, say Migrations::adopt::<{}>()", target.entity)
}

/// Warns of columns that the queue writes although none of its migrations has added them, if one has added others.
pub(crate) fn tell_of_unmarked(target: &Target, needed: &[NeededColumn], live: &[LiveColumn]) {
    let (marked, unmarked): (Vec<_>, Vec<_>) =
        needed.iter().filter_map(|column| find_column(live, column.name)).partition(|live| live.marked);
    if !marked.is_empty() && !unmarked.is_empty() {
        let names: Vec<_> = unmarked.iter().map(|live| &*live.name).collect();
        tracing::warn!(
            entity = target.entity,
            "the queue writes columns that no migration of it has added: {}; if they are the application's, {OTHER_NAMES}",
            names.join(", ")
        );
    }
}

pub(crate) const OTHER_NAMES: &str = "give the queue names of its own, for example with #[queue(prefix = \"queue_\")]";

/// Tells whether the default of the live stage column is the first stage; `None` for any other column.
fn is_first_stage(target: &Target, needed: &NeededColumn, live: &LiveColumn) -> Option<bool> {
    let stages = target.options.stages.filter(|stages| stages.column == needed.name)?;
    Some(literal(live.default_value.as_deref()?) == *stages.names.first()?)
}

/// Returns the value of a default as the catalogue writes it: without quotes, or as a literal, perhaps with a cast.
fn literal(default: &str) -> String {
    match (default.find('\''), default.rfind('\'')) {
        (Some(0), Some(end)) if end > 0 => default[1..end].replace("''", "'"),
        _ => default.to_owned(),
    }
}

fn is_status_default(live: &LiveColumn) -> bool {
    live.default_value.as_ref().is_some_and(|default| default.contains(Status::NotAttempted.as_str()))
}

/// Returns the findings about the live columns.
pub(crate) fn compare<D: Ddl>(target: &Target, needed: &[NeededColumn], live: &[LiveColumn]) -> Vec<Finding> {
    let table = &target.table;
    if live.is_empty() {
        let problem = format!("there is no table {table}");
        return vec![finding(target, problem, "create it, or correct `table_name`".to_owned())];
    }
    if let Some(foreign) = foreign::<D>(target, needed, live) {
        let problem = format!("the table {table} has no queue, but a column {} of its own", foreign.name);
        return vec![finding(target, problem, not_taken_over(target))];
    }
    let mut findings = Vec::new();
    for column in needed {
        let found = match find_column(live, column.name) {
            Some(live) => unfit::<D>(target, column, live),
            None => {
                let problem =
                    format!("the table {table} has no column {}, which the entity's migration adds", column.name);
                Some((problem, D::add_columns(target, slice::from_ref(column)).join("; ")))
            }
        };
        findings.extend(found.map(|(problem, mend)| finding(target, problem, mend)));
    }
    findings
}

/// Returns a column of the application's own that has the name of one of the queue's, in a table that has no queue yet.
///
/// Without a status column of the queue's there is none, unless all its columns were made by hand. Adding the others
/// would hand the application's column over to the queue.
pub(crate) fn foreign<'a, D: Ddl>(
    target: &Target,
    needed: &'a [NeededColumn],
    live: &[LiveColumn],
) -> Option<&'a NeededColumn> {
    let is_status = |live: &LiveColumn| live.marked || unfit::<D>(target, &needed[0], live).is_none();
    let has_queue = find_column(live, target.columns.status).is_some_and(is_status)
        || needed[..OWN].iter().all(|column| find_column(live, column.name).is_some());
    let is_foreign = |column: &&NeededColumn| find_column(live, column.name).is_some_and(|live| !live.marked);
    needed.iter().find(is_foreign).filter(|_| !has_queue)
}

/// Says why a live column cannot hold what the queue writes, and the mend; `None` if it can.
fn unfit<D: Ddl>(target: &Target, column: &NeededColumn, live: &LiveColumn) -> Option<(String, String)> {
    let name = column.name;
    if live.computed {
        let drop = format!("ALTER TABLE {} DROP COLUMN {}", target.table, target.table.quoted(name));
        let problem = format!("the column {name} is generated, so no worker can write it");
        return Some((problem, format!("{drop} -- and run the entity's migration again")));
    }
    let accepts = |sql_type: &str| column.accepted.contains(&sql_type.to_ascii_lowercase().as_str());
    let problem = if !accepts(&live.data_type) {
        format!("the column {name} is of type {}, expected {}", live.sql_type(), column.wanted())
    } else if live.length.is_some_and(|length| length < column.shortest) {
        let shortest = column.shortest;
        format!("the column {name} is of type {}, expected at least {shortest} characters", live.sql_type())
    } else if column.nullable && !live.nullable {
        let null = match name == target.columns.next_attempt_time {
            true => "null means `not queued`",
            false => "null means that there is none",
        };
        format!("the column {name} is NOT NULL, but {null}")
    } else if !column.nullable && (live.nullable || live.default_value.is_none()) {
        format!("the column {name} may be null or has no default, so an ordinary insert writes no state")
    } else if name == target.columns.status && !is_status_default(live) {
        let problem = format!("the column {name} has another default than NOT_ATTEMPTED: is it the application's own?");
        return Some((problem, OTHER_NAMES.to_owned()));
    } else if is_first_stage(target, column, live) == Some(false) {
        let found = live.default_value.as_deref().map(literal).unwrap_or_default();
        format!("the column {name} has the default `{found}`, which is not the first stage")
    } else {
        return None;
    };
    Some((problem, D::redefine(target, column, live.marked)))
}
