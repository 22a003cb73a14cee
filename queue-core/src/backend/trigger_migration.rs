//! The SQL that restricts the application's triggers to updates of the application's columns.

use std::sync::LazyLock;

use diesel::result::QueryResult;
use regex::Regex;

use super::bystanders::{any_column, head_of, is_kept, regex};
use super::schema::{Ddl, needed_columns};
use super::target::{Target, TriggerMigration};
use super::trigger::PREFIX;

impl TriggerMigration {
    fn replace(&mut self, drop: &str, before: &str, after: &str) {
        self.up += &[line(drop), line(after)].concat();
        self.down += &[line(drop), line(before)].concat();
    }

    fn add(&mut self, drop: &str, create: &str) {
        self.up += &line(create);
        self.down += &line(drop);
    }
}

fn line(statement: &str) -> String {
    format!("{};\n", statement.trim_end_matches(|end: char| end == ';' || end.is_whitespace()))
}

/// Makes the SQL for the triggers and columns of which a poller tells at its start.
pub(crate) fn trigger_migration<D: Ddl>(connection: &mut D, target: &Target) -> QueryResult<TriggerMigration> {
    let needed = needed_columns::<D>(target);
    let mut columns = Vec::new();
    for column in connection.live_columns(target)? {
        let is_needed = needed.iter().any(|needed| needed.name.eq_ignore_ascii_case(&column.name));
        if !is_needed && !column.marked && !column.name.starts_with("queueable_") {
            columns.push(column.name);
        }
    }
    let mut live = connection.live_triggers(target)?;
    live.retain(|trigger| !trigger.name.starts_with(PREFIX));
    live.sort_by(|one, other| one.name.cmp(&other.name));
    let updates: Vec<_> = live.into_iter().filter_map(|trigger| Some((trigger.name, trigger.at_update?))).collect();
    let mut migration = TriggerMigration::default();
    for (name, definition) in updates.iter().filter(|(_, definition)| D::runs_at_every_update(definition)) {
        match D::restricted(target, definition, &columns) {
            Ok(restricted) => migration.replace(&D::drop_only(target, name), definition, &restricted),
            Err(why) => migration.skipped.push((name.clone(), why)),
        }
    }
    let set = connection.set_at_update(target)?;
    columns.retain(|column| !set.contains(column));
    for column in set.iter().filter(|column| !is_kept(column, &updates)) {
        if let Some((name, create)) = D::keeper(target, column, &columns) {
            migration.add(&D::drop_only(target, &name), &create);
        }
    }
    Ok(migration)
}

/// Gives a trigger that runs at every update a list of columns, in the SQL of PostgreSQL and SQLite.
#[allow(dead_code, reason = "MySQL knows none")]
pub(crate) fn with_columns(target: &Target, definition: &str, columns: &[String]) -> Result<String, &'static str> {
    static REFERENCING: LazyLock<Regex> = LazyLock::new(|| regex(r"\breferencing\b"));
    let head = head_of(definition);
    if REFERENCING.is_match(&head) {
        return Err("a trigger with transition tables takes no list of columns");
    }
    let update = any_column(&head).ok_or("its definition cannot be read")?;
    let (before, after) = definition.split_at(update + "update".len());
    Ok(format!("{before} OF {}{after}", target.table.quoted_all(columns)))
}
