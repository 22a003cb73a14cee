//! The calls of one entity: those that run beside the workers, and all that have ended and whose answers wait for a worker.

use std::collections::{HashMap, VecDeque};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::claim_size::{AT_ONCE, MOST};
use super::leased_rows::WatchedRow;
use crate::attempt::{BackgroundCalls, CallPlace, InFlight, Size, Slot};
use crate::entity::Key;
use crate::handler::{AbortCall, Answered, Background, BeginCall, Called, Lease, LeaseLost, PanicSafeDrop};
use crate::row::QueueState;
use crate::sync::{ErasedEntity, Mutex};

/// The calls that are in flight, and those that have ended and wait for a worker.
pub(crate) struct Calls<K> {
    pub(crate) counts: Arc<InFlight>,
    /// Whether the last claim met an error of the database. Then the rows whose calls have ended go first.
    pub(crate) claims_fail: AtomicBool,
    /// What runs them. `None`: each worker calls the handler itself, and nothing is in flight.
    executor: Option<Box<dyn BeginCall>>,
    /// How many answers one transaction applies.
    pub(crate) sizes: Mutex<Size>,
    table: Mutex<Table<K>>,
}

struct Table<K> {
    next: u64,
    running: HashMap<u64, RunningCall<K>>,
    ended: VecDeque<EndedCall<K>>,
    /// Whether the poller has shut down and no call begins any more.
    is_closed: bool,
}

/// A call whose future has not ended.
struct RunningCall<K> {
    row: WatchedRow<K>,
    /// `None`: the call is about to begin.
    abort: Option<AbortCall>,
    place: Arc<CallPlace>,
}

/// A call that has ended, and whose row is to be settled.
pub(crate) struct EndedCall<K> {
    pub(crate) row: WatchedRow<K>,
    pub(crate) end: CallEnd,
    /// Whether its answer is to be applied in a transaction of its own.
    pub(crate) is_alone: bool,
    since: Instant,
    /// The worker that has made the call and is about to apply its answer, by the address of its slot.
    kept_by: Option<usize>,
    /// The place is free when the row is settled and the future is dropped.
    _place: Option<Arc<CallPlace>>,
}

impl<K> EndedCall<K> {
    /// Notes how the call of a row has ended.
    pub(super) fn new(row: WatchedRow<K>, end: CallEnd, place: Option<Arc<CallPlace>>) -> Self {
        EndedCall { row, end, is_alone: false, since: Instant::now(), kept_by: None, _place: place }
    }

    /// Returns the message and its answer, if there is one.
    pub(crate) fn answer(&self) -> Option<&Answered> {
        match &self.end {
            CallEnd::Called(called) => (**called).as_ref().ok(),
            CallEnd::Aborted | CallEnd::Dropped => None,
        }
    }

    /// Tells whether its answer may be applied in one transaction with others.
    pub(crate) fn may_join(&self) -> bool {
        !self.is_alone
            && self.answer().is_some()
            && matches!(self.row.clock.ended(), None | Some(LeaseLost::Unconfirmed))
    }
}

/// How a call has ended.
pub(crate) enum CallEnd {
    Called(Called),
    /// It was aborted, because its lease has ended.
    Aborted,
    /// Its executor has dropped it.
    Dropped,
}

impl<K: Key> Calls<K> {
    /// Makes the calls that run there, or on the workers themselves. `is_exclusive`: whether one row is processed at a time.
    pub(crate) fn new(background: Option<Background>, is_exclusive: bool) -> Arc<Self> {
        let (in_flight, most_together, executor) = match background {
            Some(Background { in_flight, most_together, executor }) => (in_flight, most_together, Some(executor)),
            None => (usize::MAX, MOST, None),
        };
        let table = Table { next: 0, running: HashMap::new(), ended: VecDeque::new(), is_closed: false };
        let counts = InFlight::new(if is_exclusive { 1 } else { in_flight });
        let (claims_fail, sizes) = (AtomicBool::new(false), Mutex::new(Size::new(most_together, most_together)));
        Arc::new(Calls { counts, claims_fail, executor, sizes, table: Mutex::new(table) })
    }

    /// Tells whether the calls run beside the workers.
    pub(crate) fn run_beside(&self) -> bool {
        self.executor.is_some()
    }

