//! The operations as a table: which rows each of them takes, by their queue state, and how it changes them. A call and
//! its dry run read the same table, so they cannot differ.

use std::time::Duration;

use crate::row::{ErrorText, Instant, OnFinish, Options, Status};
use crate::statement::{Change, Next, StateCondition, finished};

/// The text that marks a row that was stopped before any attempt failed. It tells such a row from one that was never
/// enqueued, which [`restart`] must leave alone.
const STOPPED: &str = crate::row::STOPPED;

/// The pending rows that no worker holds under a lease. An operator who wants a row to run now must not bring the end
/// of its lease forward.
const PENDING_AND_FREE: [StateCondition; 2] = [StateCondition::Pending, StateCondition::NotLeased];

const DUE_NOW: Next = Next::In(Duration::ZERO);

/// Kinds of rows, each with its effect, in the order in which they are taken. The kinds do not overlap when their turn
/// comes: each effect takes its rows out of the kinds that follow.
#[derive(Debug)]
pub(crate) struct Operation<E>(pub(crate) Vec<(Vec<StateCondition>, E)>);

/// What happens to a row.
pub(crate) enum Effect {
    Changes(Change),
    Removes,
    Sets(i32),
    MovesTo(&'static str),
    MovesBack(Change),
}

/// The effect that removes the rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Removal;

impl<E> Operation<E> {
    /// Returns the states of the rows: one of these kinds.
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
    let later = Change { next: Some(Next::At(time)), ..Change::default() };
    let of = |status| [&PENDING_AND_FREE[..], &[status]].concat();
    // With a later time, a row whose lease has ended would look leased again.
    let given_back = Change { status: Some(Status::Error), ..later.clone() };
    let leased = &[Status::InProgress];
    Operation(vec![(of(StateCondition::NotIn(leased)), later), (of(StateCondition::In(leased)), given_back)])
}

pub(crate) fn stop(options: &Options) -> Operation<Change> {
    let stop = Change { next: Some(Next::Never), ..Change::default() };
    // A finished row that is pending was made due by the application's own SQL. It is enqueued anew, and would look
    // finished without a next attempt time. A row that waits for the next run on its schedule has the status of the
    // last one.
    let finished: &[_] = match options.periodic {
        Some(_) => &[Status::Failed, Status::Skipped],
        None => &[Status::Success, Status::Failed, Status::Skipped],
    };
    let stop_anew = Change { status: Some(Status::NotAttempted), try_count: Some(0), ..stop.clone() };
    // An exclusive row without the end of its lease would not keep the next row from running beside it.
    let pending = of_free_rows(options, StateCondition::Pending);
    let kinds =
        [(vec![StateCondition::In(finished)], stop_anew), (Vec::new(), stop)].into_iter().flat_map(|(of, change)| {
            let kind = [&pending[..], &of].concat();
            let mark = Change { error: ErrorText::Set(STOPPED.to_owned()), ..change.clone() };
            [([&kind[..], &[StateCondition::WithoutErrorText]].concat(), mark), (kind, change)]
        });
    Operation(kinds.collect())
}

/// Picks rows in this state. For an exclusive entity it leaves out rows that a worker holds under a lease: the next row
/// would run beside them.
fn of_free_rows(options: &Options, state: StateCondition) -> Vec<StateCondition> {
    match options.exclusive {
        true => vec![state, StateCondition::NotLeased],
        false => vec![state],
    }
}

pub(crate) fn restart(lease: Duration, options: &Options) -> Operation<Change> {
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
    // A row that is done but pending is to run again: by its schedule, or by the application's own SQL.
    kinds.push((vec![StateCondition::In(&[Status::Success, Status::Skipped]), StateCondition::Pending], skip()));
    if options.periodic.is_some() {
        let stopped =
            [StateCondition::In(&[Status::Success]), StateCondition::NotPending, StateCondition::WithErrorText];
        kinds.push((stopped.to_vec(), skip()));
    }
    Operation(kinds)
}

/// Makes rows due as they were before an attempt that had so many tries before it.
pub(crate) fn attempt_again(tries: i32) -> Operation<Change> {
    let again = match tries {
        0 => Change { error: ErrorText::Clear, ..anew() },
        tries => Change { status: Some(Status::Error), try_count: Some(tries), ..anew() },
    };
    Operation(vec![(vec![StateCondition::NotLeased], again)])
}

/// Skipped rows keep their priority, as they keep everything in the other changes.
pub(crate) fn set_priority(priority: i32) -> Operation<i32> {
    Operation(vec![(vec![StateCondition::NotIn(&[Status::Skipped])], priority)])
}

pub(crate) fn delete(options: &Options) -> Operation<Removal> {
    let states = if options.exclusive { vec![StateCondition::NotLeased] } else { Vec::new() };
    Operation(vec![(states, Removal)])
}

pub(crate) fn purge(older_than: Duration) -> Operation<Removal> {
    let finished = |of| (finished(of, older_than), Removal);
    Operation(vec![finished(&[Status::Failed, Status::Skipped]), finished(&[Status::Success])])
}

/// The text on a row that an operator stopped tells it from a row that was never enqueued.
pub(crate) fn enqueue_existing() -> Operation<Change> {
    let never = vec![
        StateCondition::In(&[Status::NotAttempted]),
        StateCondition::NotPending,
        StateCondition::WithoutErrorText,
        StateCondition::NeverAttempted,
    ];
    Operation(vec![(never, anew())])
}

/// Each row goes to the archive that the entity names for its status.
pub(crate) fn archive(options: &Options) -> Operation<&'static str> {
    let mut kinds = Vec::new();
    for (status, on_finish) in [(&[Status::Success], options.on_success), (&[Status::Failed], options.on_failure)] {
        if let OnFinish::Archive(name) = on_finish {
            kinds.push((vec![StateCondition::In(status), StateCondition::NotPending], name));
        }
    }
    Operation(kinds)
}

/// Enqueues a row anew, beginning with the first stage.
fn from_first_stage(options: &Options) -> Change {
    match options.stages.and_then(|stages| stages.names.first().copied()) {
        Some(first) => Change { next: Some(Next::InStage(first)), ..anew() },
        None => anew(),
    }
}

/// The rows are those of an archive, which may contain both, and the change applies to them in the queue. A failed row is
/// retried; a successful one is done once more from its first stage, which is a new occasion.
pub(crate) fn redrive(succeeded: bool, options: &Options) -> Operation<Change> {
    let (of, change): (&[_], _) = match succeeded {
        true => (&[Status::Success], Change { next_occasion: true, ..from_first_stage(options) }),
        false => (&[Status::Failed], anew()),
    };
    Operation(vec![(vec![StateCondition::In(of)], change)])
}

/// Enqueues a row anew: due at once, with its tries counted from the start.
pub(crate) fn anew() -> Change {
    Change { status: Some(Status::NotAttempted), next: Some(DUE_NOW), try_count: Some(0), ..Change::default() }
}
