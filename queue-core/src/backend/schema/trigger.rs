//! The triggers of a queue, as far as the three databases share them: their names, which of them should exist, and which are
//! out of date.
//!
//! A trigger sees every writer, in any language. The queue recognizes its triggers by their names. A name contains the
//! queue, and a hash of what the trigger is made of, so that another list of columns makes another trigger.

use diesel::Connection;
use diesel::deserialize::QueryableByName;
use diesel::result::{Error, QueryResult};
use diesel::sql_types::{Nullable, Text};

use super::live_table::{LiveTable, find_column, until_done};
use super::table_name::fingerprint;
use super::target::{Step, Target, finding};
use crate::backend::connection::QueueBackend;
use crate::error::{Finding, refused};
use crate::row::{PRESUMED, RESERVING};

/// The beginning of the name of every trigger of the queue. Where triggers fire in the order of their names, this one
/// fires after the application's, and sees their changes of the row.
pub(crate) const PREFIX: &str = "zz_queueable_";

/// A trigger that an entity asks for.
pub(crate) struct Trigger {
    /// The step of the migration that creates it.
    pub(crate) step: &'static str,
    pub(crate) name: String,
    /// The statement that creates it.
    pub(crate) create: String,
    /// The effect that is missing without it, for a finding.
    pub(crate) purpose: String,
}

/// A trigger of the live table.
#[derive(QueryableByName)]
pub(crate) struct LiveTrigger {
    #[diesel(sql_type = Text)]
    pub(crate) name: String,
    /// Its definition, if it runs at updates; on PostgreSQL and SQLite the statements that create it.
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) at_update: Option<String>,
}

/// A database's words for triggers.
pub(crate) trait Triggers<DB = <Self as Connection>::Backend>: LiveTable<DB> {
    /// Returns the triggers that the entity asks for.
    fn wanted(target: &Target) -> Vec<Trigger>;

    /// Writes the statement that drops a trigger, and nothing else that belongs to it.
    fn drop_only(target: &Target, name: &str) -> String {
        format!("DROP TRIGGER IF EXISTS {}", target.table.sibling(name))
    }

    /// Writes the statements that drop a trigger of the queue.
    fn drop_trigger(target: &Target, name: &str) -> Vec<String> {
        vec![Self::drop_only(target, name)]
    }

    /// Returns the triggers of the live table, the application's too.
    fn live_triggers(&mut self, target: &Target) -> QueryResult<Vec<LiveTrigger>>;

    /// Tells whether a trigger with this definition runs at every update, whatever the update changes.
    fn runs_at_every_update(definition: &str) -> bool;

    /// Returns the definition of a trigger that does the same as this one, but runs only at updates of these columns; or
    /// why there is none.
    fn restricted(target: &Target, definition: &str, columns: &[String]) -> Result<String, &'static str>;

    /// Returns the name and the definition of a trigger that keeps a column which the database sets at every update, if
    /// none of these columns changes.
    fn keeper(_target: &Target, _column: &str, _columns: &[String]) -> Option<(String, String)> {
        None
    }

    /// Returns the application's columns that the database itself sets at every update.
    fn set_at_update(&mut self, _target: &Target) -> QueryResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// Finds a change that no trigger would notice, as a problem with its remedy.
    fn unseen(&mut self, _target: &Target) -> QueryResult<Option<(String, String)>> {
        Ok(None)
    }

    /// Explains the server's refusal to create a trigger.
    fn explained(_target: &Target, error: Error) -> Error {
        error
    }

    /// Returns what gives this user the right to see the triggers, if the server may hide them.
    fn right_to_see(_target: &Target) -> Option<String> {
        None
    }
}

/// Returns the steps of a migration that come after the indexes.
pub(crate) fn steps<T: Triggers>(target: &Target) -> Vec<Step> {
    let wanted = T::wanted(target);
    let step = |name: &'static str| {
        let triggers: Vec<_> = wanted.iter().filter(|trigger| trigger.step == name).collect();
        let up = triggers.iter().map(|trigger| trigger.create.clone()).collect();
        let down = triggers.iter().flat_map(|trigger| T::drop_trigger(target, &trigger.name)).collect();
        (!triggers.is_empty()).then(|| T::step(name, up, down))
    };
    [step("rerun"), insert_time_step::<T>(target).or_else(|| step("created")), step("notify")]
        .into_iter()
        .flatten()
        .collect()
}

