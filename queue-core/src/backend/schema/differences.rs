//! The comparison of the live table with the application's `table!`, and with all that the queue needs at once.
//!
//! A start asks in steps: what its first findings are about may be the reason for others. A check in the user's CI names
//! everything, so that one look is enough.

use diesel::result::QueryResult;

use super::columns::{Ddl, NeededColumn, OTHER_NAMES, foreign, suited_columns};
use super::declared::DeclaredColumn;
use super::index::stage_index;
use super::live_table::{LiveColumn, find_column};
use super::target::{Target, finding};
use super::trigger;
use crate::error::Finding;
use crate::row::ColumnNames;

/// Compares the live table with `table!` and with all that the queue needs. The check of a start reports a name that does
/// not stand for a table.
pub(crate) fn differences<D: Ddl>(
    connection: &mut D,
    target: &Target,
    declared: &[DeclaredColumn],
) -> QueryResult<Vec<Finding>> {
    if connection.other_kind(target)?.is_some() {
        return Ok(Vec::new());
    }
    let live = connection.live_columns(target)?;
    if live.is_empty() {
        return Ok(Vec::new());
    }
    let needed = suited_columns(connection, target);
    let mut findings = Vec::new();
    let has_queue = foreign::<D>(target, &needed, &live).is_none();
    if has_queue {
        findings.extend(needed.iter().filter_map(|column| unmarked::<D>(target, column, &live, declared)));
    }
    findings.extend(needed.iter().filter_map(|column| other_nullability(target, column.name, &live, declared)));
    let all = connection.columns(&target.table)?;
    let lacks = |column: &&DeclaredColumn| {
        let is_same = |live: &LiveColumn| match D::NAMES_HAVE_CASE {
            true => live.name == column.name,
            false => live.name.eq_ignore_ascii_case(&column.name),
        };
        // The check of a start has named the queue's own.
        !all.iter().any(is_same) && needed.iter().all(|needed| needed.name != column.name)
    };
    findings.extend(declared.iter().filter(lacks).map(|column| lacking(target, &column.name)));
    if has_queue {
        findings.extend(connection.check_indexes(target)?);
        findings.extend(trigger::check(connection, target)?);
    }
    Ok(findings)
}

fn declared_as<'a>(declared: &'a [DeclaredColumn], name: &str) -> Option<&'a DeclaredColumn> {
    declared.iter().find(|column| column.name == name)
}

/// Finds a column that the queue writes although no migration of it has added it.
fn unmarked<D: Ddl>(
    target: &Target,
    column: &NeededColumn,
    live: &[LiveColumn],
    declared: &[DeclaredColumn],
) -> Option<Finding> {
    let name = column.name;
    find_column(live, name).filter(|live| !live.marked)?;
    let listed = match declared_as(declared, name) {
        Some(_) => ", and which `table!` lists",
        None => "",
    };
    let problem = format!(
        "the table {} has a column {name}, which the queue writes{listed}, but which no migration of the queue has added",
        target.table
    );
    let mark = D::mark(target, column);
    let mend = format!("{mark} -- if you have made it for the queue; if it is the application's, {OTHER_NAMES}");
    Some(finding(target, problem, mend))
}

/// Finds a column of the queue that is null in the table and never null in `table!`, or the other way round.
fn other_nullability(target: &Target, name: &str, live: &[LiveColumn], declared: &[DeclaredColumn]) -> Option<Finding> {
    let (declared, live) = (declared_as(declared, name)?, find_column(live, name)?);
    let (found, mend) = match (declared.nullable, live.nullable) {
        (false, true) => ("NOT NULL, but it may be null", "write `Nullable<..>` there"),
        (true, false) => ("`Nullable`, but it is NOT NULL", "leave out `Nullable` there"),
        _ => return None,
    };
    let problem = format!("`table!` declares the column {name} of {} as {found}", target.table);
    Some(finding(target, problem, format!("{mend}, or regenerate `table!` with `diesel print-schema`")))
}

/// Makes the finding for a column that only `table!` has.
fn lacking(target: &Target, name: &str) -> Finding {
    let problem = format!("`table!` has a column {name}, which the table {} lacks", target.table);
    let mend = "run the application's migration that adds it, or regenerate `table!` with `diesel print-schema`";
    finding(target, problem, mend.to_owned())
}

