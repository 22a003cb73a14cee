//! The triggers by which PostgreSQL tells the pollers of every process that a row has become due.

use crate::backend::target::Target;
use crate::backend::trigger::{HOLDING, Trigger, is_free, name};
use crate::row::HORIZON;

/// The path of a function: nobody else's function or operator takes the place of one of the database's own, whoever writes the row.
pub(super) const PATH: &str = "SET search_path = pg_catalog, pg_temp";

/// An identifier, quoted.
pub(crate) fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// The triggers, one for inserts and one for updates, and the function that each runs. AFTER, so that they see what the
/// others have made of the row; the condition is PostgreSQL's own, so that an update that is none of its business calls no
/// function.
///
/// An enqueue is told of, whoever makes it: a row that is due now, or within the time that the longest poll interval may
/// take. Most of what an attempt writes is not: success and failure leave a later time or none, beside the time of the
/// attempt, leases and groups bear their reservations. Rows that an attempt makes due at once are told of, and those that it puts
/// off for a moment without having tried: for another poller they are work.
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
        let function = table.sibling(&name);
        let create_function = format!(
            "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql {PATH} AS $queueable$ BEGIN \
             NOTIFY {}; RETURN NULL; END $queueable$",
            quoted(&target.channel()),
        );
        // The first statement is for a trigger that somebody has disabled.
        let drop_trigger = format!("DROP TRIGGER IF EXISTS {} ON {table}", table.quoted(&name));
        let create_trigger = format!(
            "CREATE TRIGGER {} AFTER {event} ON {table} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION {function}()",
            table.quoted(&name),
        );
        let create = vec![[create_function, drop_trigger, create_trigger].join("; ")];
        Trigger { name, create, purpose: format!("no other process hears of {kind} rows before its poll interval") }
    };
    vec![trigger("inserted", "INSERT", &soon), trigger("updated", "UPDATE", &enqueued)]
}
