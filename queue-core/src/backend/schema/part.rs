//! The DDL that the three databases share: in which order a queue is added to its table, and how the live table is
//! compared with what the queue needs.

use std::{iter, slice};

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::columns::{Ddl, NeededColumn, OWN, compare, missing, needed_columns, present, tell_of_unmarked};
use super::index::indexes;
use super::live_table::{LiveTable, until_done};
use super::table_name::TableName;
use super::target::{DeclaredColumn, Schema, Step, Target, TriggerMigration, finding};
use super::{archive, bystanders, differences, trigger};
use crate::error::{Finding, refused};

/// The name of the control table. It has no schema: a session finds it where it finds a new table of its own.
pub(crate) const CONTROL_TABLE: &str = "queueable_control";

/// The columns of the control table.
pub(crate) const CONTROL_COLUMNS: [&str; 6] =
    ["queue", "scope", "paused_at", "paused_until", "paused_by", "pause_reason"];

impl<D: Ddl> Schema for D {
    fn steps(target: &Target) -> Vec<Step> {
        let columns = |(name, columns): (_, &[NeededColumn])| {
            let names: Vec<_> = columns.iter().map(|column| column.name).collect();
            D::step(name, D::add_columns(target, columns), D::drop_columns(target, &names))
        };
        column_steps(&needed_columns::<D>(target))
            .map(columns)
            .chain(indexes::<D::Backend>(target).iter().flat_map(|index| D::index_steps(target, index)))
            .chain(trigger::steps::<D>(target))
            .chain(archive::step::<D>(target))
            .collect()
    }

    fn add_queue(&mut self, target: &Target) -> QueryResult<()> {
        if let Some(kind) = self.other_kind(target)? {
            let (problem, mend) = kind.problem(target);
            return Err(refused(format!("{problem}; {mend}")));
        }
        // Before the first change: what has been added would be left behind.
        if let Some(Finding { problem, mend, .. }) = self.too_long(target)? {
            return Err(refused(format!("{problem}; {mend}")));
        }
        let missing = |connection: &mut D| missing::<D>(target, &connection.live_columns(target)?);
        let left_to_do = |connection: &mut D| {
            Ok(missing(connection)?.map_or_else(Vec::new, |columns| D::add_columns(target, &columns)))
        };
        until_done(self, left_to_do, D::alter)?;
        self.add_indexes(target)?;
        trigger::add(self, target)?;
        archive::add(self, target)
    }

    fn remove_queue(&mut self, target: &Target) -> QueryResult<()> {
        let present = present::<D>(target, &self.live_columns(target)?)?;
        // A column that a trigger refers to cannot be dropped.
        trigger::remove(self, target)?;
        self.drop_indexes(target)?;
        if present.is_empty() {
            return Ok(());
        }
        D::drop_columns(target, &present).iter().try_for_each(|drop| self.alter(drop))
    }

    fn copied_columns(&mut self, table: &TableName) -> QueryResult<Vec<String>> {
        archive::copied_columns(self, table)
    }

    fn column_types(&mut self, target: &Target) -> QueryResult<Vec<(String, String)>> {
        LiveTable::column_types(self, &target.table)
    }

    fn check(&mut self, target: &Target) -> QueryResult<Vec<Finding>> {
        let mut findings = check_queue(self, target)?;
        findings.extend(self.check_own(target)?);
        findings.extend(archive::check(self, target)?);
        Ok(findings)
    }

    fn altered_columns(&mut self, target: &Target) -> QueryResult<Option<Finding>> {
        let (live, needed) = (self.live_columns(target)?, needed_columns::<D>(target));
        match compare::<D>(target, &needed, &live).into_iter().next() {
            None => differences::unknown_columns(self, target, &needed, &live),
            altered => Ok(altered),
        }
    }

    fn differences(&mut self, target: &Target, declared: &[DeclaredColumn]) -> QueryResult<Vec<Finding>> {
        differences::differences(self, target, declared)
    }

    fn trigger_migration(&mut self, target: &Target) -> QueryResult<TriggerMigration> {
        bystanders::trigger_migration(self, target)
    }

    fn control_step() -> Step {
        D::step("control", vec![D::CREATE_CONTROL.to_owned()], vec![drop_control::<D>()])
    }

