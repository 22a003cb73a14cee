//! The model: the rows as the documentation describes them, in memory.

use std::collections::BTreeMap;

use fastrand::Rng;
use queueable::Status;

/// How many tries a row has.
pub(super) const MAX_TRIES: i32 = 3;

/// The kinds of work, each with a table of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    /// In two stages, and enqueued by versions.
    Staged,
    /// Rows that succeed leave their table.
    Leaving,
    /// One row at a time, in the order of the keys: a row that waits holds up those behind it.
    Exclusive,
}

pub(super) const KINDS: [Kind; 4] = [Kind::Plain, Kind::Staged, Kind::Leaving, Kind::Exclusive];

/// When a row is due, as far as the model distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Never,
    Now,
    Later,
}

/// The content of the column for the last failure's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Said {
    Nothing,
    Stopped,
    Failure,
}

/// A change to a row, by the application's own SQL, an operator, or the handler of another row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    /// Inserts the row, or enqueues it anew by an ordinary update, with another plan.
    Enqueue,
    /// The same for later.
    EnqueueLater,
    /// The application's own SQL makes the row due by one column.
    SetNow,
    /// The application's own SQL sets its due time to null.
    SetNever,
    RetryNow,
    Postpone,
    PostponeIntoThePast,
    Stop,
    Restart,
    Rerun,
    Skip,
    Delete,
    /// Enqueues the row for a newer version.
    Newer,
    /// Enqueues the row for the version that it has.
    SameVersion,
}

const DEEDS: [Deed; 14] = [
    Deed::Enqueue,
    Deed::EnqueueLater,
    Deed::SetNow,
    Deed::SetNever,
    Deed::RetryNow,
    Deed::Postpone,
    Deed::PostponeIntoThePast,
    Deed::Stop,
    Deed::Restart,
    Deed::Rerun,
    Deed::Skip,
    Deed::Delete,
    Deed::Newer,
    Deed::SameVersion,
];

impl Deed {
    /// Returns any deed. One in three enqueues, so that there is work.
    pub(super) fn any(random: &mut Rng, kind: Kind) -> Self {
        let deed = if random.u8(..3) == 0 { Deed::Enqueue } else { DEEDS[random.usize(..DEEDS.len())] };
        match deed {
            Deed::Newer | Deed::SameVersion if kind != Kind::Staged => Deed::Enqueue,
            deed => deed,
        }
    }
}

/// The handler's answer for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Again,
    Skip,
    Delete,
    /// A failure that is retried hours later.
    Retry,
    Fatal,
    /// The handler makes its own row due at another time, and answers as if it had not.
    Meddle,
    /// From the first stage on to the second, and done there.
    Advance,
}

const ANSWERS: [Answer; 8] = [
    Answer::Done,
    Answer::Again,
    Answer::Skip,
    Answer::Delete,
    Answer::Retry,
    Answer::Fatal,
    Answer::Meddle,
    Answer::Advance,
];

impl Answer {
    /// Tells whether the effects of the handler are committed, with a line in the log of runs.
    pub(super) fn is_logged(self) -> bool {
        matches!(self, Answer::Done | Answer::Again | Answer::Skip | Answer::Delete | Answer::Advance)
    }

    pub(super) fn number(self) -> i64 {
        ANSWERS.iter().position(|answer| *answer == self).expect("it is one of them") as i64
    }

    pub(super) fn of(number: i64) -> Self {
        ANSWERS[usize::try_from(number).expect("it was written by us")]
    }
}

impl Deed {
    pub(super) fn number(self) -> i64 {
        DEEDS.iter().position(|deed| *deed == self).expect("it is one of them") as i64
    }

    pub(super) fn of(number: i64) -> Self {
        DEEDS[usize::try_from(number).expect("it was written by us")]
    }
}

/// The plan of a row's handler: its answer, and, in its first committed run, a deed to another row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) answer: Answer,
    pub(super) deed: Option<(Deed, i64)>,
}

impl Plan {
    pub(super) fn any(random: &mut Rng, kind: Kind, rows: i64) -> Self {
        let usual = if kind == Kind::Staged { Answer::Advance } else { Answer::Done };
        let answer = if random.bool() { usual } else { ANSWERS[random.usize(..ANSWERS.len())] };
        let answer = if answer == Answer::Advance { usual } else { answer };
        let deed = random.bool().then(|| (Deed::any(random, kind), random.i64(1..=rows)));
        // If a group is settled as a whole, a handler sees the rows before its own as they were claimed. `rerun` leaves
        // them alone, because they are not finished yet, and a newer version those that were skipped. All other deeds
        // write on them, and the fence shows that.
        let writes = |deed| !matches!(deed, Deed::Rerun | Deed::Newer | Deed::SameVersion);
        Plan { answer, deed: deed.filter(|(deed, _)| answer.is_logged() && writes(*deed)) }
    }
}

