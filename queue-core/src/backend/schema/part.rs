//! The DDL that the three databases share: in which order a queue is added to its table, and how the live table is
//! compared with what the queue needs.

use std::{iter, slice};

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::columns::{
    Ddl, NeededColumn, OWN, compare, missing, needed_columns, present, suited_columns, tell_of_unmarked,
};
use super::declared::DeclaredColumn;
use super::index::indexes;
use super::live_table::{LiveTable, until_done};
use super::table_name::TableName;
use super::target::{OwnTable, Schema, Step, Target, TriggerMigration, finding};
use super::{archive, bystanders, differences, trigger};
use crate::error::{Finding, refused};

/// Writes the statement that creates a table of the library's own, unless it exists.
fn create<D: Ddl>(table: OwnTable) -> String {
    let (own, types) = (own_table::<D>(table), D::TYPES);
    let (name, text, word) = (D::NAME_TYPE, types.message.0, types.word.0);
    let (time, count, integer) = (types.time.0, types.count.0, "INTEGER");
    let (types, key): (&[&str], &[&str]) = match table {
        OwnTable::Control => return D::CREATE_CONTROL.to_owned(),
        OwnTable::Minutes => (&[name, time, count, word, integer], &["queue", "period_start", "part", "stage"]),
        OwnTable::Pollers => (&[count, text, count, text, text, word, integer, text, text, time, time], &["id"]),
        OwnTable::Audit => (&[time, count, name, text, name, text, text, count], &["changed_at", "id"]),
    };
    let checks = match table {
        // The largest number is there for SQLite, where a text may stand in place of a number, and is larger than each.
        OwnTable::Audit => {
            let [by, reason, rows] = ["changed_by", "reason", "row_count"].map(|column| own.quoted(column));
            let most = i64::MAX;
            [format!("TRIM({by}) <> ''"), format!("TRIM({reason}) <> ''"), format!("{rows} BETWEEN 0 AND {most}")]
                .map(|check| format!(",\n  CHECK ({check})"))
                .concat()
        }
        _ => String::new(),
    };
    // The other columns are those of minutes that count.
    let types = types.iter().map(|sql_type| format!("{sql_type} NOT NULL"));
    let types = types.chain(iter::repeat(format!("{count} NOT NULL DEFAULT 0")));
    let columns = table.columns().into_iter().zip(types);
    let columns = columns.map(|(column, sql_type)| format!("  {} {sql_type},\n", own.quoted(&column)));
    format!(
        "CREATE TABLE IF NOT EXISTS {own} (\n{}  PRIMARY KEY ({}){checks}\n){}",
        columns.collect::<String>(),
        own.quoted_all(key),
        D::END_OF_TABLE
    )
}

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
        let missing = |connection: &mut D| {
            missing::<D>(target, suited_columns(connection, target), &connection.live_columns(target)?)
        };
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

    fn index_findings(&mut self, target: &Target) -> QueryResult<Vec<Finding>> {
        self.check_indexes(target)
    }

    fn index_names(target: &Target) -> Vec<String> {
        indexes::<D::Backend>(target).into_iter().map(|index| index.name).collect()
    }

    fn altered_columns(&mut self, target: &Target) -> QueryResult<Option<Finding>> {
        let (live, needed) = (self.live_columns(target)?, suited_columns(self, target));
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

    fn own_step(table: OwnTable) -> Step {
        let name = table.name().trim_start_matches("queueable_");
        D::step(name, vec![create::<D>(table)], vec![drop_own::<D>(table)])
    }

    fn add_own(&mut self, table: OwnTable) -> QueryResult<()> {
        let left_to_do = |connection: &mut D| match lacking(connection, table)? {
            None => Ok(vec![create::<D>(table)]),
            Some(_) => Ok(Vec::new()),
        };
        until_done(self, left_to_do, D::run_ddl)?;
        match lacking(self, table)?.unwrap_or_default().as_slice() {
            [] => Ok(()),
            lacking => Err(refused(format!(
                "there is a table {} that is not the queue's: it has no column {}; rename it",
                table.name(),
                lacking.join(", ")
            ))),
        }
    }

    fn remove_own(&mut self, table: OwnTable) -> QueryResult<()> {
        // Otherwise it is not the queue's.
        if self.has_own(table)? { self.run_ddl(&drop_own::<D>(table)) } else { Ok(()) }
    }

    fn has_own(&mut self, table: OwnTable) -> QueryResult<bool> {
        Ok(lacking(self, table)?.is_some_and(|lacking| lacking.is_empty()))
    }

    fn may_read_own(&mut self, table: OwnTable) -> QueryResult<bool> {
        Ok(self.has_own(table)? && self.may_read(&own_table::<D>(table))?)
    }

    fn own_lacks(&mut self, table: OwnTable) -> QueryResult<Option<Vec<String>>> {
        lacking(self, table)
    }
}

/// Returns the names of the columns that a table of the library's own lacks; `None` if there is no such table.
fn lacking<D: Ddl>(connection: &mut D, table: OwnTable) -> QueryResult<Option<Vec<String>>> {
    let live = connection.columns(&own_table::<D>(table))?;
    let is_there = |name: &String| live.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    Ok((!live.is_empty()).then(|| table.columns().into_iter().filter(|name| !is_there(name)).collect()))
}

fn own_table<D: Ddl>(table: OwnTable) -> TableName {
    TableName::of(&Named(table.name()), &D::Backend::default()).expect("an identifier can be written")
}

fn drop_own<D: Ddl>(table: OwnTable) -> String {
    format!("DROP TABLE IF EXISTS {}", own_table::<D>(table))
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
    let needed = suited_columns(connection, target);
    let findings = compare::<D>(target, &needed, &live);
    if !findings.is_empty() {
        return Ok(findings);
    }
    tell_of_unmarked(target, &needed, &live);
    if !connection.key_is_unique(target)? {
        tracing::warn!(
            entity = target.entity,
            "no primary key and no unique index of {} has only columns of the key ({}): if two rows have one key, neither can be \
             settled; name the right columns with #[diesel(primary_key(..))], or add a unique index",
            target.table,
            target.key.join(", ")
        );
    }
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
