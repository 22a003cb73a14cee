//! The triggers by which SQLite notices an insert and a change of content. They run after the statement and write the
//! row once more, because here a trigger cannot change the values that are being written.

use diesel::sql_types::Text;
use diesel::sqlite::{Sqlite, SqliteConnection};

use super::schema::database_of;
use crate::backend::dialect::TimeSql;
use crate::backend::schema::{
    LiveTable, LiveTrigger, Rerun, Target, Trigger, Triggers, find_column, has_no_columns, trigger_name, with_columns,
};

use diesel::prelude::*;

const NOW: &str = <Sqlite as TimeSql>::NOW;

impl Triggers for SqliteConnection {
    fn wanted(target: &Target) -> Vec<Trigger> {
        change_trigger(target).into_iter().chain(created(target)).collect()
    }

    fn live_triggers(&mut self, target: &Target) -> QueryResult<Vec<LiveTrigger>> {
        let table = &target.table;
        let schema = table.quoted(database_of(table));
        let select = format!(
            "SELECT name, sql AS at_update FROM {schema}.sqlite_master WHERE type = 'trigger' \
             AND tbl_name = ? COLLATE NOCASE ORDER BY name"
        );
        diesel::sql_query(select).bind::<Text, _>(&table.name).load(self)
    }

    fn runs_at_every_update(definition: &str) -> bool {
        has_no_columns(definition)
    }

    fn restricted(target: &Target, definition: &str, columns: &[String]) -> Result<String, &'static str> {
        match &target.table.schema {
            // SQLite keeps the definition without the database's name, so it would create the trigger in `main`.
            Some(schema) if !schema.eq_ignore_ascii_case("main") => Err("it is in an attached database"),
            _ => with_columns(target, definition, columns),
        }
    }

    /// Finds a generated column among those of `rerun_on_change`. It is in no update's list of columns, so a trigger
    /// `OF` it never runs.
    fn unseen(&mut self, target: &Target) -> QueryResult<Option<(String, String)>> {
        let Some(rerun) = target.options.rerun_on_change else { return Ok(None) };
        let table = &target.table;
        let live = self.columns(table)?;
        let is_generated = |column: &&&str| find_column(&live, column).is_some_and(|found| found.computed);
        Ok(rerun.columns.iter().find(is_generated).map(|column| {
            let problem = format!(
                "the column {column} of the table {table} is generated, and SQLite runs no trigger when it changes"
            );
            (problem, "name the columns that it is made of in `rerun_on_change`".to_owned())
        }))
    }
}

/// The trigger is `OF` the columns, so that its own write does not fire it again.
fn change_trigger(target: &Target) -> Option<Trigger> {
    let table = &target.table;
    let rerun = Rerun::of(target, &[])?;
    let differs = |column: &String| format!("OLD.{column} IS NOT NEW.{column} COLLATE BINARY");
    let differs: Vec<_> = rerun.content.iter().map(differs).collect();
    let Rerun { status, next, tries, change_count, .. } = &rerun;
    // The old row's time, because a writer may set another in the same statement: then the writer's time holds.
    let begins_anew = format!("OLD.{next} IS {next} AND {}", rerun.is_due_again::<Sqlite>("", NOW));
    let set = |column: &str, value: &str| format!("{column} = CASE WHEN {begins_anew} THEN {value} ELSE {column} END");
    let mut sets = vec![
        format!("{change_count} = {change_count} + 1"),
        set(status, "'NOT_ATTEMPTED'"),
        set(tries, "0"),
        set(next, NOW),
    ];
    // A schedule that has not run yet begins with the row's current due time, which this update replaces.
    sets.extend(rerun.schedule.as_ref().map(|[period, cron, scheduled]| {
        let has_schedule = format!("({period} IS NOT NULL OR {cron} IS NOT NULL)");
        format!(
            "{scheduled} = CASE WHEN {begins_anew} AND {has_schedule} THEN COALESCE({scheduled}, OLD.{next}) \
             ELSE {scheduled} END"
        )
    }));
    sets.extend(rerun.updated.as_ref().map(|updated| format!("{updated} = {NOW}")));
    let create = format!(
        "CREATE TRIGGER {} AFTER UPDATE OF {} ON {} FOR EACH ROW WHEN {} BEGIN {}; END",
        table.sibling(&rerun.name),
        rerun.content.join(", "),
        table.quoted(&table.name),
        differs.join(" OR "),
        update_new(target, &sets),
    );
    Some(rerun.created_by(create))
}

/// SQLite cannot add a column whose default is the current time.
fn created(target: &Target) -> Option<Trigger> {
    let created = target.options.timestamps.created?;
    let table = &target.table;
    let name = trigger_name(target, "created", &[created]);
    let column = table.quoted(created);
    let create = format!(
        "CREATE TRIGGER {} AFTER INSERT ON {} FOR EACH ROW WHEN NEW.{column} IS NULL BEGIN {}; END",
        table.sibling(&name),
        table.quoted(&table.name),
        update_new(target, &[format!("{column} = {NOW}")]),
    );
    Some(Trigger { step: "created", name, create, purpose: format!("an insert leaves {created} null") })
}

/// Updates the row that fired a trigger. Inside a trigger a table is named without its schema.
fn update_new(target: &Target, sets: &[String]) -> String {
    let table = &target.table;
    let is_key = |column: &String| format!("{0} IS NEW.{0}", table.quoted(column));
    let is_key: Vec<_> = target.key.iter().map(is_key).collect();
    format!("UPDATE {} SET {} WHERE {}", table.quoted(&table.name), sets.join(", "), is_key.join(" AND "))
}