/// A row's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) status: Status,
    pub(super) due: Due,
    pub(super) tries: i32,
    pub(super) said: Said,
    /// Whether the row has reached the second stage.
    pub(super) is_advanced: bool,
    pub(super) plan: Plan,
}

impl Row {
    fn is_terminal(&self) -> bool {
        self.status.is_terminal()
    }

    fn anew(&mut self, due: Due) {
        (self.status, self.tries, self.due) = (Status::NotAttempted, 0, due);
    }

    /// Applies a deed. Returns whether it applied to the row. `None` is a deleted row.
    fn apply(mut self, deed: Deed, plan: Plan) -> (Option<Row>, bool) {
        let waits = self.due != Due::Never;
        let is = |statuses: &[Status]| statuses.contains(&self.status);
        let concerns = match deed {
            Deed::Enqueue | Deed::EnqueueLater | Deed::SetNow | Deed::SetNever | Deed::Delete => true,
            Deed::RetryNow => waits || is(&[Status::Failed]),
            Deed::Postpone | Deed::PostponeIntoThePast | Deed::Stop => waits,
            Deed::Restart => !waits && self.said != Said::Nothing && is(&[Status::NotAttempted, Status::Error]),
            Deed::Rerun => is(&[Status::Success, Status::Failed]),
            Deed::Skip => waits || !is(&[Status::Success, Status::Skipped]),
            Deed::Newer => !is(&[Status::Skipped]),
            Deed::SameVersion => false,
        };
        if !concerns {
            return (Some(self), false);
        }
        match deed {
            Deed::Enqueue => {
                self.anew(Due::Now);
                self.plan = plan;
            }
            Deed::EnqueueLater => {
                self.anew(Due::Later);
                self.plan = plan;
            }
            Deed::SetNow | Deed::PostponeIntoThePast | Deed::Restart => self.due = Due::Now,
            Deed::SetNever => self.due = Due::Never,
            Deed::RetryNow if waits => self.due = Due::Now,
            Deed::RetryNow => self.anew(Due::Now),
            Deed::Rerun => {
                self.anew(Due::Now);
                self.is_advanced = false;
            }
            Deed::Newer => {
                let is_stopped = !waits && self.said != Said::Nothing && !is(&[Status::Failed, Status::Skipped]);
                self.anew(if is_stopped { Due::Never } else { Due::Now });
                self.is_advanced = false;
            }
            Deed::Postpone => self.due = Due::Later,
            Deed::Stop => {
                if self.is_terminal() {
                    self.anew(Due::Never);
                }
                self.due = Due::Never;
                if self.said == Said::Nothing {
                    self.said = Said::Stopped;
                }
            }
            Deed::Skip => (self.status, self.due) = (Status::Skipped, Due::Never),
            Deed::Delete => return (None, true),
            Deed::SameVersion => {}
        }
        (Some(self), true)
    }

    fn next_try(&self) -> i32 {
        if self.is_terminal() { 1 } else { self.tries + 1 }
    }

    /// Returns the row after an attempt, if it is due.
    fn attempted(mut self, kind: Kind) -> Option<Row> {
        let tries = self.next_try();
        match self.plan.answer {
            Answer::Delete => return None,
            Answer::Advance if !self.is_advanced => {
                self.anew(Due::Now);
                (self.said, self.is_advanced) = (Said::Nothing, true);
            }
            Answer::Done | Answer::Advance if kind == Kind::Leaving => return None,
            Answer::Done | Answer::Advance => {
                (self.status, self.due, self.tries, self.said) = (Status::Success, Due::Never, tries, Said::Nothing)
            }
            Answer::Skip => {
                (self.status, self.due, self.tries, self.said) = (Status::Skipped, Due::Never, tries, Said::Nothing)
            }
            Answer::Again => {
                let status = if self.status == Status::Error { Status::Error } else { Status::NotAttempted };
                (self.status, self.due, self.tries) = (status, Due::Later, tries - 1);
            }
            Answer::Retry | Answer::Meddle if tries < MAX_TRIES => {
                (self.status, self.due, self.tries, self.said) = (Status::Error, Due::Later, tries, Said::Failure);
            }
            Answer::Retry | Answer::Meddle | Answer::Fatal => {
                (self.status, self.due, self.tries, self.said) = (Status::Failed, Due::Never, tries, Said::Failure);
            }
        }
        Some(self)
    }
}

/// A run in the log, in the order of the commits: the row, and the number of its try.
pub(super) type Run = (i64, i32);

