//! The triggers by which SQLite notices an insert and a change of content. They run after the statement and write the
//! row once more, because here a trigger cannot change the values that are being written.

use diesel::connection::SimpleConnection;
use diesel::deserialize::QueryableByName;
use diesel::sql_types::Text;
use diesel::sqlite::{Sqlite, SqliteConnection};

use crate::backend::dialect::TimeSql;
use crate::backend::schema::finding;
use crate::backend::target::{Step, Target};
use crate::backend::trigger::{HOLDING, Trigger, bring_up_to_date, compare, is_free, name, of_the_queue};
use crate::error::{Finding, refused};

use diesel::prelude::*;

const NOW: &str = <Sqlite as TimeSql>::NOW;

/// The steps after the index.
pub(crate) fn steps(target: &Target) -> Vec<Step> {
    let step = |name, trigger: Option<Trigger>| {
        trigger.map(|trigger| Step {
            name,
            down: vec![drop_trigger(target, &trigger.name)],
            up: trigger.create,
            in_transaction: true,
        })
    };
    [step("rerun", change_trigger(target)), step("created", created(target))].into_iter().flatten().collect()
}

pub(crate) fn add(connection: &mut SqliteConnection, target: &Target) -> QueryResult<()> {
    if let Some((problem, mend)) = unseen(connection, target)? {
        return Err(refused(format!("{problem}: {mend}")));
    }
    bring_up_to_date(
        connection,
        &wanted(target),
        |connection| live(connection, target),
        |name| vec![drop_trigger(target, name)],
        |connection, statement| connection.batch_execute(statement),
    )
}

pub(crate) fn remove(connection: &mut SqliteConnection, target: &Target) -> QueryResult<()> {
    live(connection, target)?.iter().try_for_each(|name| connection.batch_execute(&drop_trigger(target, name)))
}

pub(crate) fn check(connection: &mut SqliteConnection, target: &Target) -> QueryResult<Vec<Finding>> {
    let unseen = unseen(connection, target)?.map(|(problem, mend)| finding(target, problem, mend));
    let live = live(connection, target)?;
    let triggers = compare(target, &wanted(target), &live, |name| vec![drop_trigger(target, name)]);
    Ok(unseen.into_iter().chain(triggers).collect())
}

/// Finds a generated column among those of `rerun_on_change`, as a problem with its remedy. It is in no update's list
/// of columns, so a trigger `OF` it never runs.
fn unseen(connection: &mut SqliteConnection, target: &Target) -> QueryResult<Option<(String, String)>> {
    #[derive(QueryableByName)]
    struct Found {
        #[diesel(sql_type = Text)]
        name: String,
    }
    let Some(rerun) = target.options.rerun_on_change else { return Ok(None) };
    let table = &target.table;
    let generated: Vec<Found> = diesel::sql_query("SELECT name FROM pragma_table_xinfo(?, ?) WHERE hidden IN (2, 3)")
        .bind::<Text, _>(&table.name)
        .bind::<Text, _>(table.schema.as_deref().unwrap_or("main"))
        .load(connection)?;
    let is_generated = |column: &&&str| generated.iter().any(|found| found.name.eq_ignore_ascii_case(column));
    Ok(rerun.columns.iter().find(is_generated).map(|column| {
        let problem =
            format!("the column {column} of the table {table} is generated, and SQLite tells nobody of its changes");
        (problem, "name the columns that it is made of in `rerun_on_change`".to_owned())
    }))
}

/// Returns the statements that drop the triggers, for changes that cannot be made while they exist.
pub(crate) fn drops(target: &Target) -> Vec<String> {
    wanted(target).iter().map(|trigger| drop_trigger(target, &trigger.name)).collect()
}

fn wanted(target: &Target) -> Vec<Trigger> {
    change_trigger(target).into_iter().chain(created(target)).collect()
}

