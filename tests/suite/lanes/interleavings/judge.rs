//! Decides from the journal whether a case went as the documentation promises. It knows nothing of how the library does
//! it.
//!
//! An attempt lasts at least from its `Began` to its end, because both are noted in the handler. The session of an attempt
//! is ended after `Lost` was noted: from there on its place is free. A row that an operator skips while it is called under
//! a lease gives its place back too.

use std::collections::BTreeMap;

use super::case::{Answer, Case, Row};

/// What an entity promises.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// How many rows of one value run at the same time.
    pub(super) of_value: Option<usize>,
    /// How many rows run at the same time.
    pub(super) of_all: Option<usize>,
    pub(super) is_serial: bool,
    pub(super) is_strict: bool,
    pub(super) is_by_rank: bool,
    /// Whether the rows are worked under leases.
    pub(super) is_leased: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Began,
    Done,
    Retry,
    Fatal,
    /// The attempt's session is ended next.
    Lost,
    /// The row was enqueued while others ran.
    Enqueued,
    /// Somebody skips the row next.
    Skipping,
    /// The skip was successful.
    Skipped,
}

const NAMES: [(What, &str); 8] = [
    (What::Began, "began"),
    (What::Done, "done"),
    (What::Retry, "retry"),
    (What::Fatal, "fatal"),
    (What::Lost, "lost"),
    (What::Enqueued, "enqueued"),
    (What::Skipping, "skipping"),
    (What::Skipped, "skipped"),
];

impl What {
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(what, _)| *what == self).map_or("", |(_, name)| name)
    }

    pub(super) fn of(text: &str) -> Option<Self> {
        NAMES.iter().find(|(_, name)| *name == text).map(|(what, _)| *what)
    }

    pub(super) fn of_answer(answer: Answer) -> Self {
        match answer {
            Answer::Done => What::Done,
            Answer::Retry => What::Retry,
            Answer::Fatal => What::Fatal,
        }
    }
}

/// An entry of the journal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) number: i64,
    /// Of what is no attempt, 0.
    pub(super) attempt: i64,
    pub(super) job: i64,
    pub(super) what: What,
}

/// How a row was left.
#[derive(Debug, Clone)]
pub(super) struct Left {
    pub(super) id: i64,
    pub(super) status: String,
    pub(super) is_pending: bool,
}

/// An attempt, as far as the journal tells.
#[derive(Debug, Clone, Copy)]
struct Attempt<'a> {
    row: &'a Row,
    began: i64,
    ended: i64,
    /// How it ended.
    how: What,
    /// Whether the row was attempted again.
    is_last: bool,
}

/// When a row could be seen, and when it was skipped.
#[derive(Debug, Clone, Copy)]
struct Life {
    seen_from: i64,
    /// Not before, if it was skipped.
    skipped_at: i64,
    /// Not after.
    skipped_by: i64,
}

/// Returns what went wrong.
pub(super) fn judge(case: &Case, rules: Rules, journal: &[Entry], left: &[Left]) -> Result<(), String> {
    let lives = lives(case, journal);
    let attempts = attempts(case, rules, journal, &lives)?;
    every_row_has_ended(case, journal, left)?;
    no_more_than(rules.of_all, &attempts, |_| true, "at all")?;
    let mut by_value: BTreeMap<i64, Vec<Attempt<'_>>> = BTreeMap::new();
    for attempt in &attempts {
        no_more_than(Some(1), &attempts, |other| other.row.id == attempt.row.id, "of one row")?;
        if let Some(value) = attempt.row.value {
            by_value.entry(value).or_default().push(*attempt);
        }
    }
    for (value, attempts) in &by_value {
        no_more_than(rules.of_value, attempts, |_| true, &format!("of value {value}"))?;
        for at in 0..attempts.len() {
            if rules.is_serial {
                it_was_the_first_of_its_value(case, rules, &attempts[..=at], &lives)?;
            }
            if rules.is_strict {
                nothing_passes_an_unfinished_row(rules, attempts, at, &lives)?;
            }
        }
    }
    Ok(())
}

fn lives(case: &Case, journal: &[Entry]) -> BTreeMap<i64, Life> {
    let number = |job, what| journal.iter().find(|entry| entry.job == job && entry.what == what).map(|it| it.number);
    let life = |row: &Row| {
        let seen_from = if row.comes_later { number(row.id, What::Enqueued).unwrap_or(i64::MAX) } else { 0 };
        let skipped_by = number(row.id, What::Skipped);
        let skipped_at = skipped_by.and_then(|_| number(row.id, What::Skipping)).unwrap_or(i64::MAX);
        (row.id, Life { seen_from, skipped_at, skipped_by: skipped_by.unwrap_or(i64::MAX) })
    };
    case.rows.iter().map(life).collect()
}

