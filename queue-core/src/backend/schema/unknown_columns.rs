//! The queue's columns that this build of an entity does not know: another build, which has one more key, has added them.
//!
//! A process that does not know a key processes rows as if there were none: it ends a row for good that a stage or a
//! schedule would continue. While old and new processes run side by side, nothing in a row tells the old ones. The
//! columns do: a migration marks those that it adds.

use diesel::result::QueryResult;

use super::columns::{Ddl, NeededColumn};
use super::live_table::LiveColumn;
use super::target::{Target, finding};
use super::trigger;
use crate::error::Finding;
use crate::row::ColumnNames;

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

/// Finds the marked columns of this queue that the entity does not ask for. Only columns with their default names are
/// recognized: a table may have several queues, each with its own prefix.
pub(crate) fn check<D: Ddl>(
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
         poller that does not know {keys} would end rows for good that have to go on",
        target.table,
        names.join(", ")
    );
    // The triggers that write a column go first.
    let mut drops = match names.iter().any(|name| name.ends_with("change_count")) {
        true => trigger::stale_drops(connection, target)?,
        false => Vec::new(),
    };
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
