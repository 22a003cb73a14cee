//! The comparison of the live table with the application's `table!`, and with all that the queue needs at once.
//!
//! A start asks in steps: what its first findings are about may be the reason for others. A check in the user's CI names
//! everything, so that one look is enough.

use diesel::result::QueryResult;

use super::columns::{Ddl, NeededColumn, OTHER_NAMES, foreign, needed_columns};
use super::live_table::{LiveColumn, find_column};
use super::target::{DeclaredColumn, Target, finding};
use super::trigger;
use crate::error::Finding;

/// Compares the live table with `table!` and with all that the queue needs. What is no table at all is left to the check
/// of a start.
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
    let needed = needed_columns::<D>(target);
    let mut findings = Vec::new();
    let has_queue = foreign::<D>(target, &needed, &live).is_none();
    if has_queue {
        findings.extend(needed.iter().filter_map(|column| unmarked::<D>(target, column, &live, declared)));
    }
    findings.extend(needed.iter().filter_map(|column| other_nullability(target, column.name, &live, declared)));
    let lacks = |column: &&DeclaredColumn| {
        let is_same = |live: &LiveColumn| match D::NAMES_HAVE_CASE {
            true => live.name == column.name,
            false => live.name.eq_ignore_ascii_case(&column.name),
        };
        // The check of a start has named the queue's own.
        !live.iter().any(is_same) && needed.iter().all(|needed| needed.name != column.name)
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