/// The attempts, in the order in which they began.
fn attempts<'a>(
    case: &'a Case,
    rules: Rules,
    journal: &[Entry],
    lives: &BTreeMap<i64, Life>,
) -> Result<Vec<Attempt<'a>>, String> {
    let mut attempts = Vec::new();
    for began in journal.iter().filter(|entry| entry.what == What::Began) {
        let row = case.row(began.job).ok_or_else(|| format!("row {} is none of this case", began.job))?;
        let Life { skipped_at, skipped_by, .. } = lives[&row.id];
        if began.number > skipped_by && !rules.is_leased {
            return Err(format!("row {} began after it was skipped", row.id));
        }
        let ends: Vec<_> = journal.iter().filter(|it| it.attempt == began.attempt && it.what != What::Began).collect();
        let end = match ends.iter().find(|end| end.what == What::Lost) {
            Some(lost) => Some(lost),
            // In lease mode the same answer may be written twice.
            None => ends.last(),
        };
        // Under a lease nobody applies the answer for a row that was skipped. If it was skipped before it was called, it
        // never had its place.
        let (ended, how) = match end {
            Some(end) if end.number < skipped_at || !rules.is_leased => (end.number, end.what),
            _ if skipped_at < i64::MAX && rules.is_leased => (began.number.max(skipped_at), What::Skipping),
            _ => return Err(format!("the attempt of row {} has no end", row.id)),
        };
        let is_last = !journal.iter().any(|it| it.what == What::Began && it.job == row.id && it.number > began.number);
        attempts.push(Attempt { row, began: began.number, ended, how, is_last });
    }
    Ok(attempts)
}

fn every_row_has_ended(case: &Case, journal: &[Entry], left: &[Left]) -> Result<(), String> {
    for row in &case.rows {
        let left = left.iter().find(|left| left.id == row.id).ok_or_else(|| format!("row {} is gone", row.id))?;
        let was = |what| journal.iter().any(|entry| entry.job == row.id && entry.what == what);
        let expected = if was(What::Skipped) { "SKIPPED" } else { row.end() };
        if left.status != expected || left.is_pending {
            return Err(format!("row {} is {} (pending: {}), not {expected}", row.id, left.status, left.is_pending));
        }
        if expected != "SKIPPED" && !was(What::Began) {
            return Err(format!("row {} is {expected}, and never began", row.id));
        }
    }
    Ok(())
}

