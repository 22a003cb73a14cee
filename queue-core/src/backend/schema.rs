//! What the schemas of the three databases share: the queue's columns, and their comparison with the live table.

use diesel::Connection;
use diesel::deserialize::QueryableByName;
use diesel::result::QueryResult;
use diesel::sql_types::{Bool, Nullable, Text};

use super::connection::QueueBackend;
use super::target::{Target, ordered_index_of, pending_flag_of};
use crate::error::{Finding, refused};
use crate::row::{Options, Status};

/// The SQL types of the columns on one database.
pub(crate) struct Types {
    pub(crate) status: &'static str,
    pub(crate) time: &'static str,
    pub(crate) try_count: &'static str,
    pub(crate) message: &'static str,
    /// A word: a stage, a cron expression, a time zone.
    pub(crate) word: &'static str,
    /// A whole number of 64 bits.
    pub(crate) count: &'static str,
    /// The types that the catalogue may give for each of them.
    pub(crate) accepted: Accepted,
}

/// The types that the catalogue may give for the columns.
pub(crate) struct Accepted {
    pub(crate) status: &'static [&'static str],
    pub(crate) time: &'static [&'static str],
    pub(crate) try_count: &'static [&'static str],
    pub(crate) message: &'static [&'static str],
    pub(crate) word: &'static [&'static str],
    pub(crate) count: &'static [&'static str],
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
    nullable: bool,
}

/// A column of the live table.
#[derive(QueryableByName)]
pub(crate) struct LiveColumn {
    #[diesel(sql_type = Text)]
    pub(crate) name: String,
    #[diesel(sql_type = Text)]
    pub(crate) data_type: String,
    #[diesel(sql_type = Bool)]
    pub(crate) nullable: bool,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) default_value: Option<String>,
}

/// A database's view of a live table, and how the table is altered there.
pub(crate) trait LiveTable: Connection<Backend: QueueBackend> {
    /// Whether a table can be created or altered inside a transaction.
    const ALTERS_IN_TRANSACTION: bool = true;

    /// The default that gives an inserted row its time. `None`: the database cannot add one to an existing column.
    const INSERT_TIME: Option<&'static str>;

    /// Returns the columns of the table; none if there is no such table.
    fn live_columns(&mut self, target: &Target) -> QueryResult<Vec<LiveColumn>>;

    /// Runs DDL that needs the table's strongest lock, without keeping other sessions waiting for long.
    fn alter(&mut self, ddl: &str) -> QueryResult<()>;
}

/// Returns the queue's columns: the five, and those that the entity's options ask for.
pub(crate) fn needed_columns(target: &Target, types: &Types) -> Vec<NeededColumn> {
    let names = target.columns;
    let nullable = |name, sql_type: &'static str, accepted| NeededColumn {
        name,
        definition: sql_type.to_owned(),
        sql_type,
        default: None,
        accepted,
        nullable: true,
    };
    let required = |name, sql_type: &'static str, default: &str, accepted| NeededColumn {
        name,
        definition: format!("{sql_type} NOT NULL DEFAULT {default}"),
        sql_type,
        default: Some(default.to_owned()),
        accepted,
        nullable: false,
    };
    let Types { accepted, .. } = types;
    let time = |name| nullable(name, types.time, accepted.time);
    let word = |name| nullable(name, types.word, accepted.word);
    let mut columns = vec![
        required(names.status, types.status, "'NOT_ATTEMPTED'", accepted.status),
        time(names.next_attempt_time),
        required(names.try_count, types.try_count, "0", accepted.try_count),
        time(names.last_attempt_time),
        nullable(names.last_attempt_error_message, types.message, accepted.message),
    ];
    let Options { priority, stages, periodic, rerun_on_change, timestamps, occasion, .. } = target.options;
    columns.extend(priority.map(|name| required(name, types.try_count, "0", accepted.try_count)));
    columns.extend(stages.map(|stages| {
        let first = stages.names.first().copied().unwrap_or_default().replace('\'', "''");
        required(stages.column, types.word, &format!("'{first}'"), accepted.word)
    }));
    if let Some(periodic) = periodic {
        columns.push(nullable(periodic.period, types.count, accepted.count));
        columns.extend([word(periodic.cron), word(periodic.time_zone), time(periodic.scheduled_time)]);
    }
    columns.extend(rerun_on_change.map(|rerun| required(rerun.change_count, types.count, "0", accepted.count)));
    columns.extend(occasion.map(|name| required(name, types.count, "0", accepted.count)));
    columns.extend(
        [timestamps.created, timestamps.updated, timestamps.begin, timestamps.end].into_iter().flatten().map(time),
    );
    columns
}

