//! The triggers by which PostgreSQL notices a change of content, and notifies of rows that become due.

use diesel::deserialize::QueryableByName;
use diesel::pg::{Pg, PgConnection};
use diesel::sql_types::Text;

use super::ddl::{live_columns, without_blocking};
use super::notify::{PATH, notify};
use crate::backend::created::{no_default, without_default};
use crate::backend::schema::until_done;
use crate::backend::target::{Step, Target};
use crate::backend::trigger::{HOLDING, Trigger, bring_up_to_date, compare, is_free, name, of_the_queue};
use crate::error::Finding;

use diesel::prelude::*;

/// The steps after the index.
pub(crate) fn steps(target: &Target) -> Vec<Step> {
    let rerun = change_trigger(target).map(|trigger| Step {
        name: "rerun",
        down: drop_trigger(target, &trigger.name),
        up: trigger.create,
        in_transaction: true,
    });
    let created = target.options.timestamps.created.map(|created| Step {
        name: "created",
        up: vec![set_default(target, created)],
        down: vec![alter_default(target, created, "DROP DEFAULT")],
        in_transaction: true,
    });
    let notify = notify(target);
    let notify = (!notify.is_empty()).then(|| Step {
        name: "notify",
        down: notify.iter().flat_map(|trigger| drop_trigger(target, &trigger.name)).collect(),
        up: notify.into_iter().flat_map(|trigger| trigger.create).collect(),
        in_transaction: true,
    });
    rerun.into_iter().chain(created).chain(notify).collect()
}

pub(crate) fn add(connection: &mut PgConnection, target: &Target) -> QueryResult<()> {
    until_done(
        connection,
        |connection| Ok(without_default(target, &live_columns(connection, target)?)),
        |connection, created| without_blocking(connection, &set_default(target, created)),
    )?;
    bring_up_to_date(
        connection,
        &wanted(target),
        |connection| live(connection, target),
        // In one transaction each.
        |name| vec![drop_trigger(target, name).join("; ")],
        without_blocking,
    )
}

pub(crate) fn remove(connection: &mut PgConnection, target: &Target) -> QueryResult<()> {
    for name in live(connection, target)? {
        without_blocking(connection, &drop_trigger(target, &name).join("; "))?;
    }
    Ok(())
}

pub(crate) fn check(connection: &mut PgConnection, target: &Target) -> QueryResult<Vec<Finding>> {
    let columns = live_columns(connection, target)?;
    let created = without_default(target, &columns).map(|name| no_default(target, name, set_default(target, name)));
    let live = live(connection, target)?;
    let triggers = compare(target, &wanted(target), &live, |name| drop_trigger(target, name));
    Ok(created.into_iter().chain(triggers).collect())
}

fn wanted(target: &Target) -> Vec<Trigger> {
    change_trigger(target).into_iter().chain(notify(target)).collect()
}

/// Makes the trigger, and the function that it runs. It is a BEFORE trigger, so that the row is written once.
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
    // The trigger of an earlier release compares by an expression that a dump does not reproduce.
    made_of.extend(["record_image_ne", PATH]);
    let name = name(target, "rerun", &made_of);
    let quoted = |column: &str| table.quoted(column);
    let row = |of: &str| {
        let columns: Vec<_> = rerun.columns.iter().map(|column| format!("{of}.{}", quoted(column))).collect();
        format!("ROW({})", columns.join(", "))
    };
    let (status, next, tries) = (quoted(names.status), quoted(names.next_attempt_time), quoted(names.try_count));
    let text = quoted(names.last_attempt_error_message);
    let free = is_free::<Pg>(&format!("NEW.{text}"));
    let change_count = quoted(rerun.change_count);
    let updated = target.options.timestamps.updated.map(&quoted);
    let updated = updated.map(|updated| format!("NEW.{updated} := clock_timestamp(); ")).unwrap_or_default();
    // A schedule that has not run yet begins with the row's current due time, which this update replaces.
    let begun = target.options.periodic.map(|periodic| {
        let [period, cron, scheduled] = [periodic.period, periodic.cron, periodic.scheduled_time].map(&quoted);
        format!(
            "IF NEW.{period} IS NOT NULL OR NEW.{cron} IS NOT NULL THEN \
             NEW.{scheduled} := COALESCE(NEW.{scheduled}, OLD.{next}); END IF; "
        )
    });
    let begun = begun.unwrap_or_default();
    let function = table.sibling(&name);
    let create_function = format!(
        "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql {PATH} AS $queueable$ BEGIN \
         NEW.{change_count} := OLD.{change_count} + 1; {updated}\
         IF NEW.{next} IS NOT DISTINCT FROM OLD.{next} AND (NEW.{next} IS NULL OR NEW.{next} > clock_timestamp()) \
         AND NEW.{status} IN ('NOT_ATTEMPTED', 'ERROR', 'SUCCESS', 'FAILED') \
         AND NOT (NEW.{next} IS NULL AND NEW.{status} IN ('NOT_ATTEMPTED', 'ERROR', 'SUCCESS') AND NEW.{text} IS NOT NULL) AND {free} THEN \
         {begun}NEW.{status} := 'NOT_ATTEMPTED'; NEW.{tries} := 0; NEW.{next} := clock_timestamp(); \
         END IF; RETURN NEW; END $queueable$"
    );
    // The comparison of images: every type has one, even without an equality, and no collation makes two texts equal.
    // It uses the function's name, because the server prints `ROW(..)::record *<> ..` without the casts. Its dumps do
    // too, and then cannot be restored.
    let create_trigger = format!(
        "CREATE TRIGGER {} BEFORE UPDATE ON {table} FOR EACH ROW WHEN (pg_catalog.record_image_ne({}, {})) \
         EXECUTE FUNCTION {function}()",
        table.quoted(&name),
        row("OLD"),
        row("NEW"),
    );
    // In one transaction. The first statement is for a trigger that somebody has disabled.
    let drop_trigger = format!("DROP TRIGGER IF EXISTS {} ON {table}", table.quoted(&name));
    let create = [create_function, drop_trigger, create_trigger].join("; ");
    let purpose = format!("a change of {} makes no row due", rerun.columns.join(", "));
    Some(Trigger { name, create: vec![create], purpose })
}

fn drop_trigger(target: &Target, name: &str) -> Vec<String> {
    let table = &target.table;
    vec![
        format!("DROP TRIGGER IF EXISTS {} ON {table}", table.quoted(name)),
        format!("DROP FUNCTION IF EXISTS {}()", table.sibling(name)),
    ]
}

/// Existing rows get no time: a default applies to inserts only.
fn set_default(target: &Target, created: &str) -> String {
    alter_default(target, created, "SET DEFAULT clock_timestamp()")
}

fn alter_default(target: &Target, created: &str, action: &str) -> String {
    format!("ALTER TABLE {} ALTER COLUMN {} {action}", target.table, target.table.quoted(created))
}

fn live(connection: &mut PgConnection, target: &Target) -> QueryResult<Vec<String>> {
    #[derive(QueryableByName)]
    struct Found {
        #[diesel(sql_type = Text)]
        name: String,
    }
    let found: Vec<Found> = diesel::sql_query(
        "SELECT tgname::text AS name FROM pg_trigger WHERE tgrelid = to_regclass($1) AND NOT tgisinternal \
         AND tgenabled IN ('O', 'A')",
    )
    .bind::<Text, _>(target.table.to_string())
    .load(connection)?;
    Ok(of_the_queue(target, found.into_iter().map(|found| found.name).collect()))
}
