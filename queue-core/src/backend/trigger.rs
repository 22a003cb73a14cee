//! What the triggers of the three databases share: their names, which of them should exist, and which are out of date.
//!
//! A trigger sees every writer, in any language. The queue recognizes its triggers by their names. A name contains the
//! queue, and a hash of what the trigger is made of, so that another list of columns makes another trigger.

use diesel::result::QueryResult;

use super::connection::QueueBackend;
use super::schema::{finding, until_done};
use super::table_name::fingerprint;
use super::target::Target;
use crate::error::Finding;
use crate::row::{PRESUMED, RESERVING};

/// The beginning of the name of every trigger of the queue. Where triggers fire in the order of their names, this one
/// fires after the application's, and sees their changes of the row.
const PREFIX: &str = "zz_queueable_";

/// A trigger that an entity asks for.
pub(crate) struct Trigger {
    pub(crate) name: String,
    /// The statements that create it.
    pub(crate) create: Vec<String>,
    /// What does not happen without it, for a finding.
    pub(crate) purpose: String,
}

/// What is left to do on a table's triggers.
#[derive(Debug, PartialEq)]
pub(crate) struct ToDo {
    /// The statements that create the missing triggers.
    pub(crate) create: Vec<String>,
    /// The names of those that no entity asks for any more.
    pub(crate) stale: Vec<String>,
}

/// Returns the name of a trigger: `zz_queueable_<hash of the queue>_<kind>_<hash of what it is made of>`.
pub(crate) fn name(target: &Target, kind: &str, made_of: &[&str]) -> String {
    format!("{}{kind}_{:08x}", family(target), fingerprint(&made_of.join("\n")) as u32)
}

/// Returns the beginning of the names of a queue's triggers.
fn family(target: &Target) -> String {
    let queue = format!("{}\n{}", target.table.name, target.columns.next_attempt_time);
    format!("{PREFIX}{:016x}_", fingerprint(&queue))
}

/// Returns those of the names that belong to the queue's triggers.
pub(crate) fn of_the_queue(target: &Target, names: Vec<String>) -> Vec<String> {
    let family = family(target);
    names.into_iter().filter(|name| name.starts_with(&family)).collect()
}

/// Writes the condition that no attempt holds a row with this text. A change of a row that is held is only counted: the
/// attempt's end compares the count, and would not find the row if its state had changed.
///
/// The condition contains no empty text: a server with `EMPTY_STRING_IS_NULL` takes it for null, and the condition
/// would never be true.
pub(crate) fn is_free<DB: QueueBackend>(text: &str) -> String {
    // Character by character: LIKE ignores case on some databases, and a user's text must not hold a row.
    let (before, after) = DB::EXACTLY;
    let is_not = |mark: &str| {
        let length = mark.len();
        format!("SUBSTR({before}{text}{after}, 1, {length}) <> '{mark}'")
    };
    format!("({text} IS NULL OR {})", HOLDING.map(is_not).join(" AND "))
}

/// The beginnings of the texts on rows that attempts hold. They are part of what a trigger is made of, so other
/// beginnings make another trigger.
pub(crate) const HOLDING: [&str; 2] = [RESERVING, PRESUMED];

/// Returns what is left to do if these triggers of the queue are live; `None`: nothing.
pub(crate) fn to_do(wanted: &[Trigger], live: &[String]) -> Option<ToDo> {
    let missing = wanted.iter().filter(|trigger| !live.contains(&trigger.name));
    let create: Vec<_> = missing.flat_map(|trigger| trigger.create.clone()).collect();
    let is_wanted = |name: &&String| wanted.iter().any(|trigger| trigger.name == **name);
    let stale: Vec<_> = live.iter().filter(|name| !is_wanted(name)).cloned().collect();
    (!create.is_empty() || !stale.is_empty()).then_some(ToDo { create, stale })
}

/// Creates the missing triggers, and then drops those that no entity asks for any more. In between a change counts
/// twice, which is better than not at all.
pub(crate) fn bring_up_to_date<C>(
    connection: &mut C,
    wanted: &[Trigger],
    live: impl Fn(&mut C) -> QueryResult<Vec<String>>,
    drop: impl Fn(&str) -> Vec<String>,
    execute: impl Fn(&mut C, &str) -> QueryResult<()>,
) -> QueryResult<()> {
    until_done(
        connection,
        |connection| Ok(to_do(wanted, &live(connection)?)),
        |connection, ToDo { create, stale }| {
            let drops: Vec<_> = stale.iter().flat_map(|name| drop(name)).collect();
            create.iter().chain(&drops).try_for_each(|statement| execute(connection, statement))
        },
    )
}

/// Returns the findings about the live triggers. An additional one is no finding, because programs from before a
/// migration still run beside it. If another version or another list of columns has made a trigger in place of the
/// missing one, the finding names it.
pub(crate) fn compare(
    target: &Target,
    wanted: &[Trigger],
    live: &[String],
    drop: impl Fn(&str) -> Vec<String>,
) -> Vec<Finding> {
    let table = &target.table;
    let missing = wanted.iter().filter(|trigger| !live.contains(&trigger.name));
    let finding = |trigger: &Trigger| {
        let mut problem =
            format!("the table {table} has no trigger {}, without which {}", trigger.name, trigger.purpose);
        let of_its_kind = trigger.name.rfind('_').map_or(&*trigger.name, |end| &trigger.name[..=end]);
        let earlier: Vec<_> = live.iter().filter(|name| name.starts_with(of_its_kind)).cloned().collect();
        if !earlier.is_empty() {
            let earlier = earlier.join(", ");
            problem += &format!("; it has {earlier}, of another version of queueable or of other columns");
        }
        let drops = earlier.iter().flat_map(|name| drop(name));
        let mend: Vec<_> = trigger.create.iter().cloned().chain(drops).collect();
        finding(target, problem, mend.join("; "))
    };
    missing.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(name: &str) -> Trigger {
        Trigger { name: name.to_owned(), create: vec![format!("CREATE {name}")], purpose: String::new() }
    }

    #[test]
    fn what_is_missing_is_created_and_what_is_stale_is_dropped() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(to_do(&[trigger("new")], &names(&["new"])), None);
        let to_do = to_do(&[trigger("new")], &names(&["old"])).expect("there is one");
        assert_eq!((to_do.create, to_do.stale), (names(&["CREATE new"]), names(&["old"])));
    }
}