/// The trigger is `OF` the columns, so that its own write does not fire it again.
fn change_trigger(target: &Target) -> Option<Trigger> {
    let rerun = target.options.rerun_on_change?;
    let table = &target.table;
    let names = target.columns;
    let mut made_of = vec![
        names.status,
        names.next_attempt_time,
        names.try_count,
        names.last_attempt_error_message,
        rerun.change_count,
        target.options.timestamps.updated.unwrap_or_default(),
    ];
    if let Some(periodic) = target.options.periodic {
        made_of.extend([periodic.period, periodic.cron, periodic.scheduled_time]);
    }
    made_of.extend(rerun.columns);
    made_of.extend(HOLDING);
    let name = name(target, "rerun", &made_of);
    let quoted = |column: &str| table.quoted(column);
    let columns: Vec<_> = rerun.columns.iter().map(|column| quoted(column)).collect();
    let differs = |column: &String| format!("OLD.{column} IS NOT NEW.{column} COLLATE BINARY");
    let differs: Vec<_> = columns.iter().map(differs).collect();
    let (status, next, tries) = (quoted(names.status), quoted(names.next_attempt_time), quoted(names.try_count));
    let text = quoted(names.last_attempt_error_message);
    let free = is_free::<Sqlite>(&text);
    let change_count = quoted(rerun.change_count);
    // The old row's time, because a writer may set another in the same statement: then the writer's time holds.
    let begins_anew = format!(
        "OLD.{next} IS {next} AND ({next} IS NULL OR {next} > {NOW}) \
         AND {status} IN ('NOT_ATTEMPTED', 'ERROR', 'SUCCESS', 'FAILED') \
         AND NOT ({next} IS NULL AND {status} IN ('NOT_ATTEMPTED', 'ERROR', 'SUCCESS') AND {text} IS NOT NULL) AND {free}"
    );
    let set = |column: &str, value: &str| format!("{column} = CASE WHEN {begins_anew} THEN {value} ELSE {column} END");
    let mut sets = vec![
        format!("{change_count} = {change_count} + 1"),
        set(&status, "'NOT_ATTEMPTED'"),
        set(&tries, "0"),
        set(&next, NOW),
    ];
    // A schedule that has not run yet begins with the row's current due time, which this update replaces.
    sets.extend(target.options.periodic.map(|periodic| {
        let [period, cron, scheduled] = [periodic.period, periodic.cron, periodic.scheduled_time].map(&quoted);
        let has_schedule = format!("({period} IS NOT NULL OR {cron} IS NOT NULL)");
        format!(
            "{scheduled} = CASE WHEN {begins_anew} AND {has_schedule} THEN COALESCE({scheduled}, OLD.{next}) \
             ELSE {scheduled} END"
        )
    }));
    sets.extend(target.options.timestamps.updated.map(|updated| format!("{} = {NOW}", quoted(updated))));
    let create = format!(
        "CREATE TRIGGER {} AFTER UPDATE OF {} ON {} FOR EACH ROW WHEN {} BEGIN {}; END",
        table.sibling(&name),
        columns.join(", "),
        table.quoted(&table.name),
        differs.join(" OR "),
        update_new(target, &sets),
    );
    let purpose = format!("a change of {} makes no row due", rerun.columns.join(", "));
    Some(Trigger { name, create: vec![create], purpose })
}

/// SQLite cannot add a column whose default is the current time.
fn created(target: &Target) -> Option<Trigger> {
    let created = target.options.timestamps.created?;
    let table = &target.table;
    let name = name(target, "created", &[created]);
    let column = table.quoted(created);
    let create = format!(
        "CREATE TRIGGER {} AFTER INSERT ON {} FOR EACH ROW WHEN NEW.{column} IS NULL BEGIN {}; END",
        table.sibling(&name),
        table.quoted(&table.name),
        update_new(target, &[format!("{column} = {NOW}")]),
    );
    Some(Trigger { name, create: vec![create], purpose: format!("an insert leaves no time in {created}") })
}

/// Updates the row that fired a trigger. Inside a trigger a table is named without its schema.
fn update_new(target: &Target, sets: &[String]) -> String {
    let table = &target.table;
    let is_key = |column: &String| format!("{0} IS NEW.{0}", table.quoted(column));
    let is_key: Vec<_> = target.key.iter().map(is_key).collect();
    format!("UPDATE {} SET {} WHERE {}", table.quoted(&table.name), sets.join(", "), is_key.join(" AND "))
}

fn drop_trigger(target: &Target, name: &str) -> String {
    format!("DROP TRIGGER IF EXISTS {}", target.table.sibling(name))
}

fn live(connection: &mut SqliteConnection, target: &Target) -> QueryResult<Vec<String>> {
    #[derive(QueryableByName)]
    struct Found {
        #[diesel(sql_type = Text)]
        name: String,
    }
    let table = &target.table;
    let schema = table.quoted(table.schema.as_deref().unwrap_or("main"));
    let select = format!(
        "SELECT name FROM {schema}.sqlite_master WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE ORDER BY name"
    );
    let found: Vec<Found> = diesel::sql_query(select).bind::<Text, _>(&table.name).load(connection)?;
    Ok(of_the_queue(target, found.into_iter().map(|found| found.name).collect()))
}