/// Creates the missing triggers, and then drops those that no entity asks for any more. In between a change counts
/// twice, which is better than not at all.
pub(crate) fn add<T: Triggers>(connection: &mut T, target: &Target) -> QueryResult<()> {
    if let Some((problem, mend)) = connection.unseen(target)? {
        return Err(refused(format!("{problem}: {mend}")));
    }
    let without_default =
        |connection: &mut T| Ok(set_insert_time(connection, target)?.into_iter().map(|set| set.1).collect());
    until_done(connection, without_default, T::alter)?;
    let wanted = T::wanted(target);
    let left_to_do = |connection: &mut T| {
        let live = live(connection, target)?;
        let missing =
            wanted.iter().filter(|trigger| !live.contains(&trigger.name)).map(|trigger| trigger.create.clone());
        Ok(missing.chain(stale(&wanted, &live).map(|name| drop_at_once::<T>(target, name))).collect())
    };
    until_done(connection, left_to_do, |connection, statement| {
        connection.alter(statement).map_err(|error| T::explained(target, error))
    })
}

/// Drops all triggers of the queue.
pub(crate) fn remove<T: Triggers>(connection: &mut T, target: &Target) -> QueryResult<()> {
    live(connection, target)?.iter().try_for_each(|name| connection.alter(&drop_at_once::<T>(target, name)))
}

/// Writes the statements that drop a trigger as one text, which is one transaction.
fn drop_at_once<T: Triggers>(target: &Target, name: &str) -> String {
    T::drop_trigger(target, name).join("; ")
}

/// Writes the statements that drop the live triggers that the entity does not ask for.
pub(crate) fn stale_drops<T: Triggers>(connection: &mut T, target: &Target) -> QueryResult<Vec<String>> {
    let (wanted, live) = (T::wanted(target), live(connection, target)?);
    Ok(stale(&wanted, &live).flat_map(|name| T::drop_trigger(target, name)).collect())
}

/// Returns the findings about the triggers, and about the default that writes the time of an insert.
pub(crate) fn check<T: Triggers>(connection: &mut T, target: &Target) -> QueryResult<Vec<Finding>> {
    let unseen = connection.unseen(target)?.map(|(problem, mend)| finding(target, problem, mend));
    let created = set_insert_time(connection, target)?.map(|(created, set)| {
        finding(target, format!("the column {created} has no default, so inserts leave it null"), set)
    });
    let live = live(connection, target)?;
    let mut triggers = compare::<T>(target, &live);
    if let Some(right) = T::right_to_see(target).filter(|_| live.is_empty()) {
        for finding in &mut triggers {
            finding.problem += &format!(" (or it is hidden from this user, who may see it after {right})");
        }
    }
    Ok(unseen.into_iter().chain(created).chain(triggers).collect())
}

/// Returns the names of the live triggers that belong to the queue.
fn live<T: Triggers>(connection: &mut T, target: &Target) -> QueryResult<Vec<String>> {
    let family = family(target);
    let live = connection.live_triggers(target)?;
    Ok(live.into_iter().map(|trigger| trigger.name).filter(|name| name.starts_with(&family)).collect())
}

/// Returns the name of a trigger: `zz_queueable_<hash of the queue>_<kind>_<hash of what it is made of>`.
pub(crate) fn trigger_name(target: &Target, kind: &str, made_of: &[&str]) -> String {
    format!("{}{kind}_{:08x}", family(target), fingerprint(&made_of.join("\n")) as u32)
}

/// Returns the beginning of the names of a queue's triggers.
fn family(target: &Target) -> String {
    let queue = format!("{}\n{}", target.table.name, target.columns.next_attempt_time);
    format!("{PREFIX}{:016x}_", fingerprint(&queue))
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

/// Returns the names of the live triggers of the queue that no entity asks for any more.
fn stale<'a>(wanted: &[Trigger], live: &'a [String]) -> impl Iterator<Item = &'a String> {
    live.iter().filter(|name| wanted.iter().all(|trigger| trigger.name != **name))
}

/// Returns the step that adds the default which gives an inserted row its time, on databases that can add one to a
/// column without giving it to the existing rows. Elsewhere a trigger does it.
fn insert_time_step<T: Triggers>(target: &Target) -> Option<Step> {
    let (created, time) = target.options.timestamps.created.zip(T::INSERT_TIME)?;
    let [up, down] = [format!("SET DEFAULT {time}"), "DROP DEFAULT".to_owned()];
    let [up, down] = [up, down].map(|action| vec![alter_default(target, created, &action)]);
    Some(T::step("created", up, down))
}

/// Returns the column of the insert time and the statement that gives it its default, if the live table has the column
/// without one.
fn set_insert_time<T: Triggers>(connection: &mut T, target: &Target) -> QueryResult<Option<(&'static str, String)>> {
    let Some((created, time)) = target.options.timestamps.created.zip(T::INSERT_TIME) else { return Ok(None) };
    // MariaDB returns the text `NULL` if a column has none.
    let is_none = |default: &Option<String>| default.as_ref().is_none_or(|text| text.eq_ignore_ascii_case("NULL"));
    let live = connection.live_columns(target)?;
    let lacks_it = find_column(&live, created).is_some_and(|column| is_none(&column.default_value));
    Ok(lacks_it.then(|| (created, alter_default(target, created, &format!("SET DEFAULT {time}")))))
}

