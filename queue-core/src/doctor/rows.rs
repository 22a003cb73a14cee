//! Looks at a bounded number of a queue's rows, along its index and along the primary key.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::TimeDelta;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Nullable};

use super::add;
use super::database::words;
use crate::backend::{QueueConnection, Target, TextSql, load, load_first};
use crate::control::{asked_of, unserved};
use crate::entity::{Key, Window};
use crate::ill::{Ill, IllKind, Severity};
use crate::row::{GlanceRow, GlanceRowType, Status, printable};
use crate::statement::{ErasedQueue, first_pending, longest_text, poison_among_last, read_present};

/// How many rows one look reads. A guess: it takes some milliseconds, and rows that no worker claims are among the oldest.
const ROWS: i64 = 1_000;

/// For how long a lease has been over that no worker has taken. A guess: workers look for due rows every second.
const STUCK: TimeDelta = TimeDelta::minutes(5);

/// From how many tries on they seem to go on for ever: five times as many as an entity allows by default. A guess.
const MANY_TRIES: i32 = 100;

/// For how long a row is due before a queue without a poller stands still: as long as a poller that says nothing passes for alive.
const UNSERVED: Duration = Duration::from_secs(60);

/// For how long a row is due before its queue seems too slow. A guess.
const OLD: Duration = Duration::from_secs(60 * 60);

/// How many characters make a text long by which rows are ordered. A guess: fewer entries fit on a page of the index.
const LONG: i64 = 200;

/// Examines the rows of a queue.
pub(super) fn examine_rows<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    name: &str,
    ills: &mut Vec<Ill>,
) -> QueryResult<()> {
    let pending = connection.bounded(|connection| {
        let mut rows = load::<GlanceRowType, GlanceRow, _>(connection, &first_pending(queue.sql, ROWS))?;
        rows.iter_mut().for_each(|row| row.0 = C::Backend::TEXT_FORM.read_key(&row.0, queue.sql.key_parts));
        let stages = queue.sql.options.stages.map(|stages| (stages.column, stages.names));
        Ok(of_pending::<C::Backend>(&rows, stages, &queue.target()?))
    });
    add::<C>(ills, "the pending rows", pending)?;
    let waiting = connection.bounded(|connection| of_waiting(queue, connection, name));
    add::<C>(ills, "how long rows have been due", waiting)?;
    let poison = connection.bounded(|connection| of_poison(queue, connection));
    add::<C>(ills, "the rows that have failed", poison)?;
    let texts = connection.bounded(|connection| of_texts(queue, connection));
    add::<C>(ills, "the texts by which rows are ordered", texts)
}

/// Rows that have the same ill: how many, and the key of the first.
type Alike<'r, Of> = BTreeMap<Of, (usize, &'r str)>;

fn note<'r, Of: Ord>(alike: &mut Alike<'r, Of>, of: Of, row: &'r GlanceRow) {
    alike.entry(of).or_insert((0, &row.0)).0 += 1;
}

/// Returns a number of rows in words, of which at most [`ROWS`] were looked at.
fn rows((count, example): (usize, &str)) -> String {
    let rows = if count == 1 { "row" } else { "rows" };
    format!("{count} {rows} of the first {ROWS} that are pending, such as {},", printable(example, false))
}