fn no_more_than(
    most: Option<usize>,
    attempts: &[Attempt<'_>],
    of: impl Fn(&Attempt<'_>) -> bool,
    what: &str,
) -> Result<(), String> {
    let Some(most) = most else { return Ok(()) };
    for attempt in attempts.iter().filter(|it| of(it)) {
        let together = |other: &&Attempt<'_>| of(other) && other.began <= attempt.began && attempt.began < other.ended;
        let running: Vec<_> = attempts.iter().filter(together).map(|other| other.row.id).collect();
        if running.len() > most {
            return Err(format!("{running:?} ran at the same time: more than {most} {what}"));
        }
    }
    Ok(())
}

/// Checks the last one of these attempts of a value against all rows that waited for their first attempt.
fn it_was_the_first_of_its_value(
    case: &Case,
    rules: Rules,
    attempts: &[Attempt<'_>],
    lives: &BTreeMap<i64, Life>,
) -> Result<(), String> {
    let Some((begun, before)) = attempts.split_last() else { return Ok(()) };
    if lives[&begun.row.id].skipped_by < begun.began {
        // It was claimed before it was skipped, and so perhaps before others came.
        return Ok(());
    }
    let own: Vec<_> = before.iter().filter(|it| it.row.id == begun.row.id).collect();
    if rules.is_strict && !own.is_empty() {
        // A strict lane's retry comes first.
        return Ok(());
    }
    // A failure may have been undone with the group of another row whose session was ended.
    let none_lost = attempts.iter().all(|it| it.how != What::Lost);
    let is_retry = !own.is_empty() && own.iter().all(|it| it.how == What::Retry) && none_lost;
    // It was claimed after the attempt before it: who could be seen before that one's end could be seen by the claim. A
    // worker whose group was undone runs each of its rows again, by its key.
    let claimed_after = before.iter().rev().find(|it| it.row.id != begun.row.id || is_retry).map_or(0, |it| it.ended);
    for row in case.rows.iter().filter(|row| row.value == begun.row.value && row.id != begun.row.id) {
        let life = lives[&row.id];
        let waited = life.seen_from <= claimed_after
            && life.skipped_at > begun.began
            && before.iter().all(|it| it.row.id != row.id);
        if waited && is_before(rules, row, begun.row, is_retry) {
            return Err(format!("row {} overtook row {}, which waited", begun.row.id, row.id));
        }
    }
    Ok(())
}

/// Whether a row that waits for its first attempt comes before another one. `is_retry`: that one waits for its retry, and
/// so is due later than all others.
fn is_before(rules: Rules, waiting: &Row, begun: &Row, is_retry: bool) -> bool {
    match rules.is_by_rank {
        true => waiting.rank > begun.rank,
        false => is_retry || waiting.due < begun.due,
    }
}

/// Checks the attempt of a value at this place against the next one.
fn nothing_passes_an_unfinished_row(
    rules: Rules,
    attempts: &[Attempt<'_>],
    at: usize,
    lives: &BTreeMap<i64, Life>,
) -> Result<(), String> {
    let [unfinished, next, ..] = &attempts[at..] else { return Ok(()) };
    if unfinished.is_last || next.row.id == unfinished.row.id || lives[&unfinished.row.id].skipped_at < next.began {
        return Ok(());
    }
    // An attempt that was interrupted is none: a row that comes first is next, if it was enqueued after the claim.
    let claimed_after = attempts[..at].last().map_or(0, |before| before.ended);
    let came_meanwhile = lives[&next.row.id].seen_from > claimed_after;
    let was_interrupted = unfinished.how != What::Retry;
    if was_interrupted && next.row.comes_later && came_meanwhile && is_before(rules, next.row, unfinished.row, false) {
        return Ok(());
    }
    Err(format!("row {} passed row {}, which had not ended", next.row.id, unfinished.row.id))
}

#[cfg(test)]
mod tests {
    use super::super::case::Step;
    use super::*;

    const NONE: Rules =
        Rules { of_value: None, of_all: None, is_serial: false, is_strict: false, is_by_rank: false, is_leased: false };
    const SERIAL: Rules = Rules { of_value: Some(1), is_serial: true, ..NONE };
    const STRICT: Rules = Rules { is_strict: true, ..SERIAL };

    fn row(id: i64, answers: &[Answer]) -> Row {
        let steps = answers.iter().map(|&answer| Step { answer, round_trips: 0, loses_session: false }).collect();
        let due = u8::try_from(id).unwrap();
        Row { id, value: Some(7), rank: -id, due, comes_later: false, steps }
    }

    /// Judges rows 1 and 2 of one value, the first of which fails once if it is told to, by this journal.
    fn judged(rules: Rules, fails: bool, journal: &[(i64, i64, What)]) -> Result<(), String> {
        let first: &[_] = if fails { &[Answer::Retry, Answer::Done] } else { &[Answer::Done] };
        let case = Case { rows: vec![row(1, first), row(2, &[Answer::Done])], deeds: Vec::new() };
        let entry = |(number, &(attempt, job, what)): (i64, &(i64, i64, What))| Entry { number, attempt, job, what };
        let journal: Vec<_> = (1..).zip(journal).map(entry).collect();
        let left = [1, 2].map(|id| Left { id, status: "SUCCESS".to_owned(), is_pending: false });
        judge(&case, rules, &journal, &left)
    }

    #[test]
    fn the_order_of_the_due_times_is_right() {
        use What::{Began, Done, Lost, Retry};
        let fine = [(1, 1, Began), (1, 1, Done), (2, 2, Began), (2, 2, Done)];
        assert_eq!(judged(STRICT, false, &fine), Ok(()));
        let retried = [(1, 1, Began), (1, 1, Retry), (2, 2, Began), (2, 2, Done), (3, 1, Began), (3, 1, Done)];
        assert_eq!(judged(SERIAL, true, &retried), Ok(()));
        // The place of a session that was ended is free before its handler returns.
        let lost = [(1, 1, Began), (1, 1, Lost), (3, 1, Began), (3, 1, Done), (2, 2, Began), (2, 2, Done)];
        assert_eq!(judged(STRICT, false, &lost), Ok(()));
    }

    #[test]
    fn every_breach_is_found() {
        use What::{Began, Done, Lost, Retry};
        let overtaken = [(2, 2, Began), (2, 2, Done), (1, 1, Began), (1, 1, Done)];
        assert!(judged(SERIAL, false, &overtaken).unwrap_err().contains("row 2 overtook row 1"));
        let together = [(1, 1, Began), (2, 2, Began), (1, 1, Done), (2, 2, Done)];
        assert!(judged(SERIAL, false, &together).unwrap_err().contains("at the same time"));
        let twice = [(1, 1, Began), (2, 1, Began), (1, 1, Done), (2, 1, Done), (3, 2, Began), (3, 2, Done)];
        assert!(judged(NONE, false, &twice).unwrap_err().contains("of one row"));
        let passed = [(1, 1, Began), (1, 1, Retry), (2, 2, Began), (2, 2, Done), (3, 1, Began), (3, 1, Done)];
        assert!(judged(STRICT, true, &passed).unwrap_err().contains("row 2 passed row 1"));
        let passed = [(1, 1, Began), (1, 1, Lost), (2, 2, Began), (2, 2, Done), (3, 1, Began), (3, 1, Done)];
        assert!(judged(STRICT, false, &passed).unwrap_err().contains("row 2 passed row 1"));
        let early = [(1, 1, Began), (1, 1, Retry), (3, 1, Began), (3, 1, Done), (2, 2, Began), (2, 2, Done)];
        assert!(judged(SERIAL, true, &early).unwrap_err().contains("row 1 overtook row 2"));
        let endless = [(1, 1, Began), (2, 2, Began), (2, 2, Done)];
        assert!(judged(SERIAL, false, &endless).unwrap_err().contains("has no end"));
        let never = [(1, 1, Began), (1, 1, Done)];
        assert!(judged(SERIAL, false, &never).unwrap_err().contains("never began"));
    }
}
