//! The trigger by which MySQL and MariaDB notice a change of content.

use diesel::deserialize::QueryableByName;
use diesel::mysql::{Mysql, MysqlConnection};
use diesel::result::Error;
use diesel::sql_types::{Nullable, Text};

use super::ddl::{live_columns, without_blocking};
use crate::backend::created::{no_default, without_default};
use crate::backend::schema::until_done;
use crate::backend::target::{Step, Target};
use crate::backend::trigger::{HOLDING, Trigger, bring_up_to_date, compare, is_free, name, of_the_queue};
use crate::error::{Finding, refused};

use diesel::prelude::*;

/// The steps after the index.
pub(crate) fn steps(target: &Target) -> Vec<Step> {
    let rerun = change_trigger(target).map(|trigger| Step {
        name: "rerun",
        down: vec![drop_trigger(target, &trigger.name)],
        up: trigger.create,
        in_transaction: false,
    });
    let created = target.options.timestamps.created.map(|created| Step {
        name: "created",
        up: vec![set_default(target, created)],
        down: vec![alter_default(target, created, "DROP DEFAULT")],
        in_transaction: false,
    });
    rerun.into_iter().chain(created).collect()
}

pub(crate) fn add(connection: &mut MysqlConnection, target: &Target) -> QueryResult<()> {
    until_done(
        connection,
        |connection| Ok(without_default(target, &live_columns(connection, target)?)),
        |connection, created| without_blocking(connection, &set_default(target, created)),
    )?;
    bring_up_to_date(
        connection,
        change_trigger(target).as_slice(),
        |connection| live(connection, target),
        |name| vec![drop_trigger(target, name)],
        |connection, statement| without_blocking(connection, statement).map_err(|error| explained(target, error)),
    )
}

pub(crate) fn remove(connection: &mut MysqlConnection, target: &Target) -> QueryResult<()> {
    for name in live(connection, target)? {
        without_blocking(connection, &drop_trigger(target, &name))?;
    }
    Ok(())
}

pub(crate) fn check(connection: &mut MysqlConnection, target: &Target) -> QueryResult<Vec<Finding>> {
    let columns = live_columns(connection, target)?;
    let created = without_default(target, &columns).map(|name| no_default(target, name, set_default(target, name)));
    let live = live(connection, target)?;
    let mut triggers =
        compare(target, change_trigger(target).as_slice(), &live, |name| vec![drop_trigger(target, name)]);
    for finding in triggers.iter_mut().filter(|_| live.is_empty()) {
        finding.problem += &format!(" (or it is hidden from this user, who may see it after {})", grant(target));
    }
    Ok(created.into_iter().chain(triggers).collect())
}

/// Explains the server's refusals to create a trigger (1142, 1227, 1419).
fn explained(target: &Target, error: Error) -> Error {
    let text = error.to_string();
    let mend = if text.starts_with("You do not have the SUPER privilege")
        || text.starts_with("Access denied; you need ")
    {
        "SET GLOBAL log_bin_trust_function_creators = 1, or run the migration as a user who may: the server keeps a binary \
         log, and lets nobody else create triggers"
            .to_owned()
    } else if text.starts_with("TRIGGER command denied to user ") {
        grant(target)
    } else {
        return error;
    };
    refused(format!("the trigger on {} that notices changes cannot be created ({text}): {mend}", target.table))
}

fn grant(target: &Target) -> String {
    format!("GRANT TRIGGER ON {} TO CURRENT_USER()", target.table)
}

/// Makes the trigger as one statement, whose semicolons the server understands; a console needs another DELIMITER.
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
    // A trigger of an earlier release has no effect if its sql_mode has EMPTY_STRING_IS_NULL.
    made_of.push("IS NULL OR");
    let name = name(target, "rerun", &made_of);
    let quoted = |column: &str| table.quoted(column);
    // The bytes, because a collation may ignore case and blanks; and the values, because a FLOAT's text is shorter than
    // its value.
    let same = |column: &&str| {
        let column = quoted(column);
        format!("OLD.{column} <=> NEW.{column} AND CAST(OLD.{column} AS BINARY) <=> CAST(NEW.{column} AS BINARY)")
    };
    let same: Vec<_> = rerun.columns.iter().map(same).collect();
    let (status, next, tries) = (quoted(names.status), quoted(names.next_attempt_time), quoted(names.try_count));
    let text = quoted(names.last_attempt_error_message);
    let free = is_free::<Mysql>(&format!("NEW.{text}"));
    let change_count = quoted(rerun.change_count);
    let updated = target.options.timestamps.updated.map(&quoted);
    let updated = updated.map(|updated| format!("SET NEW.{updated} = UTC_TIMESTAMP(6); ")).unwrap_or_default();
    // A schedule that has not run yet begins with the row's current due time, which this update replaces.
    let begun = target.options.periodic.map(|periodic| {
        let [period, cron, scheduled] = [periodic.period, periodic.cron, periodic.scheduled_time].map(&quoted);
        format!(
            "IF NEW.{period} IS NOT NULL OR NEW.{cron} IS NOT NULL THEN \
             SET NEW.{scheduled} = COALESCE(NEW.{scheduled}, OLD.{next}); END IF; "
        )
    });
    let begun = begun.unwrap_or_default();
    let create = format!(
        "CREATE TRIGGER {} BEFORE UPDATE ON {table} FOR EACH ROW BEGIN IF NOT ({}) THEN \
         SET NEW.{change_count} = OLD.{change_count} + 1; {updated}\
         IF NEW.{next} <=> OLD.{next} AND (NEW.{next} IS NULL OR NEW.{next} > UTC_TIMESTAMP(6)) \
         AND NEW.{status} IN ('NOT_ATTEMPTED', 'ERROR', 'SUCCESS', 'FAILED') \
         AND NOT (NEW.{next} IS NULL AND NEW.{status} IN ('NOT_ATTEMPTED', 'ERROR', 'SUCCESS') AND NEW.{text} IS NOT NULL) AND {free} THEN \
         {begun}SET NEW.{status} = 'NOT_ATTEMPTED', NEW.{tries} = 0, NEW.{next} = UTC_TIMESTAMP(6); \
         END IF; END IF; END",
        table.sibling(&name),
        same.join(" AND "),
    );
    let purpose = format!("a change of {} makes no row due", rerun.columns.join(", "));
    Some(Trigger { name, create: vec![create], purpose })
}

fn drop_trigger(target: &Target, name: &str) -> String {
    format!("DROP TRIGGER IF EXISTS {}", target.table.sibling(name))
}

/// Existing rows get no time: a default applies to inserts only.
fn set_default(target: &Target, created: &str) -> String {
    alter_default(target, created, "SET DEFAULT (UTC_TIMESTAMP(6))")
}

fn alter_default(target: &Target, created: &str, action: &str) -> String {
    format!("ALTER TABLE {} ALTER COLUMN {} {action}", target.table, target.table.quoted(created))
}

fn live(connection: &mut MysqlConnection, target: &Target) -> QueryResult<Vec<String>> {
    #[derive(QueryableByName)]
    struct Found {
        #[diesel(sql_type = Text)]
        name: String,
    }
    let found: Vec<Found> = diesel::sql_query(
        "SELECT CAST(TRIGGER_NAME AS CHAR) AS name FROM information_schema.TRIGGERS \
         WHERE EVENT_OBJECT_SCHEMA = COALESCE(?, DATABASE()) AND EVENT_OBJECT_TABLE = ?",
    )
    .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
    .bind::<Text, _>(&target.table.name)
    .load(connection)?;
    Ok(of_the_queue(target, found.into_iter().map(|found| found.name).collect()))
}
