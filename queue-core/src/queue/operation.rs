//! The operations as a table: which rows each of them takes, by their queue state, and what it makes of them. A call and
//! its dry run read the same table, so they cannot differ.

use std::time::Duration;

use crate::row::{ErrorText, Instant, OnFinish, Options, Status};
use crate::statement::{Change, Next, StateCondition};

/// The text that marks a row which was stopped before any attempt failed. It tells such a row from one that was never
/// enqueued, which [`resume`] must leave alone.
const STOPPED: &str = crate::row::STOPPED;

/// The pending rows that no worker holds under a lease: its end must not come earlier because an operator wants the row to
/// run now.
const PENDING_AND_FREE: [StateCondition; 2] = [StateCondition::Pending, StateCondition::NotLeased];

const DUE_NOW: Next = Next::In(Duration::ZERO);

/// Kinds of rows, each with what becomes of it, in the order in which they are taken. The kinds do not overlap when
/// their turn comes: each effect takes its rows out of the kinds that follow.
#[derive(Debug)]
pub(crate) struct Operation<E>(pub(crate) Vec<(Vec<StateCondition>, E)>);

/// That the rows are removed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Removal;

impl<E> Operation<E> {
    /// The states of the rows: one of these kinds.
    pub(crate) fn kinds(&self) -> Vec<Vec<StateCondition>> {
        self.0.iter().map(|(states, _)| states.clone()).collect()
    }
}

pub(crate) fn retry_now() -> Operation<Change> {
    let failed = [StateCondition::In(&[Status::Failed]), StateCondition::NotPending];
    Operation(vec![
        (PENDING_AND_FREE.to_vec(), Change { next: Some(DUE_NOW), ..Change::default() }),
        (failed.to_vec(), anew()),
    ])
}

pub(crate) fn postpone_until(time: Instant) -> Operation<Change> {
    Operation(vec![(PENDING_AND_FREE.to_vec(), Change { next: Some(Next::At(time)), ..Change::default() })])
}

pub(crate) fn stop(options: &Options) -> Operation<Change> {
    let stop = Change { next: Some(Next::Never), ..Change::default() };
    // A finished row that is pending was made due by the application's own SQL: it is enqueued anew, and would look finished
    // once it has no time. A row that waits for the next run on its schedule has the status of the last one.
    let finished: &[_] = match options.periodic {
        Some(_) => &[Status::Failed, Status::Skipped],
        None => &[Status::Success, Status::Failed, Status::Skipped],
    };
    let stop_anew = Change { status: Some(Status::NotAttempted), try_count: Some(0), ..stop.clone() };
    // A row without a lease's end would not keep the next one from being worked beside it.
    let pending = of_free_rows(options, StateCondition::Pending);
    let kinds =
        [(vec![StateCondition::In(finished)], stop_anew), (Vec::new(), stop)].into_iter().flat_map(|(of, change)| {
            let kind = [&pending[..], &of].concat();
            let mark = Change { error: ErrorText::Set(STOPPED.to_owned()), ..change.clone() };
            [([&kind[..], &[StateCondition::WithoutErrorText]].concat(), mark), (kind, change)]
        });
    Operation(kinds.collect())
}

/// Rows in this state, but, where one message is worked at a time, none that a worker holds under a lease: the next one would
/// be worked beside it.
fn of_free_rows(options: &Options, state: StateCondition) -> Vec<StateCondition> {
    match options.exclusive {
        true => vec![state, StateCondition::NotLeased],
        false => vec![state],
    }
}

pub(crate) fn resume(lease: Duration, options: &Options) -> Operation<Change> {
    let stopped = |status| vec![StateCondition::NotPending, StateCondition::WithErrorText, StateCondition::In(status)];
    let due = |next| Change { next: Some(next), ..Change::default() };
    // A row that waits for the next run on its schedule has the status of the last one.
    let waiting: &[_] = match options.periodic {
        Some(_) => &[Status::NotAttempted, Status::Error, Status::Success],
        None => &[Status::NotAttempted, Status::Error],
    };
    Operation(vec![(stopped(waiting), due(DUE_NOW)), (stopped(&[Status::InProgress]), due(Next::In(lease)))])
}

