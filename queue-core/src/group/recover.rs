//! Does what is left after a group, and counts the results of its rows.
//!
//! If a handler has ended the group's transaction, the handlers before it did not end it, and the group's reservation shows
//! whether their effects are committed.

use std::time::Instant;

use diesel::result::QueryResult;

use super::group::{GroupEnd, WorkedGroup};
use super::runner::GroupRunner;
use crate::attempt::{InDoubt, NewState, Rest, Tally, Turn, UnsettledRow, in_transaction};
use crate::backend::{ErrorClass, QueueConnection, Session, SessionHolder};
use crate::batch::{BatchEnd, BatchRow, DecidedRow, Reservation, Undone, witness};
use crate::entity::Key;
use crate::event::Watch;
use crate::row::{Fence, RowKey, Settlement, Status};
use crate::statement::{Change, ErasedQueue};

impl<K: Key, C: QueueConnection> GroupRunner<'_, K, C> {
    /// Does what is left after a group, and counts the results of its rows.
    pub(super) fn conclude(&self, holder: &mut SessionHolder<C>, group: WorkedGroup<K>) -> Turn {
        let WorkedGroup { end, reservation, after, begun, .. } = group;
        match end {
            GroupEnd::Idle => Turn::Idle,
            GroupEnd::NotClaimed(error) => self.runner.served.end_unclaimed(holder, &error.into()),
            GroupEnd::Worked(end) => self.conclude_batch(holder, end, (reservation, after), begun),
        }
    }

    fn conclude_batch(
        &self,
        holder: &mut SessionHolder<C>,
        end: BatchEnd<K>,
        (reservation, after): (Option<Reservation>, Vec<BatchRow<K>>),
        begun: usize,
    ) -> Turn {
        let mut tally = Tally::default();
        let interrupted = u64::try_from(begun).unwrap_or(u64::MAX);
        match end {
            BatchEnd::Settled(rows) => self.count(&mut tally, &rows),
            BatchEnd::Undone(Undone::Conflict(cause)) => {
                let what = "a group was interrupted, its messages run one by one for a while";
                self.runner.served.warn(&format!("{what}: {cause}"));
                tally.interrupted = interrupted;
            }
            BatchEnd::Undone(Undone::Alone(cause) | Undone::RowsChanged(cause)) => {
                let cause = self.runner.served.redacted(&cause);
                tracing::debug!(
                    entity = self.runner.served.queue.sql.entity,
                    cause,
                    "the worker undid a group; its messages run one by one"
                );
            }
            BatchEnd::Undone(Undone::Shutdown) => tally.interrupted = interrupted,
            BatchEnd::EndedByHandler { before, offender } => {
                self.after_end(holder, reservation, before, *offender, after, &mut tally);
            }
            BatchEnd::EndedByUnknown { rows, why } => {
                let left: Vec<_> = after.iter().collect();
                match (reservation.and_then(|reservation| self.committed(holder, &reservation, &rows, &left)), why) {
                    (Some(settled), _) => self.count_committed(&mut tally, &rows, settled),
                    // Also if nothing can be found out: committed rows are reserved for a while, so rows that are due
                    // were not committed.
                    (None, Some(why)) => {
                        return self.conclude_batch(holder, BatchEnd::Undone(why), (None, after), begun);
                    }
                    // Each row is recorded in a transaction of its own.
                    (None, None) => rows.into_iter().for_each(|row| {
                        let unsettled = row.unsettled();
                        let rest = Rest::record(row.new);
                        tally.count(self.runner.served.conclude(holder, unsettled, rest));
                    }),
                }
            }
            BatchEnd::Unknown(rows, cause) => self.find_out(holder, rows, cause, &mut tally),
        }
        Turn::Group(tally)
    }

    fn count(&self, tally: &mut Tally, rows: &[DecidedRow<K>]) {
        self.count_committed(tally, rows, rows.iter().map(|row| Some(row.new.settled)));
    }

    /// Does what is left after a group whose transaction the offender may have ended: the other rows come first.
    fn after_end(
        &self,
        holder: &mut SessionHolder<C>,
        reservation: Option<Reservation>,
        before: Vec<DecidedRow<K>>,
        (row, mut rest): (BatchRow<K>, Rest),
        after: Vec<BatchRow<K>>,
        tally: &mut Tally,
    ) {
        let is_recorded = matches!(rest, Rest::Record(..));
        // An offender that is not recorded runs again, like the rows that were not handled.
        let left: Vec<_> = after.iter().chain((!is_recorded).then_some(&row)).collect();
        let mut fence = row.fence;
        if let Some(reservation) = reservation {
            match self.committed(holder, &reservation, &before, &left) {
                Some(settled) => {
                    self.count_committed(tally, &before, settled);
                    if let Rest::Record(new) = rest {
                        fence = reservation.fence(fence);
                        rest = Rest::RecordReserved(new);
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
        let row = UnsettledRow { fence, ..row.into_unsettled() };
        tally.count(self.runner.served.conclude(holder, row, rest));
    }

    /// Finds out whether a transaction that a handler ended was committed. If it was, it settles the rows. `None`: it was
    /// not, or that cannot be found out.
    fn committed(
        &self,
        holder: &mut SessionHolder<C>,
        reservation: &Reservation,
        handled: &[DecidedRow<K>],
        left: &[&BatchRow<K>],
    ) -> Option<Vec<Option<Settlement>>> {
        let settle = |session: &mut Session<C>| {
            settle_if_committed(self.runner.served.queue, session, reservation, handled, left)
        };
        self.runner.served.insist(holder, "the end of a group cannot be found out", settle).flatten()
    }

    fn count_committed(
        &self,
        tally: &mut Tally,
        rows: &[DecidedRow<K>],
        settled: impl IntoIterator<Item = Option<Settlement>>,
    ) {
        for (row, settled) in rows.iter().zip(settled) {
            self.runner.served.due_rows.end(&row.key);
            if settled.is_some() {
                self.runner.served.rules.teller.tell_settled(&row.key, &row.new, &row.watch);
            } else {
                let what = "was changed by another session after a handler of its group had committed its effects";
                self.runner.served.warn(&format!("row {} {what}", row.key));
            }
            tally.count(settled.map_or(Turn::Interrupted, Turn::Settled));
        }
    }

    /// Finds out the result of a COMMIT whose answer was lost. Nothing has to be written: all rows have reached their
    /// new state, or all are as they were and due. So one of them shows it for all.
    fn find_out(&self, holder: &mut SessionHolder<C>, rows: Vec<DecidedRow<K>>, cause: String, tally: &mut Tally) {
        let options = *self.runner.served.queue.sql.options;
        let committed = witness(rows.iter(), &options).is_some_and(|place| {
            let row = &rows[place];
            let (new, reached, since) = (row.new.clone(), row.reached(&options), Instant::now());
            // Its end is told with that of the others.
            let rest = Rest::FindOut(Box::new(InDoubt { new, reached, cause, since, is_told_by_caller: true }));
            let row = UnsettledRow { watch: Watch::default(), ..row.unsettled() };
            matches!(self.runner.served.conclude(holder, row, rest), Turn::Settled(_))
        });
        if committed {
            return self.count(tally, &rows);
        }
        rows.iter().for_each(|_| tally.count(Turn::Interrupted));
    }
}

/// Finds out, under the rows' locks, whether the transaction was committed. If so, it settles `handled`, whose effects
/// are committed, and gives back the reserved rows that are `left`. `None`: it was rolled back, and its rows are as they
/// were, and due. In the list, `None`: another session has changed the row meanwhile, although it was reserved.
fn settle_if_committed<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    reservation: &Reservation,
    handled: &[DecidedRow<K>],
    left: &[&BatchRow<K>],
) -> QueryResult<Option<Vec<Option<Settlement>>>> {
    in_transaction(connection, |connection| {
        let mut committed = false;
        let mut settled = Vec::new();
        for DecidedRow { key, fence, new, .. } in handled {
            let changed = match queue.recall_reservation(connection, key)? {
                Some(text) if text == reservation.text => {
                    committed = true;
                    settle_where_it_is(queue, connection, key, reservation.fence(*fence), new)?
                }
                _ => 0,
            };
            settled.push((changed == 1).then_some(new.settled));
        }
        for row @ BatchRow { key, fence, .. } in left {
            if queue.recall_reservation(connection, key)?.is_some_and(|text| text == reservation.text) {
                committed = true;
                queue.settle(connection, key, reservation.fence(*fence), &row.restored())?;
            }
        }
        Ok(committed.then_some(settled))
    })
}

/// Settles a row whose effects are committed. A row that cannot leave its table stays there as a success: nothing can
/// be undone any more, the other rows must be settled too, and none of them may run again.
fn settle_where_it_is<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    key: &RowKey<K>,
    fence: Fence,
    NewState { settled, change }: &NewState,
) -> QueryResult<usize> {
    if !matches!(settled, Settlement::Succeeded | Settlement::Deleted) {
        return queue.settle(connection, key, fence, change);
    }
    connection.batch_execute("SAVEPOINT queueable_recovery")?;
    match queue.settle(connection, key, fence, change) {
        Ok(rows) => {
            connection.batch_execute("RELEASE SAVEPOINT queueable_recovery")?;
            Ok(rows)
        }
        Err(error) if C::classify(&error) == ErrorClass::Other => {
            connection.batch_execute("ROLLBACK TO SAVEPOINT queueable_recovery")?;
            tracing::error!(entity = queue.sql.entity, ?key, %error, "a row that has succeeded cannot leave the table");
            let stays = Change { status: Some(Status::Success), stays: true, removes: false, ..change.clone() };
            queue.settle(connection, key, fence, &stays)
        }
        Err(error) => Err(error),
    }
}
