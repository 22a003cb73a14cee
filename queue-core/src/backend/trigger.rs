//! What the three databases' triggers share: their names, which are to be there, and which are left of an earlier time.
//!
//! A trigger sees whatever writer, in whatever language. It is known by its name: that says which queue it belongs to, and
//! by a hash what it was made of, so that another list of columns is another trigger.

use diesel::result::QueryResult;

use super::connection::QueueBackend;
use super::schema::{finding, until_done};
use super::table_name::fingerprint;
use super::target::Target;
use crate::error::Finding;
use crate::row::{PRESUMED, RESERVING};

/// What the name of every trigger of ours begins with. Where triggers fire in the order of their names, ours fires behind
/// the application's, and sees what those have made of the row.
const PREFIX: &str = "zz_queueable_";

/// A trigger that an entity asks for.
pub(crate) struct Trigger {
    pub(crate) name: String,
    /// The statements that create it.
    pub(crate) create: Vec<String>,
    /// What is missing without it, for a finding.
    pub(crate) purpose: String,
}

/// What is to be done to a table's triggers.
#[derive(Debug, PartialEq)]
pub(crate) struct ToDo {
    /// The statements that create what is missing.
    pub(crate) create: Vec<String>,
    /// The names of those that nobody asks for any more.
    pub(crate) stale: Vec<String>,
}

/// Returns the name of a trigger: `zz_queueable_<hash of the queue>_<kind>_<hash of what it is made of>`.
pub(crate) fn name(target: &Target, kind: &str, made_of: &[&str]) -> String {
    format!("{}{kind}_{:08x}", family(target), fingerprint(&made_of.join("\n")) as u32)
}

/// What the names of a queue's triggers begin with.
fn family(target: &Target) -> String {
    let queue = format!("{}\n{}", target.table.name, target.columns.next_attempt_time);
    format!("{PREFIX}{:016x}_", fingerprint(&queue))
}

/// Those of the names that are the queue's triggers'.
pub(crate) fn of_the_queue(target: &Target, names: Vec<String>) -> Vec<String> {
    let family = family(target);
    names.into_iter().filter(|name| name.starts_with(&family)).collect()
}

/// The condition that a row with this text is not held by an attempt. A change of a row that is held is counted only: the
/// attempt's end judges by the count, and would not find the row in another state.
///
/// It has no empty text in it: to a server with `EMPTY_STRING_IS_NULL` that is a null, and the condition never true.
pub(crate) fn is_free<DB: QueueBackend>(text: &str) -> String {
    // Character by character: LIKE ignores case on some databases, and what a user writes must not hold a row.
    let (before, after) = DB::EXACTLY;
    let is_not = |mark: &str| {
        let length = mark.len();
        format!("SUBSTR({before}{text}{after}, 1, {length}) <> '{mark}'")
    };
    format!("({text} IS NULL OR {})", HOLDING.map(is_not).join(" AND "))
}

/// What the texts of rows begin with that attempts hold. A trigger is made of them too: others have another trigger.
pub(crate) const HOLDING: [&str; 2] = [RESERVING, PRESUMED];

/// What is to be done where these triggers of the queue are live; `None`: nothing.
pub(crate) fn to_do(wanted: &[Trigger], live: &[String]) -> Option<ToDo> {
    let missing = wanted.iter().filter(|trigger| !live.contains(&trigger.name));
    let create: Vec<_> = missing.flat_map(|trigger| trigger.create.clone()).collect();
    let is_wanted = |name: &&String| wanted.iter().any(|trigger| trigger.name == **name);
    let stale: Vec<_> = live.iter().filter(|name| !is_wanted(name)).cloned().collect();
    (!create.is_empty() || !stale.is_empty()).then_some(ToDo { create, stale })
}

/// Creates what is missing, and then drops what nobody asks for any more: in between a change counts twice, which is
/// better than not at all.
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

/// What is wrong with the live triggers. One too many is not: programs of the time before a migration still run beside it.
/// One that stands in a missing one's place, because another version or another list of columns has made it, is named.
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