/// The number of columns that every queue has.
const OWN: usize = 5;

/// Returns the steps of a migration that add the columns: one for those that every queue has, and one for each that an
/// option asks for. So an option that is added later makes a further step, beside the existing ones.
pub(crate) fn column_steps(needed: &[NeededColumn]) -> impl Iterator<Item = (&'static str, &[NeededColumn])> {
    let (own, asked_for) = needed.split_at(OWN);
    std::iter::once(("columns", own)).chain(asked_for.iter().map(|column| (column.name, std::slice::from_ref(column))))
}

/// Checks what is left to do, and does it, until nothing is left.
///
/// Others may be doing the same: processes that start together, or a server that still runs the statement of a killed
/// process. So an error counts only if the check after it finds the same left to do.
pub(crate) fn until_done<C, T: PartialEq>(
    connection: &mut C,
    look: impl Fn(&mut C) -> QueryResult<Option<T>>,
    step: impl Fn(&mut C, &T) -> QueryResult<()>,
) -> QueryResult<()> {
    let mut left = look(connection)?;
    while let Some(before) = left {
        let done = step(connection, &before);
        let after = look(connection);
        match (done, after) {
            (done, Ok(Some(after))) if after == before => return done,
            (Err(error), Err(_)) => return Err(error),
            (_, after) => left = after?,
        }
    }
    Ok(())
}

/// Returns the needed columns that the live table lacks; `None` if it has them all.
///
/// # Errors
///
/// If the table has a column of such a name that is the application's own. The queue would overwrite it, and reverting
/// the migration would drop it.
pub(crate) fn missing(
    target: &Target,
    needed: Vec<NeededColumn>,
    live: &[LiveColumn],
) -> QueryResult<Option<Vec<NeededColumn>>> {
    // The status is added first: without it, no column that an option asks for can be the queue's.
    let is_fresh = find(live, target.columns.status).is_none();
    let mut missing = Vec::new();
    for (i, column) in needed.into_iter().enumerate() {
        match find(live, column.name) {
            None => missing.push(column),
            Some(live) if (is_fresh && i >= OWN) || !is_the_queues(target, &column, live) => {
                let renamed = match is_first_stage(target, &column, live) {
                    Some(false) => {
                        "; if it is the queue's and its first stage had another name, set its default to the new one"
                    }
                    _ => "",
                };
                return Err(refused(format!(
                    "the table {} has a column {} that is not the queue's: give the queue names of its own, for example \
                     with #[queue(prefix = \"queue_\")]{renamed}",
                    target.table, column.name
                )));
            }
            Some(_) => {}
        }
    }
    Ok((!missing.is_empty()).then_some(missing))
}

/// Tells whether a migration can have added a live column: it has the queue's type, and the queue's default, if there
/// is one.
fn is_the_queues(target: &Target, needed: &NeededColumn, live: &LiveColumn) -> bool {
    let has_our_default = match &needed.default {
        _ if needed.name == target.columns.status => is_status_default(live),
        Some(default) => live.default_value.as_ref().is_some_and(|live| literal(live) == literal(default)),
        None => true,
    };
    needed.accepted.contains(&live.data_type.to_ascii_lowercase().as_str()) && has_our_default
}

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

pub(crate) fn find<'a>(live: &'a [LiveColumn], name: &str) -> Option<&'a LiveColumn> {
    live.iter().find(|column| column.name.eq_ignore_ascii_case(name))
}