    /// Keeps a call that a worker has made and whose answer it will apply together with others. If that worker does not come
    /// back from its next call, another one does.
    pub(super) fn keep_answer(&self, slot: &Slot, ended: EndedCall<K>) {
        ended.row.clock.awaits_writing();
        let mut table = self.table.lock();
        table.ended.push_back(EndedCall { kept_by: Some(ptr::from_ref(slot).addr()), ..ended });
        self.count(&table);
    }

    /// Begins a call. Returns the row if the poller has shut down.
    pub(crate) fn begin(
        self: &Arc<Self>,
        row: WatchedRow<K>,
        message: PanicSafeDrop<(ErasedEntity, QueueState)>,
        lease: Lease,
        place: CallPlace,
    ) -> Result<(), WatchedRow<K>> {
        let Some(executor) = &self.executor else { return Err(row) };
        let place = Arc::new(place);
        let (number, place_of_future) = {
            let mut table = self.table.lock();
            if table.is_closed {
                return Err(row);
            }
            table.next += 1;
            let number = table.next;
            let place_of_future = place.clone();
            table.running.insert(number, RunningCall { row, abort: None, place });
            self.count(&table);
            (number, place_of_future)
        };
        let calls = self.clone();
        let done = move |called| {
            calls.end(number, called);
            drop(place_of_future);
        };
        let abort = executor.begin(message, lease, Box::new(done));
        if let Some(abort) = self.keep(number, abort) {
            abort.abort();
        }
        Ok(())
    }

    /// Keeps what aborts a call. Returns it if the call has ended already, or its lease before it could be aborted.
    fn keep(&self, number: u64, abort: AbortCall) -> Option<AbortCall> {
        match self.table.lock().running.get_mut(&number) {
            Some(call) => call.abort.replace(abort),
            None => Some(abort),
        }
    }

    /// Notes that a call has ended. If another thread has ended it before, its answer is discarded.
    fn end(&self, number: u64, called: Option<Called>) {
        let mut table = self.table.lock();
        let Some(RunningCall { row, place, abort }) = table.running.remove(&number) else { return };
        row.clock.awaits_writing();
        let end = called.map_or(CallEnd::Dropped, CallEnd::Called);
        table.ended.push_back(EndedCall::new(row, end, Some(place)));
        self.count(&table);
        drop(table);
        drop(abort);
        self.counts.wake();
    }

    /// Tells whether more calls have ended.
    pub(super) fn have_more(&self) -> bool {
        !self.table.lock().ended.is_empty()
    }

    /// Takes the call that has ended first.
    pub(crate) fn take_ended(&self) -> Option<EndedCall<K>> {
        let mut table = self.table.lock();
        let ended = table.ended.pop_front()?;
        self.count(&table);
        Some(ended)
    }

    /// Leaves the answers that a worker has kept and not applied to the other workers.
    pub(super) fn leave_answers(&self, slot: &Slot) {
        let keeper = Some(ptr::from_ref(slot).addr());
        self.leave(|ended| ended.kept_by == keeper);
    }

    fn leave(&self, is_left: impl Fn(&EndedCall<K>) -> bool) {
        let (mut table, mut left) = (self.table.lock(), 0);
        for ended in table.ended.iter_mut().filter(|ended| ended.kept_by.is_some() && is_left(ended)) {
            (ended.kept_by, left) = (None, left + 1);
        }
        if left > 0 {
            self.count(&table);
            drop(table);
            self.wake_for(left);
        }
    }

    /// Wakes a worker for each answer.
    fn wake_for(&self, answers: usize) {
        (0..answers).for_each(|_| self.counts.wake());
    }

    /// Takes the call that has ended first, if it was left, or if the worker that has made it does not come back soon.
    pub(super) fn take_left(&self) -> Option<EndedCall<K>> {
        let mut table = self.table.lock();
        let is_left = |ended: &EndedCall<K>| ended.kept_by.is_none() || ended.since.elapsed() >= AT_ONCE;
        let ended = table.ended.front().is_some_and(is_left).then(|| table.ended.pop_front())??;
        self.count(&table);
        Some(ended)
    }

    /// Takes the call that has ended first, if its answer may be applied in one transaction with others.
    pub(crate) fn take_answer(&self) -> Option<EndedCall<K>> {
        let mut table = self.table.lock();
        let answer = table.ended.front().is_some_and(EndedCall::may_join).then(|| table.ended.pop_front())??;
        self.count(&table);
        Some(answer)
    }