    fn add_control(&mut self) -> QueryResult<()> {
        let left_to_do = |connection: &mut D| match control_lacks(connection)? {
            None => Ok(vec![D::CREATE_CONTROL.to_owned()]),
            Some(_) => Ok(Vec::new()),
        };
        until_done(self, left_to_do, D::run_ddl)?;
        match control_lacks(self)?.unwrap_or_default().as_slice() {
            [] => Ok(()),
            lacking => Err(refused(format!(
                "there is a table {CONTROL_TABLE} that is not the queue's: it has no column {}; rename it",
                lacking.join(", ")
            ))),
        }
    }

    fn remove_control(&mut self) -> QueryResult<()> {
        // Otherwise it is not the queue's.
        if self.has_control()? { self.run_ddl(&drop_control::<D>()) } else { Ok(()) }
    }

    fn has_control(&mut self) -> QueryResult<bool> {
        Ok(control_lacks(self)?.is_some_and(|lacking| lacking.is_empty()))
    }
}

/// Returns the names of the columns that the control table lacks; `None` if there is no such table.
fn control_lacks<D: Ddl>(connection: &mut D) -> QueryResult<Option<Vec<&'static str>>> {
    let live = connection.columns(&control_table::<D>())?;
    let is_there = |name: &&str| live.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    Ok((!live.is_empty()).then(|| CONTROL_COLUMNS.into_iter().filter(|name| !is_there(name)).collect()))
}

fn control_table<D: Ddl>() -> TableName {
    TableName::of(&Named(CONTROL_TABLE), &D::Backend::default()).expect("an identifier can be written")
}

fn drop_control<D: Ddl>() -> String {
    format!("DROP TABLE IF EXISTS {}", control_table::<D>())
}

struct Named(&'static str);

impl<DB: Backend> QueryFragment<DB> for Named {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_identifier(self.0)
    }
}

/// Returns the steps of a migration that add the columns: one for those that every queue has, and one for each that an
/// option asks for. So an option that is added later makes one more step.
fn column_steps(needed: &[NeededColumn]) -> impl Iterator<Item = (&'static str, &[NeededColumn])> {
    let (own, asked_for) = needed.split_at(OWN);
    iter::once(("columns", own)).chain(asked_for.iter().map(|column| (column.name, slice::from_ref(column))))
}

/// Returns the findings about the columns; if there are none, about the indexes; if there are none either, about the
/// triggers.
fn check_queue<D: Ddl>(connection: &mut D, target: &Target) -> QueryResult<Vec<Finding>> {
    if let Some(kind) = connection.other_kind(target)? {
        let (problem, mend) = kind.problem(target);
        return Ok(vec![finding(target, problem, mend.to_owned())]);
    }
    let live = connection.live_columns(target)?;
    let needed = needed_columns::<D>(target);
    let findings = compare::<D>(target, &needed, &live);
    if !findings.is_empty() {
        return Ok(findings);
    }
    tell_of_unmarked(target, &needed, &live);
    let mut findings = connection.check_indexes(target)?;
    findings.extend(differences::unknown_columns(connection, target, &needed, &live)?);
    if findings.is_empty() {
        findings = trigger::check(connection, target)?;
    }
    if findings.is_empty() {
        bystanders::tell(connection, target)?;
    }
    Ok(findings)
}

/// Writes `ALTER TABLE .. ADD COLUMN .., ADD COLUMN ..`, for databases that add several columns by one statement.
/// `comment` follows each definition.
#[allow(dead_code, reason = "SQLite adds one column by one statement")]
pub(crate) fn add_together(target: &Target, columns: &[NeededColumn], comment: &str) -> String {
    let name = |column: &NeededColumn| target.table.quoted(column.name);
    let add = |column: &NeededColumn| format!("ADD COLUMN {} {}{comment}", name(column), column.definition);
    format!("ALTER TABLE {} {}", target.table, columns.iter().map(add).collect::<Vec<_>>().join(", "))
}

/// Writes `ALTER TABLE .. DROP COLUMN .., DROP COLUMN ..`, for databases that drop several columns by one statement.
/// `drop` is the word before each name.
#[allow(dead_code, reason = "SQLite drops one column by one statement")]
pub(crate) fn drop_together(target: &Target, drop: &str, names: &[&str]) -> String {
    let drops: Vec<_> = names.iter().map(|name| format!("{drop} {}", target.table.quoted(name))).collect();
    format!("ALTER TABLE {} {}", target.table, drops.join(", "))
}