fn of_pending<DB: TextSql>(
    found: &[GlanceRow],
    stages: Option<(&'static str, &'static [&'static str])>,
    target: &Target,
) -> Vec<Ill> {
    let (mut statuses, mut unknown_stages, mut stuck, mut tried) =
        (Alike::new(), Alike::new(), Alike::new(), Alike::new());
    for row in found {
        let (_, status, tries, due_for, stage) = row;
        match status.parse::<Status>() {
            Err(_) => note(&mut statuses, status, row),
            Ok(Status::InProgress) if due_for.is_some_and(|due| TimeDelta::microseconds(due) > STUCK) => {
                note(&mut stuck, (), row);
            }
            Ok(_) => {}
        }
        if let (Some((_, names)), Some(stage)) = (stages, stage)
            && !names.contains(&stage.as_str())
        {
            note(&mut unknown_stages, stage, row);
        }
        if *tries >= MANY_TRIES {
            note(&mut tried, (), row);
        }
    }
    let of_status = statuses.into_iter().map(|(status, alike)| {
        let problem =
            format!("{} have the status `{}`, and no worker claims them", rows(alike), printable(status, false));
        let mend = target.replacing::<DB>(target.columns.status, status, Status::NotAttempted.as_str());
        Ill::new(IllKind::UnknownStatus, Severity::Error, problem, mend)
    });
    let of_stage = unknown_stages.into_iter().filter_map(|(stage, alike)| {
        let (column, names) = stages?;
        let known = names.join(", ");
        let problem = format!(
            "{} are in the stage `{}`, which is none of {known}, and no worker claims them",
            rows(alike),
            printable(stage, false)
        );
        let mend = target.replacing::<DB>(column, stage, names.first()?);
        Some(Ill::new(IllKind::UnknownStage, Severity::Error, problem, mend))
    });
    let (of_lease, of_tries) = (stuck.into_values().map(of_lease), tried.into_values().map(of_tries));
    of_status.chain(of_stage).chain(of_lease).chain(of_tries).collect()
}

fn of_lease(stuck: (usize, &str)) -> Ill {
    let problem = format!("{} are under leases that ended more than {} ago", rows(stuck), words(STUCK));
    let mend = "start a poller of the entity, whose workers take such rows at once";
    Ill::new(IllKind::StuckLease, Severity::Warning, problem, mend)
}

fn of_tries(tried: (usize, &str)) -> Ill {
    let problem = format!("{} have used {MANY_TRIES} tries or more", rows(tried));
    let mend = "call `errors` of the queue for the reason, and `stop` or `skip` for such rows, or lower `max_tries`";
    Ill::new(IllKind::EndlessRetries, Severity::Warning, problem, mend)
}

/// Finds that nobody works, or that work takes long.
fn of_waiting<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    name: &str,
) -> QueryResult<Vec<Ill>> {
    let words = |time| words(TimeDelta::from_std(time).unwrap_or(TimeDelta::MAX));
    let oldest = queue.oldest_due(connection, None)?;
    let Some(oldest) = oldest.filter(|oldest| *oldest > UNSERVED) else { return Ok(Vec::new()) };
    if let Some(unserved) = unserved(connection, name)? {
        let problem = format!("{unserved}, and its oldest row has been due for {}", words(oldest));
        return Ok(vec![Ill::new(
            IllKind::NoPoller,
            Severity::Error,
            problem,
            "start a poller of the entity, with `register`",
        )]);
    }
    let oldest = if oldest > OLD { oldest_workable(queue, connection, name)? } else { None };
    let Some(oldest) = oldest.filter(|oldest| *oldest > OLD) else { return Ok(Vec::new()) };
    let problem = format!("the oldest row has been due for {}", words(oldest));
    let mend = "call `explain` of the queue for the reason, and start a poller, or more workers";
    Ok(vec![Ill::new(IllKind::OldDueRow, Severity::Warning, problem, mend)])
}

/// Reads how long the oldest row has been due that does not wait by design, for the window to open or for the end of a pause.
fn oldest_workable<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    name: &str,
) -> QueryResult<Option<Duration>> {
    let options = queue.sql.options;
    let (pauses, _) = asked_of(connection, name)?;
    if pauses.iter().any(|pause| pause.stage.is_none() && pause.value.is_none()) {
        return Ok(None);
    }
    // A poller refuses to start with a window that cannot be read.
    if let Some(window) = options.window.and_then(|window| window.parse::<Window>().ok())
        && read_present(connection)?.is_some_and(|now| !window.is_open(now.into()))
    {
        return Ok(None);
    }
    let is_paused = |stage: &str| pauses.iter().any(|pause| pause.stage.as_deref() == Some(stage));
    let known = options.stages.map(|stages| stages.names).unwrap_or_default();
    let served: Vec<_> = known.iter().copied().filter(|stage| !is_paused(stage)).collect();
    if served.is_empty() && !known.is_empty() {
        return Ok(None);
    }
    queue.oldest_due(connection, (served.len() < known.len()).then_some(&served[..]))
}

fn of_poison<K: Key, C: QueueConnection>(queue: &ErasedQueue<K, C>, connection: &mut C) -> QueryResult<Vec<Ill>> {
    let count: Option<i64> = load_first::<BigInt, i64, _>(connection, &poison_among_last(queue.sql, ROWS))?;
    Ok(count
        .filter(|count| *count > 0)
        .map(|count| {
            let problem = format!(
                "{count} of the {ROWS} rows with the highest keys have failed because they ended their process"
            );
            let mend =
                "mend what ends the process, as the text on the row says, and call `.failed().retry_now` for the rows";
            Ill::new(IllKind::PoisonRow, Severity::Warning, problem, mend)
        })
        .into_iter()
        .collect())
}

fn of_texts<K: Key, C: QueueConnection>(queue: &ErasedQueue<K, C>, connection: &mut C) -> QueryResult<Vec<Ill>> {
    let options = queue.sql.options;
    let ordered = options.order.iter().flat_map(|order| order.columns).filter(|column| column.is_long);
    let lane = options.lanes.filter(|lanes| lanes.of.kind.is_long());
    let columns = ordered.map(|column| column.name).chain(lane.map(|lanes| lanes.column));
    let mut ills = Vec::new();
    for column in columns {
        let longest = longest_text(queue.sql, column, ROWS);
        let longest = load_first::<Nullable<BigInt>, Option<i64>, _>(connection, &longest)?.flatten();
        if let Some(longest) = longest.filter(|longest| *longest > LONG) {
            let problem = format!(
                "the column {column}, by which rows are ordered or take turns, has texts of up to {longest} characters"
            );
            let mend =
                "order by a shorter column: the index has the beginning of each text, and is larger the longer that is";
            ills.push(Ill::new(IllKind::LongTexts, Severity::Note, problem, mend));
        }
    }
    Ok(ills)
}