pub(crate) fn rerun(options: &Options) -> Operation<Change> {
    let rerun = Change { next_occasion: true, ..from_first_stage(options) };
    Operation(vec![(vec![StateCondition::In(&[Status::Success, Status::Failed])], rerun)])
}

pub(crate) fn skip(options: &Options) -> Operation<Change> {
    let skip =
        || Change { status: Some(Status::Skipped), next: Some(Next::Never), next_occasion: true, ..Change::default() };
    let mut kinds = vec![(of_free_rows(options, StateCondition::NotIn(&[Status::Success, Status::Skipped])), skip())];
    // What is done but pending is to be done again: by its schedule, or by the application's own SQL.
    kinds.push((vec![StateCondition::In(&[Status::Success, Status::Skipped]), StateCondition::Pending], skip()));
    if options.periodic.is_some() {
        let stopped =
            [StateCondition::In(&[Status::Success]), StateCondition::NotPending, StateCondition::WithErrorText];
        kinds.push((stopped.to_vec(), skip()));
    }
    Operation(kinds)
}

/// Skipped rows are left as they are, as by every other change.
pub(crate) fn set_priority(priority: i32) -> Operation<i32> {
    Operation(vec![(vec![StateCondition::NotIn(&[Status::Skipped])], priority)])
}

pub(crate) fn delete(options: &Options) -> Operation<Removal> {
    let states = if options.exclusive { vec![StateCondition::NotLeased] } else { Vec::new() };
    Operation(vec![(states, Removal)])
}

pub(crate) fn purge(older_than: Duration) -> Operation<Removal> {
    let finished = |status| vec![status, StateCondition::NotPending, StateCondition::AttemptedBefore(older_than)];
    let mut successes = finished(StateCondition::In(&[Status::Success]));
    // A success bears no text, unless its schedule was stopped.
    successes.push(StateCondition::WithoutErrorText);
    Operation(vec![(finished(StateCondition::In(&[Status::Failed, Status::Skipped])), Removal), (successes, Removal)])
}

/// Rows that were never enqueued are told from those that an operator stopped by the text that those bear.
pub(crate) fn enqueue_existing() -> Operation<Change> {
    let never = vec![
        StateCondition::In(&[Status::NotAttempted]),
        StateCondition::NotPending,
        StateCondition::WithoutErrorText,
        StateCondition::NeverAttempted,
    ];
    Operation(vec![(never, anew())])
}

/// Each row goes to the archive that the entity names for its end.
pub(crate) fn archive(options: &Options) -> Operation<&'static str> {
    let mut kinds = Vec::new();
    for (status, on_finish) in [(&[Status::Success], options.on_success), (&[Status::Failed], options.on_failure)] {
        if let OnFinish::Archive(name) = on_finish {
            kinds.push((vec![StateCondition::In(status), StateCondition::NotPending], name));
        }
    }
    Operation(kinds)
}

/// A new enqueueing that begins with the first stage again.
fn from_first_stage(options: &Options) -> Change {
    match options.stages.and_then(|stages| stages.names.first().copied()) {
        Some(first) => Change { next: Some(Next::InStage(first)), ..anew() },
        None => anew(),
    }
}

/// The rows are those of an archive; this is what they become in the queue. What has
/// failed is retried; what has succeeded is done once more, which is another occasion.
pub(crate) fn redrive(succeeded: bool) -> Operation<Change> {
    Operation(vec![(Vec::new(), Change { next_occasion: succeeded, ..anew() })])
}

/// A new enqueueing: due at once, with tries from the start.
pub(crate) fn anew() -> Change {
    Change { status: Some(Status::NotAttempted), next: Some(DUE_NOW), try_count: Some(0), ..Change::default() }
}