/// Returns the findings about the live columns. `retype` writes the SQL that gives a column its definition.
pub(crate) fn compare(
    target: &Target,
    needed: Vec<NeededColumn>,
    live: &[LiveColumn],
    retype: impl Fn(&NeededColumn) -> String,
) -> Vec<Finding> {
    let table = &target.table;
    if live.is_empty() {
        let problem = format!("there is no table {table}");
        return vec![finding(target, problem, "create it, or correct `table_name`".to_owned())];
    }
    let mut findings = Vec::new();
    for column in needed {
        let name = column.name;
        let Some(live) = find(live, name) else {
            let mend = format!("ALTER TABLE {table} ADD COLUMN {} {}", table.quoted(name), column.definition);
            let problem = format!("the table {table} has no column {name}, which the entity's migration adds");
            findings.push(finding(target, problem, mend));
            continue;
        };
        let sql_type = live.data_type.to_ascii_lowercase();
        if !column.accepted.contains(&sql_type.as_str()) {
            let problem = format!("the column {name} is of type {sql_type}, expected {}", column.accepted.join(" or "));
            findings.push(finding(target, problem, retype(&column)));
        } else if column.nullable && !live.nullable {
            let null = match name == target.columns.next_attempt_time {
                true => "null means `not queued`",
                false => "null means that there is none",
            };
            findings.push(finding(target, format!("the column {name} is NOT NULL, but {null}"), retype(&column)));
        } else if !column.nullable && (live.nullable || live.default_value.is_none()) {
            let problem =
                format!("the column {name} may be null or has no default, so an ordinary insert writes no state");
            findings.push(finding(target, problem, retype(&column)));
        } else if name == target.columns.status && !is_status_default(live) {
            let problem =
                format!("the column {name} has another default than NOT_ATTEMPTED: is it the application's own?");
            let mend = "give the queue names of its own, for example with #[queue(prefix = \"queue_\")]".to_owned();
            findings.push(finding(target, problem, mend));
        } else if is_first_stage(target, &column, live) == Some(false) {
            let found = live.default_value.as_deref().map(literal).unwrap_or_default();
            let problem = format!("the column {name} has the default `{found}`, which is not the first stage");
            findings.push(finding(target, problem, retype(&column)));
        }
    }
    findings
}

pub(crate) fn finding(target: &Target, problem: String, mend: String) -> Finding {
    Finding { entity: target.entity.to_owned(), problem, mend }
}

/// Makes the finding for a missing index. `mend` are the statements that create it.
pub(crate) fn no_index(target: &Target, index: &Index, mend: &[String]) -> Finding {
    let problem = format!("the table {} has no usable index {} for the claim", target.table, index.name);
    finding(target, problem, mend.join("; "))
}

/// An index of the queue.
pub(crate) struct Index {
    /// The step of the migration that creates it.
    pub(crate) step: &'static str,
    pub(crate) name: String,
    /// All columns, as SQL.
    pub(crate) columns: String,
    /// Their names, and whether the nulls of each are put first, on databases where that is not the default.
    keys: Vec<(String, bool)>,
    /// Its first column, on databases whose indexes cannot leave out rows that are not pending.
    #[allow(dead_code, reason = "a database with partial indexes needs none")]
    pub(crate) pending_flag: Option<String>,
}

impl Index {
    /// Returns the first column's name: an index that begins with another column is not the queue's.
    pub(crate) fn first(&self) -> &str {
        &self.keys[0].0
    }

    /// Returns the columns' names.
    #[allow(dead_code, reason = "PostgreSQL asks for the order of their nulls too")]
    pub(crate) fn names(&self) -> Vec<&str> {
        self.keys.iter().map(|(name, _)| &**name).collect()
    }

    /// Returns the columns, and which of them have their nulls first.
    #[allow(dead_code, reason = "elsewhere nulls come first by themselves")]
    pub(crate) fn keys(&self) -> &[(String, bool)] {
        &self.keys
    }
}

/// Returns the index of due times, and the one of the entity's own order: by order and due time, or for an exclusive
/// entity by order and primary key.
pub(crate) fn indexes<DB: QueueBackend>(target: &Target) -> Vec<Index> {
    let table = &target.table;
    let next = target.columns.next_attempt_time;
    let mut indexes = vec![Index {
        step: "index",
        name: target.index(),
        columns: table.quoted(next),
        keys: vec![(next.to_owned(), false)],
        pending_flag: None,
    }];
    let Options { order, exclusive, .. } = target.options;
    if order.is_none() && !exclusive {
        return indexes;
    }
    let pending_flag = (!DB::PARTIAL_INDEXES).then(|| pending_flag_of(table, target.columns));
    let order = order.map(|order| order.column);
    let last: Vec<&str> = if exclusive { target.key.iter().map(String::as_str).collect() } else { vec![next] };
    let all: Vec<&str> = pending_flag.as_deref().into_iter().chain(order).chain(last).collect();
    let has_nulls_first = |name: &str| Some(name) == order && !DB::NULLS_FIRST.is_empty();
    let column = |name: &&str| {
        let nulls = if has_nulls_first(name) { DB::NULLS_FIRST } else { "" };
        table.quoted(name) + nulls
    };
    indexes.push(Index {
        step: "order",
        name: ordered_index_of(table, target.columns, &target.options),
        columns: all.iter().map(column).collect::<Vec<_>>().join(", "),
        keys: all.iter().map(|name| ((*name).to_owned(), has_nulls_first(name))).collect(),
        pending_flag,
    });
    indexes
}
