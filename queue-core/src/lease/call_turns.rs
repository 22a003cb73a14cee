//! A turn in lease mode: settle rows whose calls have ended, or claim rows and begin their calls, here or beside the workers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::calls::{CallEnd, EndedCall};
use super::claim_size::AT_ONCE;
use super::leased_rows::{DecidedLease, LeasedMessage, LeasedRow};
use super::runner::{LeaseRunner, Ready};
use crate::attempt::{CallPlace, Reserved, Runner, Tally, Turn, WorkerTurn};
use crate::backend::QueueConnection;
use crate::entity::Key;

/// How long a runtime may take at least to begin a call.
const UNTIL_POLLED: Duration = Duration::from_secs(60);

/// How many rows one claim takes at most, unless the settings say otherwise. They share its cost, and all of them wait
/// until the last one is read.
const MOST: u32 = 256;

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Takes a turn. Rows whose calls have ended go first, unless so many places are free that too few calls would run.
    pub(crate) fn turn_beside(&self, worker: &mut WorkerTurn<'_, '_, C>) -> Turn {
        let calls = &self.calls;
        let goes_on = worker.calls.goes_on();
        let claims_fail = calls.claims_fail.load(Ordering::Relaxed);
        let claims_first = goes_on && !claims_fail && calls.counts.has_much_room() && worker.calls.may_find_rows();
        if !claims_first && let Some(ended) = calls.take_ended() {
            let turn = self.settle(worker, ended, u32::MAX);
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
                let turn = self.claim_and_begin(worker, places);
                calls.claims_fail.store(turn == Turn::Trouble, Ordering::Relaxed);
                turn
            }
            // Another worker was faster, and has found nothing, or has taken the last place.
            _ => Turn::Group(Tally::default()),
        }
    }

    /// Calls the handler of a claimed row, and those of the rows that were claimed with it as long as that is quick. Then
    /// applies their answers in one transaction.
    pub(super) fn call_in_turn(&self, worker: &mut WorkerTurn<'_, '_, C>, mut leased: LeasedMessage<K>) -> Turn {
        let (begun, calls_of_worker) = (Instant::now(), worker.calls);
        let most = if self.keeps_turns() || self.claimed_ahead() == 0 { 1 } else { self.next_size() };
        let (mut tally, mut kept) = (Tally::default(), 0);
        loop {
            let at_work = self.size.begin();
            let ended = match self.call_leased(worker, leased) {
                Ok(ended) => ended,
                Err(turn) if kept == 0 || turn == Turn::GivenUp => return turn,
                Err(turn) => {
                    tally.count(turn);
                    break;
                }
            };
            let goes_on = kept + 1 < most && begun.elapsed() < AT_ONCE && calls_of_worker.goes_on();
            let next = if goes_on { self.take_message() } else { None };
            if kept == 0 && next.is_none() {
                // The time of a call says how many rows may be claimed at once, unless each has a transaction of its own.
                let _at_work = self.keeps_turns().then_some(at_work);
                return self.settle_ended(worker, ended);
            }
            drop(at_work);
            self.calls.keep_answer(worker.slot, ended);
            kept += 1;
            match next {
                Some(next) => leased = next,
                None => break,
            }
        }
        // Another worker may have been faster.
        let settled = self.calls.take_ended().map(|ended| self.settle(worker, ended, kept));
        match settled.unwrap_or(Turn::Group(Tally::default())) {
            turn if tally == Tally::default() || turn == Turn::GivenUp => turn,
            turn => {
                tally.count(turn);
                Turn::Group(tally)
            }
        }
    }

    /// Settles the row of a call that has ended, together with up to `most` in all if that may be.
    pub(super) fn settle(&self, worker: &mut WorkerTurn<'_, '_, C>, ended: EndedCall<K>, most: u32) -> Turn {
        // If no other answer waits, it is applied alone, in fewer round trips.
        let may_join = ended.may_join() && self.calls.have_more() && !self.keeps_turns();
        match if may_join { most.min(self.next_size()) } else { 1 } {
            1 => self.settle_ended(worker, ended),
            most => self.settle_together(worker, ended, most),
        }
    }

    /// Returns how many answers the next transaction may apply.
    fn next_size(&self) -> u32 {
        self.calls.sizes.lock().next(Instant::now())
    }

    /// Claims as many rows as there are places, and begins their calls.
    fn claim_and_begin(&self, worker: &mut WorkerTurn<'_, '_, C>, mut places: Reserved) -> Turn {
        let limit = u32::try_from(places.places).unwrap_or(u32::MAX);
        let mut ready = match self.next(worker, limit) {
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
                    let begun = held.clock.ended().is_none() && self.begin_call(leased, places.take());
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
    fn begin_call(&self, leased: LeasedMessage<K>, place: Option<CallPlace>) -> bool {
        let Some(place) = place else { return false };
        let LeasedMessage { held, message } = leased;
        let row = self.watch(held);
        let _span = row.watch.enter_span();
        let lease = self.lease_of(&row, &message.1);
        // Until the runtime polls the call for the first time. One that stands still must not keep the row for ever.
        row.clock.begin(lease.timeout.saturating_mul(10).saturating_add(UNTIL_POLLED));
        row.watch.begin();
        self.calls.begin(row, message, lease, place).is_ok()
    }

    /// Settles the row of a call that has ended, in a transaction of its own.
    pub(crate) fn settle_ended(&self, worker: &mut WorkerTurn<'_, '_, C>, ended: EndedCall<K>) -> Turn {
        let EndedCall { row, end, .. } = &ended;
        self.to_its_end(worker, row, |worker| match end {
            CallEnd::Called(called) => match &**called {
                Ok(answered) => self.settle_called(worker, row, Ok(answered)),
                Err(failure) => self.settle_called(worker, row, Err(failure)),
            },
            CallEnd::Aborted => self.settle_taken_away(worker.holder, row).unwrap_or_else(|| {
                row.watch.interrupt("the lease has ended");
                Turn::Interrupted
            }),
            CallEnd::Dropped => {
                match self.calls.have_ended() {
                    true => worker.calls.stop("the tokio runtime of the async calls has ended"),
                    false => self.served.warn("the runtime has dropped a call: its row is given back"),
                }
                self.give_back(worker.holder, &row.held);
                // The worker rests before it begins more calls there, and not before it has given all of them back.
                if self.calls.counts.has_answers() { Turn::Interrupted } else { Turn::Trouble }
            }
        })
    }

    /// Tells whether a claimed row may begin: its stage may be paused meanwhile.
    pub(crate) fn may_begin(&self, held: &LeasedRow<K>) -> bool {
        self.served.due_rows.serves(held.details.stage.as_deref(), held.details.lane.as_ref())
    }
}
