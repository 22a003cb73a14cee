//! A turn in lease mode whose calls run beside the workers: settle a row whose call has ended, or claim rows and begin
//! their calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::calls::{CallEnd, Calls, EndedCall};
use super::leased_rows::{DecidedLease, LeasedMessage, LeasedRow};
use super::runner::{LeaseRunner, Ready};
use crate::attempt::{CallPlace, Reserved, Tally, Turn, WorkerTurn};
use crate::backend::QueueConnection;
use crate::entity::Key;
use crate::handler::Answered;

/// How long a runtime may take at least to begin a call.
const UNTIL_POLLED: Duration = Duration::from_secs(60);

/// How many rows one claim takes at most, unless the settings say otherwise. They share its cost, and all of them wait
/// until the last one is read.
const MOST: u32 = 256;

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Takes a turn. Rows whose calls have ended go first, unless so many places are free that too few calls would run.
    pub(crate) fn turn_beside(&self, calls: &Arc<Calls<K, C>>, worker: &mut WorkerTurn<'_, '_, C>) -> Turn {
        let goes_on = worker.calls.goes_on();
        let claims_fail = calls.claims_fail.load(Ordering::Relaxed);
        let claims_first = goes_on && !claims_fail && calls.counts.has_much_room() && worker.calls.may_find_rows();
        if !claims_first && let Some(ended) = calls.take_ended() {
            let turn = match self.answers_together(calls, &ended) {
                1 => self.settle_ended(worker, ended),
                most => self.settle_together(calls, worker, ended, most),
            };
            if self.limits().is_some() {
                // The row has left its lane, where others may have waited.
                worker.calls.note_freed_others();
            }
            return turn;
        }
        if !goes_on {
            // The heartbeat may have passed already, or may have ended.
            self.give_back_unstarted(worker.holder, Duration::ZERO);
            return Turn::Idle;
        }
        let most = usize::try_from(self.size.asked().unwrap_or(MOST)).unwrap_or(usize::MAX);
        match calls.counts.reserve(most) {
            Some(places) if worker.calls.may_find_rows() => {
                let turn = self.claim_and_begin(calls, worker, places);
                calls.claims_fail.store(turn == Turn::Trouble, Ordering::Relaxed);
                turn
            }
            // Another worker was faster, and has found nothing, or has taken the last place.
            _ => Turn::Group(Tally::default()),
        }
    }

    /// Returns how many answers may be applied in one transaction with this one, itself included. If no other answer
    /// waits, it is applied alone, in fewer round trips.
    fn answers_together(&self, calls: &Calls<K, C>, ended: &EndedCall<K, C>) -> u32 {
        match ended.may_join() && calls.counts.has_answers() && !self.keeps_turns() {
            true => calls.sizes.lock().next(Instant::now()),
            false => 1,
        }
    }

    /// Claims as many rows as there are places, and begins their calls.
    fn claim_and_begin(
        &self,
        calls: &Arc<Calls<K, C>>,
        worker: &mut WorkerTurn<'_, '_, C>,
        mut places: Reserved,
    ) -> Turn {
        let limit = u32::try_from(places.places).unwrap_or(u32::MAX);
        let mut ready = match self.next(worker.holder, limit) {
            Ok(ready) => Some(ready),
            Err(turn) => return turn,
        };
        worker.calls.note_claim();
        let calls_of_worker = worker.calls;
        // As in a turn without calls, a row that may not begin ends the claim: a pause or a shutdown is for all of them.
        let may_begin = |held: &LeasedRow<K>| calls_of_worker.goes_on() && self.may_begin(held);
        let (mut tally, mut decided, mut goes_on) = (Tally::default(), Vec::new(), true);
        while let Some(row) = ready.take() {
            match row {
                Ready::Settled(settled) => tally.count(Turn::Settled(settled)),
                Ready::DecidedLease(row) if may_begin(&row.held) => decided.push(row),
                Ready::LeasedMessage(leased) if may_begin(&leased.held) => {
                    let held = leased.held.clone();
                    let begun = held.clock.ended().is_none() && self.begin_call(calls, leased, places.take());
                    if !begun {
                        self.give_back(worker.holder, &held);
                        tally.count(Turn::Interrupted);
                    }
                }
                Ready::LeasedMessage(LeasedMessage { held, .. }) | Ready::DecidedLease(DecidedLease { held, .. }) => {
                    self.give_back(worker.holder, &held);
                    self.give_back_unstarted(worker.holder, Duration::ZERO);
                    goes_on = false;
                }
            }
            // Rows that another worker has claimed beyond these places wait for that worker.
            ready = if goes_on && places.places > 0 { self.take_ready() } else { None };
        }
        let mut last = Turn::Idle;
        for row in decided {
            last = self.settle_decided(worker.holder, &row);
            tally.count(last);
        }
        match last {
            Turn::Trouble => last,
            _ if goes_on || tally != Tally::default() => Turn::Group(tally),
            _ => Turn::Idle,
        }
    }

    /// Begins the call of a row, if there is a place. Returns whether it was begun: a poller that has shut down begins
    /// none.
    fn begin_call(&self, calls: &Arc<Calls<K, C>>, leased: LeasedMessage<K>, place: Option<CallPlace>) -> bool {
        let Some(place) = place else { return false };
        let LeasedMessage { held, message } = leased;
        let row = self.watch(held);
        let _span = row.watch.enter_span();
        let lease = self.lease_of(&row, &message.1);
        // Until the runtime polls the call for the first time. One that stands still must not keep the row for ever.
        row.clock.begin(lease.timeout.saturating_mul(10).saturating_add(UNTIL_POLLED));
        row.watch.begin();
        calls.begin(row, message, lease, place).is_ok()
    }

    /// Settles the row of a call that has ended beside the workers.
    pub(crate) fn settle_ended(&self, worker: &mut WorkerTurn<'_, '_, C>, ended: EndedCall<K, C>) -> Turn {
        let EndedCall { row, end, .. } = &ended;
        self.to_its_end(worker, row, |worker| match end {
            CallEnd::Called(called) => match &**called {
                Ok(Answered { message, answer }) => self.settle_called(worker, row, Ok((message, &**answer))),
                Err(failure) => self.settle_called(worker, row, Err(failure)),
            },
            CallEnd::Aborted => self.settle_taken_away(worker.holder, row).unwrap_or_else(|| {
                row.watch.interrupt("the lease has ended");
                Turn::Interrupted
            }),
            CallEnd::Dropped => {
                match self.calls.as_ref().is_some_and(|calls| calls.have_ended()) {
                    true => worker.calls.stop("the tokio runtime of the async calls has ended"),
                    false => self.served.warn("the runtime has dropped a call: its row is given back"),
                }
                self.give_back(worker.holder, &row.held);
                // The worker rests before it begins more calls there, and not before it has given all of them back.
                let has_others = self.calls.as_ref().is_some_and(|calls| calls.counts.has_answers());
                if has_others { Turn::Interrupted } else { Turn::Trouble }
            }
        })
    }

    /// Tells whether a claimed row may begin: its stage may be paused meanwhile.
    pub(crate) fn may_begin(&self, held: &LeasedRow<K>) -> bool {
        self.served.due_rows.serves(held.details.stage.as_deref(), held.details.lane.as_ref())
    }
}
