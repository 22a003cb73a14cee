//! The default that gives an inserted row its time, on databases that can add a default to a column without giving it
//! to the existing rows. Elsewhere a trigger does it.

use diesel::result::QueryResult;

use super::live_table::{LiveColumn, LiveTable, find_column, until_done};
use super::target::{Step, Target, finding};
use crate::error::Finding;

/// Returns the step that adds the default.
pub(crate) fn step<T: LiveTable>(target: &Target) -> Option<Step> {
    let (created, time) = target.options.timestamps.created.zip(T::INSERT_TIME)?;
    let down = alter_default(target, created, "DROP DEFAULT");
    Some(T::step("created", vec![set_default(target, created, time)], vec![down]))
}

/// Adds the default if it is missing.
pub(crate) fn add<T: LiveTable>(connection: &mut T, target: &Target) -> QueryResult<()> {
    let Some(time) = T::INSERT_TIME else { return Ok(()) };
    until_done(
        connection,
        |connection| Ok(without_default(target, &connection.live_columns(target)?)),
        |connection, created| connection.alter(&set_default(target, created, time)),
    )
}

/// Makes the finding if the default is missing.
pub(crate) fn check<T: LiveTable>(connection: &mut T, target: &Target) -> QueryResult<Option<Finding>> {
    let Some(time) = T::INSERT_TIME else { return Ok(None) };
    let live = connection.live_columns(target)?;
    Ok(without_default(target, &live).map(|created| {
        let problem = format!("the column {created} has no default, so inserts leave it null");
        finding(target, problem, set_default(target, created, time))
    }))
}

/// Returns the column of the insert time, if the live table has it and gives it no default.
fn without_default(target: &Target, live: &[LiveColumn]) -> Option<&'static str> {
    // MariaDB returns the text `NULL` if a column has none.
    let is_none = |default: &Option<String>| default.as_ref().is_none_or(|text| text.eq_ignore_ascii_case("NULL"));
    let created = target.options.timestamps.created;
    created.filter(|created| find_column(live, created).is_some_and(|column| is_none(&column.default_value)))
}

/// Existing rows get no time: a default applies to inserts only.
fn set_default(target: &Target, created: &str, time: &str) -> String {
    alter_default(target, created, &format!("SET DEFAULT {time}"))
}

fn alter_default(target: &Target, created: &str, action: &str) -> String {
    format!("ALTER TABLE {} ALTER COLUMN {} {action}", target.table, target.table.quoted(created))
}
