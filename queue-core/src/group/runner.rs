//! One entity in group mode inside a poller: a turn takes a group, whose size follows the backlog.

use std::time::Instant;

use diesel::result::QueryResult;

use super::body::GroupBody;
use super::end::{DecidedRow, GroupEnd, GroupRow, HeldGroup, Offender, Reservation, Undone, WorkedGroup};
use super::group::work_group;
use super::recover::settle_if_committed;
use super::reread::Rereading;
use crate::attempt::{
    AnyQueue, ErasedRow, InDoubt, Rest, Runner, Size, Slot, Tally, TransactionRunner, Turn, UnsettledRow, WorkerCalls,
};
use crate::backend::{QueueConnection, RoundTrips, Session, SessionHolder};
use crate::claim::{PickedRows, Places};
use crate::entity::Key;
use crate::error::Finding;
use crate::event::Watch;
use crate::lock::Mutex;
use crate::row::{Options, Settlement, failure_text};
use crate::statement::Next;

/// An entity whose messages share transactions. A message that runs alone is attempted as in transaction mode.
pub(crate) struct GroupRunner<K: Key, C: QueueConnection> {
    runner: TransactionRunner<K, C>,
    handler: Box<dyn GroupBody<C>>,
    size: Mutex<Size>,
    rereading: Rereading,
}

impl<K: Key, C: QueueConnection> GroupRunner<K, C> {
    pub(crate) fn new(runner: TransactionRunner<K, C>, handler: Box<dyn GroupBody<C>>) -> Self {
        let settings = &runner.rules.settings;
        let most = if settings.optimistic { settings.group } else { settings.group.min(C::Backend::MOST_SAVEPOINTS) };
        GroupRunner { size: Mutex::new(Size::new(1, most)), rereading: Rereading::new(), runner, handler }
    }

    /// Attempts one message as in transaction mode.
    fn turn_alone(&self, holder: &mut SessionHolder<C>, slot: &Slot, worker: &dyn WorkerCalls) -> Turn {
        let turn = self.runner.turn(holder, slot, worker);
        match turn {
            Turn::Idle => self.size.lock().note_idle(),
            Turn::Settled(settled) if settled.is_failure() => self.size.lock().note_failure(1),
            Turn::Settled(_) => self.size.lock().note_claim(1, 1),
            // Such a message says nothing about groups.
            _ => {}
        }
        turn
    }

    /// Attempts a group of these rows. `None`: the claim found none of the rows that were known to be due.
    fn attempt_several(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        worker: &dyn WorkerCalls,
        size: u32,
        rows: &PickedRows<'_, K>,
    ) -> Option<Turn> {
        let places = self.runner.due_rows.places.as_ref().map(Places::hold);
        let plan = self.runner.plan(slot, false, rows, places.as_ref());
        let grouped = match holder.session_as_it_is() {
            Ok(session) => {
                let grouped = work_group(session, &plan, &*self.handler, size, worker, &self.rereading);
                let is_left = places.as_ref().is_none_or(|places| places.leave(&mut **session).is_ok());
                WorkedGroup { session_is_sound: grouped.session_is_sound && is_left, ..grouped }
            }
            Err(error) => {
                self.runner.warn(&failure_text(&error, 500));
                return Some(Turn::Trouble);
            }
        };
        let is_idle = matches!(grouped.end, GroupEnd::Idle) && grouped.session_is_sound;
        if is_idle && self.runner.has_found_none(rows) {
            return None;
        }
        if !grouped.session_is_sound {
            holder.close();
        }
        if grouped.given_up {
            return Some(Turn::GivenUp);
        }
        if let Some(remark) = &grouped.remark {
            self.runner.warn(remark);
        }
        if matches!(grouped.end, GroupEnd::Undone(Undone::RowsChanged(_))) {
            self.rereading.is_needed();
        }
        if !matches!(grouped.end, GroupEnd::Settled(_) | GroupEnd::Idle) {
            // Its rows run next, one by one.
            self.runner.prefetched_keys.forget();
        }
        // If the group was closed early, some rows were given back.
        if matches!(&grouped.end, GroupEnd::Settled(rows) if rows.len() == grouped.claimed) {
            rows.claim_floor.keep();
        }
        learn(&mut self.size.lock(), &grouped, size);
        Some(self.conclude(holder, grouped.end, grouped.begun))
    }