    /// Puts back calls that have ended, so that the answer of each is applied alone. Returns them if the poller has shut
    /// down.
    pub(crate) fn put_back(&self, ended: Vec<EndedCall<K>>) -> Vec<EndedCall<K>> {
        self.hand_on(ended.into_iter().map(|ended| EndedCall { is_alone: true, ..ended }).collect())
    }

    /// Leaves calls that have ended to other workers. Returns them if the poller has shut down.
    pub(super) fn hand_on(&self, ended: Vec<EndedCall<K>>) -> Vec<EndedCall<K>> {
        let mut table = self.table.lock();
        if table.is_closed {
            return ended;
        }
        let answers = ended.len();
        for ended in ended.into_iter().rev() {
            // The heartbeat goes on extending its lease.
            ended.row.clock.awaits_writing();
            table.ended.push_front(EndedCall { kept_by: None, ..ended });
        }
        self.count(&table);
        drop(table);
        self.wake_for(answers);
        Vec::new()
    }

    /// Aborts all calls, for shutdown, and lets none begin any more. Returns how many rows were not settled.
    pub(crate) fn close(&self) -> usize {
        let mut table = self.table.lock();
        table.is_closed = true;
        let (running, ended) = (std::mem::take(&mut table.running), std::mem::take(&mut table.ended));
        self.count(&table);
        drop(table);
        running.values().filter_map(|call| call.abort.as_ref()).for_each(AbortCall::abort);
        // They end where they wait next, and no worker hears of it.
        running.values().for_each(|call| call.row.clock.awaits_writing());
        running.len() + ended.len()
    }

    /// Tells whether the runtime of the calls has ended, so that none begins any more.
    pub(crate) fn have_ended(&self) -> bool {
        self.executor.as_ref().is_some_and(|executor| executor.has_ended())
    }

    /// An answer that its own worker is about to apply calls for no other worker.
    fn count(&self, table: &Table<K>) {
        let answered = match self.run_beside() {
            true => table.ended.len(),
            false => table.ended.iter().filter(|ended| ended.kept_by.is_none()).count(),
        };
        self.counts.count(table.running.len() + table.ended.len(), answered);
    }
}

impl<K: Key> BackgroundCalls for Calls<K> {
    fn counts(&self) -> &Arc<InFlight> {
        &self.counts
    }

    fn respond_within(&self, patience: Duration) -> bool {
        self.executor.as_ref().is_none_or(|executor| executor.responds_within(patience))
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.table.lock().running.values().map(|call| call.row.clock.deadline()).min()
    }

    /// A lease has ended for good, or at this time by this process's clock. One that is only unconfirmed may be extended
    /// yet.
    fn abort_ended(&self) -> usize {
        // Their worker is in a long call, or does not come back at all.
        self.leave(|ended| ended.since.elapsed() >= AT_ONCE);
        let mut table = self.table.lock();
        let now = Instant::now();
        let has_ended = |call: &RunningCall<K>| match call.row.clock.ended() {
            // A shutdown takes and counts its calls itself.
            None | Some(LeaseLost::Shutdown) => false,
            Some(LeaseLost::Unconfirmed) => now >= call.row.clock.holds_until(),
            Some(LeaseLost::Overtaken | LeaseLost::TimedOut) => true,
        };
        let ended: Vec<_> = table.running.iter().filter(|(_, call)| has_ended(call)).map(|(n, _)| *n).collect();
        let ended: Vec<_> = ended.iter().filter_map(|number| table.running.remove(number)).collect();
        if ended.is_empty() {
            return 0;
        }
        let (mut aborts, mut late) = (Vec::new(), 0);
        for RunningCall { row, abort, place } in ended {
            if row.clock.ended() == Some(LeaseLost::TimedOut) {
                late += 1;
                row.watch.mark_past_timeout();
            }
            aborts.extend(abort);
            table.ended.push_back(EndedCall { is_alone: true, ..EndedCall::new(row, CallEnd::Aborted, Some(place)) });
        }
        self.count(&table);
        drop(table);
        // Without the table, which the end of a call locks.
        aborts.iter().for_each(AbortCall::abort);
        self.counts.wake();
        late
    }
}