/// All rows, each with its possible states. A failure leaves no line in the log, so nobody knows whether it came before
/// or after a neighbour's deed. When the workers are done, one state is left.
#[derive(Debug, Default)]
pub(super) struct Rows(BTreeMap<i64, Vec<Option<Row>>>);

impl Rows {
    /// Applies a deed to a row, and returns how many rows it applied to.
    pub(super) fn apply(&mut self, id: i64, deed: Deed, plan: Plan) -> usize {
        let states = self.0.entry(id).or_insert_with(|| vec![None]);
        let mut changed = 0;
        for state in states.iter_mut() {
            let (after, is_concerned) = match (*state, deed) {
                (Some(row), deed) => row.apply(deed, plan),
                (None, Deed::Enqueue | Deed::EnqueueLater) => {
                    let due = if deed == Deed::Enqueue { Due::Now } else { Due::Later };
                    let (status, said) = (Status::NotAttempted, Said::Nothing);
                    let row = Row { status, due, tries: 0, said, is_advanced: false, plan };
                    (Some(row), true)
                }
                (None, _) => (None, false),
            };
            *state = after;
            changed = changed.max(usize::from(is_concerned));
        }
        changed
    }

    /// Processes the due rows, as the log says.
    pub(super) fn run(&mut self, kind: Kind, runs: &[Run]) -> Result<(), String> {
        if kind == Kind::Exclusive {
            return self.run_in_order(runs);
        }
        self.fail(kind);
        for (id, try_number) in runs {
            let states = self.0.entry(*id).or_default();
            states.retain(|state| {
                state.is_some_and(|row| {
                    row.due == Due::Now && row.plan.answer.is_logged() && row.next_try() == *try_number
                })
            });
            let Some(Some(row)) = states.first().copied() else {
                return Err(format!("row {id} ran as try {try_number}, and was not due for that"));
            };
            states.iter_mut().for_each(|state| *state = state.and_then(|row| row.attempted(kind)));
            self.do_deed(*id, row);
            self.fail(kind);
        }
        for (id, states) in &mut self.0 {
            states.retain(|state| state.is_none_or(|row| row.due != Due::Now));
            if states.is_empty() {
                return Err(format!("row {id} is due, and did not run"));
            }
        }
        Ok(())
    }

    /// Processes the first pending row as long as it is due. It is known which one that is, so nothing is left open.
    fn run_in_order(&mut self, runs: &[Run]) -> Result<(), String> {
        let mut runs = runs.iter();
        loop {
            let pending =
                |states: &[Option<Row>]| states.first().copied().flatten().filter(|row| row.due != Due::Never);
            let first = self.0.iter().find_map(|(id, states)| Some((*id, pending(states)?)));
            let Some((id, row)) = first.filter(|(_, row)| row.due == Due::Now) else { break };
            if row.plan.answer.is_logged() {
                let (run, expected) = (runs.next(), (id, row.next_try()));
                if run != Some(&expected) {
                    return Err(format!("{expected:?} had to run, and {run:?} ran"));
                }
            }
            self.0.insert(id, vec![row.attempted(Kind::Exclusive)]);
            if row.plan.answer.is_logged() {
                self.do_deed(id, row);
            }
        }
        match runs.next() {
            Some(run) => Err(format!("{run:?} ran, and nothing had to")),
            None => Ok(()),
        }
    }

    /// Applies the deed of a row's handler, once: two rows that enqueue each other would go on for ever.
    fn do_deed(&mut self, id: i64, row: Row) {
        let Some((deed, other)) = row.plan.deed.filter(|(_, other)| *other != id) else { return };
        for state in self.0.get_mut(&id).into_iter().flatten().flatten() {
            state.plan.deed = None;
        }
        self.apply(other, deed, Plan { answer: Answer::Done, deed: None });
    }

    /// Adds the states of rows that may have failed by now.
    fn fail(&mut self, kind: Kind) {
        for states in self.0.values_mut() {
            let may_fail = |row: &Row| row.due == Due::Now && !row.plan.answer.is_logged();
            let failed: Vec<_> =
                states.iter().flatten().filter(|row| may_fail(row)).map(|row| row.attempted(kind)).collect();
            for state in failed {
                if !states.contains(&state) {
                    states.push(state);
                }
            }
        }
    }

    /// Compares with the table's rows, and removes the states that the rows are not in.
    pub(super) fn compare(&mut self, found: &BTreeMap<i64, Row>) -> Result<(), String> {
        for (id, states) in &mut self.0 {
            let found = found.get(id).copied();
            if !states.contains(&found) {
                return Err(format!("row {id} is {found:?}, and the model says {states:?}"));
            }
            *states = vec![found];
        }
        match found.keys().find(|id| !self.0.contains_key(id)) {
            Some(id) => Err(format!("row {id} is none of the model's")),
            None => Ok(()),
        }
    }
}
