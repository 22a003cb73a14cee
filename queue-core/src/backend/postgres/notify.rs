//! The triggers by which PostgreSQL tells the pollers of every process that a row has become due.

use crate::backend::target::Target;
use crate::backend::trigger::{HOLDING, Trigger, is_free, name};
use crate::row::HORIZON;

/// The search path of a function, so that nobody else's function or operator replaces one of the database's own,
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
        let name = name(target, kind, &made_of);
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
