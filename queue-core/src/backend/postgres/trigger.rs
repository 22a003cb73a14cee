//! The triggers by which PostgreSQL notices a change of content, and tells the pollers of every process that a row has become
//! due.

use diesel::pg::Pg;
use diesel::sql_types::Text;

use super::clients::PgSession;
use crate::backend::schema::{
    HOLDING, LiveTrigger, Rerun, Target, Trigger, Triggers, has_no_columns, is_free, trigger_name, with_columns,
};
use crate::row::HORIZON;

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

/// The search path of a function, so that no other user's function or operator replaces one of the database's own,
/// whoever writes the row.
pub(super) const PATH: &str = "SET search_path = pg_catalog, pg_temp";

/// Quotes an identifier.
pub(crate) fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// Returns the triggers, one for inserts and one for updates, and the function that each runs. They are AFTER triggers,
/// so that they see the row as the others have left it. PostgreSQL itself checks the condition, so that an update that
/// does not matter calls no function.
///
/// A trigger notifies of every enqueue, whoever makes it: of a row that is due now, or within the longest poll
/// interval. It does not notify of most writes of an attempt: success and failure leave a later time or none, together
/// with the time of the attempt, and rows under leases and in groups carry their reservations. It does notify of rows
/// that an attempt makes due at once, and of those that it postpones for a moment without having tried them: another
/// poller can process them.
pub(crate) fn notify(target: &Target) -> Vec<Trigger> {
    if !target.options.notifies {
        return Vec::new();
    }
    let table = &target.table;
    let names = target.columns;
    let column = |of: &str, column: &str| format!("{of}.{}", table.quoted(column));
    let new = |name: &str| column("NEW", name);
    let (next, status, text) = (names.next_attempt_time, names.status, names.last_attempt_error_message);
    let attempted = names.last_attempt_time;
    let soon = format!("{} <= clock_timestamp() + interval '{} seconds'", new(next), HORIZON.as_secs());
    let enqueued = format!(
        "{} IS DISTINCT FROM {} AND {soon} AND {} <> 'IN_PROGRESS' AND {} \
         AND ({} <= clock_timestamp() OR {} IS NOT DISTINCT FROM {})",
        new(next),
        column("OLD", next),
        new(status),
        is_free::<diesel::pg::Pg>(&new(text)),
        new(next),
        new(attempted),
        column("OLD", attempted),
    );
    let [reserving, presumed] = HOLDING;
    let made_of = [next, status, text, attempted, reserving, presumed, PATH];
    let trigger = |kind: &str, event: &str, condition: &str| {
        let name = trigger_name(target, kind, &made_of);
        let body = format!("NOTIFY {}; RETURN NULL;", quoted(&target.channel()));
        let create = create(target, &name, &body, event, condition);
        let purpose = format!("other processes do not find {kind} rows before their poll interval");
        Trigger { step: "notify", name, create, purpose }
    };
    vec![trigger("inserted", "AFTER INSERT", &soon), trigger("updated", "AFTER UPDATE", &enqueued)]
}

/// Writes the statements that create a trigger and its function.
pub(super) fn create(target: &Target, name: &str, body: &str, event: &str, condition: &str) -> String {
    let (table, function, trigger) = (&target.table, target.table.sibling(name), target.table.quoted(name));
    // In one transaction. The DROP is for a trigger that somebody has disabled.
    format!(
        "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql {PATH} AS $queueable$ BEGIN \
         {body} END $queueable$; DROP TRIGGER IF EXISTS {trigger} ON {table}; \
         CREATE TRIGGER {trigger} {event} ON {table} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION {function}()"
    )
}
