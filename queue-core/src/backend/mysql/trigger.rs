//! The trigger by which MySQL and MariaDB notice a change of content.

use diesel::mysql::Mysql;
use diesel::result::Error;
use diesel::sql_types::{Nullable, Text};

use super::clients::MysqlSession;
use crate::backend::dialect::TimeSql;
use crate::backend::schema::{LiveTrigger, Rerun, Target, Trigger, Triggers, compares_nothing, with_fingerprint};
use crate::backend::statement::One;
use crate::error::refused;

use diesel::prelude::*;

const NOW: &str = <Mysql as TimeSql>::NOW;

impl<C: MysqlSession> Triggers<Mysql> for C {
    fn wanted(target: &Target) -> Vec<Trigger> {
        change_trigger(target).into_iter().collect()
    }

    fn live_triggers(&mut self, target: &Target) -> QueryResult<Vec<LiveTrigger>> {
        diesel::sql_query(
            "SELECT CAST(TRIGGER_NAME AS CHAR) AS name, \
             CASE WHEN EVENT_MANIPULATION = 'UPDATE' THEN CAST(COALESCE(ACTION_STATEMENT, '') AS CHAR) END AS at_update \
             FROM information_schema.TRIGGERS \
             WHERE EVENT_OBJECT_SCHEMA = COALESCE(?, DATABASE()) AND EVENT_OBJECT_TABLE = ?",
        )
        .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
        .bind::<Text, _>(&target.table.name)
        .load(self)
    }

    fn runs_at_every_update(definition: &str) -> bool {
        compares_nothing(definition)
    }

    fn restricted(_target: &Target, _definition: &str, _columns: &[String]) -> Result<String, &'static str> {
        Err("a trigger has no condition here; compare the new values with the old ones in its body")
    }

    fn keeper(target: &Target, column: &str, columns: &[String]) -> Option<(String, String)> {
        let table = &target.table;
        let name = with_fingerprint("keep_", &table.name, column);
        let unchanged: Vec<_> = columns.iter().map(|column| table.quoted(column)).collect();
        let unchanged: Vec<_> = unchanged.iter().map(|column| format!("NEW.{column} <=> OLD.{column}")).collect();
        let (trigger, column) = (table.sibling(&name), table.quoted(column));
        let create = format!(
            "CREATE TRIGGER {trigger} BEFORE UPDATE ON {table} FOR EACH ROW \
             SET NEW.{column} = IF({}, OLD.{column}, NEW.{column})",
            unchanged.join(" AND ")
        );
        (!unchanged.is_empty()).then_some((name, create))
    }

    fn set_at_update(&mut self, target: &Target) -> QueryResult<Vec<String>> {
        let found: Vec<One<Text, String>> = diesel::sql_query(
            "SELECT CAST(COLUMN_NAME AS CHAR) AS name FROM information_schema.COLUMNS \
             WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? AND EXTRA LIKE '%on update%' \
             ORDER BY ORDINAL_POSITION",
        )
        .bind::<Nullable<Text>, _>(target.table.schema.as_deref())
        .bind::<Text, _>(&target.table.name)
        .load(self)?;
        Ok(found.into_iter().map(|found| found.0).collect())
    }

    /// The refusals are 1142, 1227 and 1419.
    fn explained(target: &Target, error: Error) -> Error {
        let text = error.to_string();
        let mend = if text.starts_with("You do not have the SUPER privilege")
            || text.starts_with("Access denied; you need ")
        {
            "SET GLOBAL log_bin_trust_function_creators = 1, or run the migration as a user who may: the server keeps a binary \
             log, and other users may not create triggers"
                .to_owned()
        } else if text.starts_with("TRIGGER command denied to user ") {
            grant(target)
        } else {
            return error;
        };
        refused(format!("the trigger on {} that notices changes cannot be created ({text}): {mend}", target.table))
    }

    fn right_to_see(target: &Target) -> Option<String> {
        Some(grant(target))
    }
}

fn grant(target: &Target) -> String {
    format!("GRANT TRIGGER ON {} TO CURRENT_USER()", target.table)
}

/// Makes the trigger as one statement, whose semicolons the server understands; a console needs another DELIMITER.
fn change_trigger(target: &Target) -> Option<Trigger> {
    // A trigger of an earlier release has no effect if its sql_mode has EMPTY_STRING_IS_NULL.
    let rerun = Rerun::of(target, &["IS NULL OR"])?;
    // The bytes, because a collation may ignore case and blanks; and the values, because a FLOAT's text is shorter than
    // its value.
    let same = |column: &String| {
        format!("OLD.{column} <=> NEW.{column} AND CAST(OLD.{column} AS BINARY) <=> CAST(NEW.{column} AS BINARY)")
    };
    let same: Vec<_> = rerun.content.iter().map(same).collect();
    let updated = rerun.updated.as_ref().map(|updated| format!("SET NEW.{updated} = {NOW}; ")).unwrap_or_default();
    let Rerun { name, status, next, tries, change_count, schedule, .. } = &rerun;
    // A schedule that has not run yet begins with the row's current due time, which this update replaces.
    let begun = schedule.as_ref().map(|[period, cron, scheduled]| {
        format!(
            "IF NEW.{period} IS NOT NULL OR NEW.{cron} IS NOT NULL THEN \
             SET NEW.{scheduled} = COALESCE(NEW.{scheduled}, OLD.{next}); END IF; "
        )
    });
    let create = format!(
        "CREATE TRIGGER {} BEFORE UPDATE ON {} FOR EACH ROW BEGIN IF NOT ({}) THEN \
         SET NEW.{change_count} = OLD.{change_count} + 1; {updated}\
         IF NEW.{next} <=> OLD.{next} AND {} THEN \
         {}SET NEW.{status} = 'NOT_ATTEMPTED', NEW.{tries} = 0, NEW.{next} = {NOW}; \
         END IF; END IF; END",
        target.table.sibling(name),
        target.table,
        same.join(" AND "),
        rerun.is_due_again::<Mysql>("NEW.", NOW),
        begun.unwrap_or_default(),
    );
    Some(rerun.created_by(create))
}