/// Existing rows get no time: a default applies to inserts only.
fn alter_default(target: &Target, created: &str, action: &str) -> String {
    format!("ALTER TABLE {} ALTER COLUMN {} {action}", target.table, target.table.quoted(created))
}

/// Returns the findings about the live triggers. An additional trigger is not reported, because programs from
/// before a migration may still need it. If another version or another list of columns has made a trigger in place of the
/// missing one, the finding names it.
fn compare<T: Triggers>(target: &Target, live: &[String]) -> Vec<Finding> {
    let table = &target.table;
    let finding = |Trigger { name, create, purpose, .. }: Trigger| {
        let mut problem = format!("the table {table} has no trigger {name}, without which {purpose}");
        let of_its_kind = name.rfind('_').map_or(&*name, |end| &name[..=end]);
        let earlier: Vec<_> = live.iter().filter(|name| name.starts_with(of_its_kind)).cloned().collect();
        if !earlier.is_empty() {
            let earlier = earlier.join(", ");
            problem += &format!("; it has {earlier}, of another version of queueable or of other columns");
        }
        let drops = earlier.iter().flat_map(|name| T::drop_trigger(target, name));
        let mend: Vec<_> = [create].into_iter().chain(drops).collect();
        finding(target, problem, mend.join("; "))
    };
    T::wanted(target).into_iter().filter(|trigger| !live.contains(&trigger.name)).map(finding).collect()
}

/// The trigger that notices a change of content: what it is made of, as SQL.
pub(crate) struct Rerun {
    pub(crate) name: String,
    purpose: String,
    /// The columns whose change it notices.
    pub(crate) content: Vec<String>,
    pub(crate) status: String,
    pub(crate) next: String,
    pub(crate) tries: String,
    text: String,
    pub(crate) change_count: String,
    pub(crate) updated: Option<String>,
    /// The period, the cron expression and the scheduled time of an entity whose rows have schedules.
    pub(crate) schedule: Option<[String; 3]>,
}

impl Rerun {
    /// Returns what the entity's trigger is made of; `also` is what a database adds to the hash in its name.
    pub(crate) fn of(target: &Target, also: &[&str]) -> Option<Self> {
        let rerun = target.options.rerun_on_change?;
        let names = target.columns;
        let updated = target.options.timestamps.updated;
        let schedule =
            target.options.periodic.map(|periodic| [periodic.period, periodic.cron, periodic.scheduled_time]);
        let text = names.last_attempt_error_message;
        let mut made_of = vec![names.status, names.next_attempt_time, names.try_count, text, rerun.change_count];
        made_of.push(updated.unwrap_or_default());
        made_of.extend(schedule.iter().flatten());
        made_of.extend(rerun.columns);
        made_of.extend(HOLDING);
        made_of.extend(also);
        let quoted = |column: &str| target.table.quoted(column);
        Some(Rerun {
            name: trigger_name(target, "rerun", &made_of),
            purpose: format!("a change of {} makes no row due", rerun.columns.join(", ")),
            content: rerun.columns.iter().map(|column| quoted(column)).collect(),
            status: quoted(names.status),
            next: quoted(names.next_attempt_time),
            tries: quoted(names.try_count),
            text: quoted(text),
            change_count: quoted(rerun.change_count),
            updated: updated.map(quoted),
            schedule: schedule.map(|schedule| schedule.map(quoted)),
        })
    }

    /// Writes the condition under which a changed row is due again, if its due time has not been changed too. `new` is
    /// the prefix of the new row's columns.
    pub(crate) fn is_due_again<DB: QueueBackend>(&self, new: &str, now: &str) -> String {
        let Rerun { status, next, text, .. } = self;
        let free = is_free::<DB>(&format!("{new}{text}"));
        format!(
            "({new}{next} IS NULL OR {new}{next} > {now}) \
             AND {new}{status} IN ('NOT_ATTEMPTED', 'ERROR', 'SUCCESS', 'FAILED') \
             AND NOT ({new}{next} IS NULL AND {new}{status} IN ('NOT_ATTEMPTED', 'ERROR', 'SUCCESS') \
             AND {new}{text} IS NOT NULL) AND {free}"
        )
    }

    /// Returns the trigger that this statement creates.
    pub(crate) fn created_by(self, create: String) -> Trigger {
        Trigger { step: "rerun", name: self.name, create, purpose: self.purpose }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(name: &str) -> Trigger {
        Trigger { step: "rerun", name: name.to_owned(), create: format!("CREATE {name}"), purpose: String::new() }
    }

    #[test]
    fn a_trigger_of_another_list_of_columns_is_stale() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let live = names(&["new", "old"]);
        assert_eq!(stale(&[trigger("new")], &live).collect::<Vec<_>>(), ["old"]);
    }
}
