//! The triggers by which PostgreSQL notices a change of content, and notifies of rows that become due.

use diesel::pg::Pg;
use diesel::sql_types::Text;

use super::notify::{PATH, create, notify};
use super::pg_session::PgSession;
use crate::backend::bystanders::has_no_columns;
use crate::backend::target::Target;
use crate::backend::trigger::{LiveTrigger, Rerun, Trigger, Triggers};
use crate::backend::trigger_migration::with_columns;

use diesel::prelude::*;

impl<C: PgSession> Triggers<Pg> for C {
    fn wanted(target: &Target) -> Vec<Trigger> {
        change_trigger(target).into_iter().chain(notify(target)).collect()
    }

    fn drop_only(target: &Target, name: &str) -> String {
        format!("DROP TRIGGER IF EXISTS {} ON {}", target.table.quoted(name), target.table)
    }

    fn drop_trigger(target: &Target, name: &str) -> Vec<String> {
        vec![Self::drop_only(target, name), format!("DROP FUNCTION IF EXISTS {}()", target.table.sibling(name))]
    }

    fn live_triggers(&mut self, target: &Target) -> QueryResult<Vec<LiveTrigger>> {
        diesel::sql_query(
            "SELECT tgname::text AS name, CASE WHEN tgtype & 16 <> 0 THEN pg_get_triggerdef(oid) || \
             CASE tgenabled WHEN 'A' THEN format('; ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', tgrelid::regclass, tgname) \
             ELSE '' END END AS at_update \
             FROM pg_trigger WHERE tgrelid = to_regclass($1) AND NOT tgisinternal AND tgenabled IN ('O', 'A')",
        )
        .bind::<Text, _>(target.table.to_string())
        .load(self)
    }

    fn runs_at_every_update(definition: &str) -> bool {
        has_no_columns(definition)
    }

    fn restricted(target: &Target, definition: &str, columns: &[String]) -> Result<String, &'static str> {
        with_columns(target, definition, columns)
    }
}

/// Makes the trigger, and the function that it runs. It is a BEFORE trigger, so that the row is written once.
fn change_trigger(target: &Target) -> Option<Trigger> {
    // The trigger of an earlier release compares by an expression that a dump does not reproduce.
    let rerun = Rerun::of(target, &["record_image_ne", PATH])?;
    let row = |of: &str| {
        let columns: Vec<_> = rerun.content.iter().map(|column| format!("{of}.{column}")).collect();
        format!("ROW({})", columns.join(", "))
    };
    let updated = rerun.updated.as_ref().map(|updated| format!("NEW.{updated} := clock_timestamp(); "));
    let updated = updated.unwrap_or_default();
    let Rerun { name, status, next, tries, change_count, schedule, .. } = &rerun;
    // A schedule that has not run yet begins with the row's current due time, which this update replaces.
    let begun = schedule.as_ref().map(|[period, cron, scheduled]| {
        format!(
            "IF NEW.{period} IS NOT NULL OR NEW.{cron} IS NOT NULL THEN \
             NEW.{scheduled} := COALESCE(NEW.{scheduled}, OLD.{next}); END IF; "
        )
    });
    let body = format!(
        "NEW.{change_count} := OLD.{change_count} + 1; {updated}\
         IF NEW.{next} IS NOT DISTINCT FROM OLD.{next} AND {} THEN \
         {}NEW.{status} := 'NOT_ATTEMPTED'; NEW.{tries} := 0; NEW.{next} := clock_timestamp(); \
         END IF; RETURN NEW;",
        rerun.is_due_again::<Pg>("NEW.", "clock_timestamp()"),
        begun.unwrap_or_default(),
    );
    // The comparison of images: every type has one, even without an equality, and no collation makes two texts equal.
    // It uses the function's name, because the server prints `ROW(..)::record *<> ..` without the casts. Its dumps do
    // too, and then cannot be restored.
    let differs = format!("pg_catalog.record_image_ne({}, {})", row("OLD"), row("NEW"));
    let create = create(target, name, &body, "BEFORE UPDATE", &differs);
    Some(rerun.created_by(create))
}