/// The columns of keys that decide what becomes of a row, by their default names without the prefix, and the keys.
/// Others (`priority`, `timestamps`) only add something, so a process may leave them alone.
const GOVERNING: [(&str, &str); 7] = [
    ("stage", "stage"),
    ("period", "periodic"),
    ("cron", "periodic"),
    ("time_zone", "periodic"),
    ("scheduled_time", "periodic"),
    ("change_count", "rerun_on_change"),
    ("occasion", "occasion"),
];

/// Finds the queue's columns that this build of an entity does not know: another build, which has one more key, has added
/// them.
///
/// A process that does not know a key processes rows as if there were none: it ends a row for good that a stage or a
/// schedule would continue. While old and new processes run side by side, nothing in a row tells the old ones. The
/// columns do: a migration marks those that it adds.
///
/// Only columns with their default names are recognized: a table may have several queues, each with its own prefix.
pub(crate) fn unknown_columns<D: Ddl>(
    connection: &mut D,
    target: &Target,
    needed: &[NeededColumn],
    live: &[LiveColumn],
) -> QueryResult<Option<Finding>> {
    let Some(prefix) = prefix(target.columns) else { return Ok(None) };
    let unknown = |(name, key): (&str, &'static str)| {
        let name = format!("{prefix}{name}");
        let column = live.iter().find(|live| live.marked && live.name == name)?;
        needed.iter().all(|needed| needed.name != name).then_some((&*column.name, key))
    };
    let (names, mut keys): (Vec<_>, Vec<_>) = GOVERNING.into_iter().filter_map(unknown).unzip();
    if names.is_empty() {
        return Ok(None);
    }
    keys.dedup();
    let keys = keys.into_iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(" and ");
    let problem = format!(
        "the table {} has columns that a migration has added for {keys}, and this struct does not ask for them: {}; a \
         poller that does not know {keys} would finish rows that have to go on",
        target.table,
        names.join(", ")
    );
    // The triggers that write a column go first.
    let mut drops = match names.iter().any(|name| name.ends_with("change_count")) {
        true => trigger::stale_drops(connection, target)?,
        false => Vec::new(),
    };
    // And so does its index, which SQLite does not drop with the column. PostgreSQL does.
    let stages = names.iter().filter(|name| name.ends_with("stage"));
    let indexes = stages.flat_map(|name| D::index_steps(target, &stage_index::<D::Backend>(target, name)));
    drops.extend(indexes.filter(|step| !step.alone).flat_map(|step| step.down));
    drops.extend(D::drop_columns(target, &names));
    let drops = drops.join("; ");
    let mend = format!("add {keys} to #[queue(..)]; or, if no program has it any more: {drops}");
    Ok(Some(finding(target, problem, mend)))
}

/// Returns the prefix of a queue's columns: what most of their names have before the default name. `None`: they have
/// other names.
fn prefix(columns: ColumnNames) -> Option<&'static str> {
    let prefixes = [
        columns.status.strip_suffix("status"),
        columns.next_attempt_time.strip_suffix("next_attempt_time"),
        columns.try_count.strip_suffix("try_count"),
        columns.last_attempt_time.strip_suffix("last_attempt_time"),
        columns.last_attempt_error_message.strip_suffix("last_attempt_error_message"),
    ];
    let with = |prefix: &str| prefixes.iter().filter(|other| **other == Some(prefix)).count();
    prefixes.into_iter().flatten().find(|prefix| with(prefix) > prefixes.len() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: ColumnNames = ColumnNames {
        status: "status",
        next_attempt_time: "next_attempt_time",
        try_count: "try_count",
        last_attempt_time: "last_attempt_time",
        last_attempt_error_message: "last_attempt_error_message",
    };

    #[test]
    fn the_prefix_is_what_most_names_have() {
        assert_eq!(prefix(NAMES), Some(""));
        assert_eq!(prefix(ColumnNames { status: "order_status", ..NAMES }), Some(""));
        let mail = ColumnNames {
            status: "mail_status",
            next_attempt_time: "mail_next_attempt_time",
            try_count: "tries",
            last_attempt_time: "mail_last_attempt_time",
            last_attempt_error_message: "error",
        };
        assert_eq!(prefix(mail), Some("mail_"));
        assert_eq!(prefix(ColumnNames { next_attempt_time: "due", ..mail }), None);
    }
}