    /// Does what is left after a group, and counts the results of its rows.
    fn conclude(&self, holder: &mut SessionHolder<C>, end: GroupEnd<K>, begun: usize) -> Turn {
        let mut tally = Tally::default();
        let interrupted = u64::try_from(begun).unwrap_or(u64::MAX);
        match end {
            GroupEnd::Idle => return Turn::Idle,
            GroupEnd::NotClaimed(error) => return self.runner.has_no_claim(holder, &error.into()),
            GroupEnd::Settled(rows) => self.count(&mut tally, &rows),
            GroupEnd::Undone(Undone::Conflict(cause)) => {
                let what = "a group was interrupted, its messages run one by one for a while";
                self.runner.warn(&format!("{what}: {cause}"));
                tally.interrupted = interrupted;
            }
            GroupEnd::Undone(Undone::Alone(cause) | Undone::RowsChanged(cause)) => {
                let cause = self.runner.redacted(&cause);
                tracing::debug!(
                    entity = self.runner.queue.sql.entity,
                    cause,
                    "the worker undid a group; its messages run one by one"
                );
            }
            GroupEnd::Undone(Undone::Shutdown) => tally.interrupted = interrupted,
            GroupEnd::EndedByHandler { reservation, before, offender, after } => {
                self.after_end(holder, reservation, before, *offender, after, &mut tally);
            }
            GroupEnd::EndedByUnknown { reservation, rows, after, why } => {
                let left: Vec<_> = after.iter().collect();
                match (reservation.and_then(|reservation| self.committed(holder, &reservation, &rows, &left)), why) {
                    (Some(settled), _) => self.count_committed(&mut tally, &rows, settled),
                    // Also if nothing can be found out: committed rows are reserved for a while, so rows that are due
                    // were not committed.
                    (None, Some(why)) => return self.conclude(holder, GroupEnd::Undone(why), begun),
                    // Each row is recorded in a transaction of its own.
                    (None, None) => rows.into_iter().for_each(|row| {
                        let (unsettled, change) = (row.unsettled(), Box::new(row.change));
                        let rest = Rest::Record(row.settled, change);
                        tally.count(self.runner.conclude(holder, unsettled, rest, &row.watch));
                    }),
                }
            }
            GroupEnd::Unknown(rows, cause) => self.find_out(holder, rows, cause, &mut tally),
        }
        Turn::Group(tally)
    }

    fn count(&self, tally: &mut Tally, rows: &[DecidedRow<K>]) {
        self.count_committed(tally, rows, rows.iter().map(|row| Some(row.settled)));
    }

    /// Does what is left after a group whose transaction the offender may have ended: the other rows come first.
    fn after_end(
        &self,
        holder: &mut SessionHolder<C>,
        reservation: Option<Reservation>,
        before: Vec<DecidedRow<K>>,
        offender: Offender<K>,
        after: Vec<GroupRow<K>>,
        tally: &mut Tally,
    ) {
        let Offender { row, mut rest } = offender;
        let is_recorded = matches!(rest, Rest::Record(..));
        // An offender that is not recorded runs again, like the rows that were not handled.
        let left: Vec<_> = after.iter().chain((!is_recorded).then_some(&row)).collect();
        let mut fence = row.fence;
        if let Some(reservation) = reservation {
            match self.committed(holder, &reservation, &before, &left) {
                Some(settled) => {
                    self.count_committed(tally, &before, settled);
                    if let Rest::Record(state, change) = rest {
                        fence = reservation.fence(fence);
                        rest = Rest::RecordReserved(state, change);
                    }
                }
                None => before.iter().for_each(|_| tally.count(Turn::Interrupted)),
            }
        } else {
            // The rows that were not written are as they were, and due.
            let (written, others): (Vec<_>, Vec<_>) = before.into_iter().partition(|row| row.written);
            let why = match &rest {
                Rest::Leave => "the poller took the transaction away",
                _ => rest.cause().unwrap_or("a handler has ended its group's transaction"),
            };
            self.find_out(holder, written, why.to_owned(), tally);
            others.iter().for_each(|_| tally.count(Turn::Interrupted));
        }
        let watch = row.watch.clone();
        let row = UnsettledRow { fence, ..row.into_unsettled() };
        tally.count(self.runner.conclude(holder, row, rest, &watch));
    }

    /// Finds out whether a transaction that a handler ended was committed. If it was, it settles the rows. `None`: it was
    /// not, or that cannot be found out.
    fn committed(
        &self,
        holder: &mut SessionHolder<C>,
        reservation: &Reservation,
        handled: &[DecidedRow<K>],
        left: &[&GroupRow<K>],
    ) -> Option<Vec<Option<Settlement>>> {
        let settle =
            |session: &mut Session<C>| settle_if_committed(self.runner.queue, session, reservation, handled, left);
        self.runner.insist(holder, "the end of a group cannot be found out", settle).flatten()
    }

    fn count_committed(
        &self,
        tally: &mut Tally,
        rows: &[DecidedRow<K>],
        settled: impl IntoIterator<Item = Option<Settlement>>,
    ) {
        for (row, settled) in rows.iter().zip(settled) {
            self.runner.due_rows.is_written(&row.key);
            if let Some(settled) = settled {
                self.runner.rules.teller.settled(&row.key, settled, &row.change, &row.watch);
            } else {
                let what = "was changed by another session after a handler of its group had committed its effects";
                self.runner.warn(&format!("row {} {what}", row.key));
            }
            tally.count(settled.map_or(Turn::Interrupted, Turn::Settled));
        }
    }

    /// Finds out the result of a COMMIT whose answer was lost. Nothing has to be written: all rows have reached their
    /// new state, or all are as they were and due. So one of them shows it for all.
    fn find_out(&self, holder: &mut SessionHolder<C>, rows: Vec<DecidedRow<K>>, cause: String, tally: &mut Tally) {
        let options = *self.runner.queue.sql.options;
        let committed = witness(&rows, &options).is_some_and(|row| {
            let reached = row.reached(&options);
            let (settled, since) = (row.settled, Instant::now());
            let rest = Rest::FindOut(Box::new(InDoubt { settled, reached, cause, since, change: None }));
            // Its end is told with that of the others.
            matches!(self.runner.conclude(holder, row.unsettled(), rest, &Watch::default()), Turn::Settled(_))
        });
        if committed {
            return self.count(tally, &rows);
        }
        rows.iter().for_each(|_| tally.count(Turn::Interrupted));
    }
}

/// Returns the row that shows whether its group was committed. A row that is not due again is best, because nobody has
/// processed it meanwhile.
fn witness<'a, K>(rows: &'a [DecidedRow<K>], options: &Options) -> Option<&'a DecidedRow<K>> {
    let moved = rows.iter().filter(|row| row.reached(options).is_none_or(|reached| !reached.reads_as(row.fence)));
    moved.max_by_key(|row| row.change.next == Some(Next::Never))
}

/// Sets the size of the next group by the end of this one, which was to have this size.
fn learn<K>(next: &mut Size, grouped: &WorkedGroup<K>, size: u32) {
    let number = |rows: usize| u32::try_from(rows).unwrap_or(u32::MAX);
    match &grouped.end {
        GroupEnd::Idle => next.note_idle(),
        GroupEnd::NotClaimed(_) => {}
        GroupEnd::Settled(rows) if rows.iter().any(|row| row.settled.is_failure()) => next.note_failure(size),
        // A group that was closed early is as large as it should be.
        GroupEnd::Settled(rows) => next.note_claim(number(rows.len()), size),
        GroupEnd::Undone(Undone::Conflict(_))
        | GroupEnd::Unknown(..)
        | GroupEnd::EndedByUnknown { why: Some(Undone::Conflict(_)), .. } => next.note_conflict(Instant::now()),
        GroupEnd::EndedByHandler { offender, .. } if matches!(offender.rest, Rest::Postpone(_)) => {
            next.note_conflict(Instant::now());
        }
        GroupEnd::Undone(_) | GroupEnd::EndedByHandler { .. } | GroupEnd::EndedByUnknown { .. } => {
            next.note_undone(number(grouped.claimed));
        }
    }
}

impl<K: Key, C: QueueConnection> Runner<C> for GroupRunner<K, C> {
    fn served(&self) -> &dyn AnyQueue<C> {
        self.runner.served()
    }

    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>> {
        self.runner.check(connection)
    }

    fn turn(&self, holder: &mut SessionHolder<C>, slot: &Slot, worker: &dyn WorkerCalls) -> Turn {
        let size = self.size.lock().next(Instant::now());
        // A worker that is alone in the process is so for a suspect, and nobody else runs meanwhile.
        if size <= 1 || slot.recorder().is_strict() || slot.recorder().is_alone() {
            return self.turn_alone(holder, slot, worker);
        }
        loop {
            let rows = match self.runner.pick_rows(holder, size) {
                Ok(Some(rows)) => rows,
                Ok(None) => return Turn::Idle,
                Err(turn) => return turn,
            };
            if let Some(turn) = self.attempt_several(holder, slot, worker, size, &rows) {
                return turn;
            }
        }
    }

    fn give_up(&self, holder: &mut SessionHolder<C>, slot: &Slot, row: ErasedRow) -> Turn {
        let group = match row.downcast::<HeldGroup>() {
            Ok(group) => group,
            Err(row) => return self.runner.give_up(holder, slot, row),
        };
        // The messages run alone next, which shows whose handler was late.
        self.size.lock().note_undone(u32::try_from(group.claimed).unwrap_or(u32::MAX));
        self.runner.prefetched_keys.forget();
        Turn::Interrupted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::row::Status;
    use crate::row::{Fence, RowKey};
    use crate::statement::Change;

    fn decided(key: u32, settled: Settlement, status: Status, next: Next) -> DecidedRow<u32> {
        let change = Change { status: Some(status), try_count: Some(1), next: Some(next), ..Change::default() };
        DecidedRow {
            key: RowKey::new(key, key.to_string()),
            fence: Fence::new(Status::NotAttempted, 0),
            settled,
            change,
            written: false,
            watch: Watch::default(),
        }
    }

    #[test]
    fn a_row_that_somebody_may_have_worked_meanwhile_does_not_tell_for_its_group() {
        let retried = decided(1, Settlement::Retried, Status::Error, Next::In(Duration::ZERO));
        let succeeded = decided(2, Settlement::Succeeded, Status::Success, Next::Never);
        let again = DecidedRow {
            change: Change::default(),
            ..decided(3, Settlement::Again, Status::NotAttempted, Next::In(Duration::ZERO))
        };
        let key_of = |rows: &[DecidedRow<u32>]| witness(rows, &Options::NONE).map(|row| *row.key);
        let rows = [retried, succeeded, again];
        assert_eq!(key_of(&rows), Some(2));
        assert_eq!(key_of(&rows[..1]), Some(1));
        // It looks the same before and after.
        assert_eq!(key_of(&rows[2..]), None);
    }
}
