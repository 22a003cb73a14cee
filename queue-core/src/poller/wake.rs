//! When the scout probes for a queue: at the poll interval, when a row is known to become due, and in quick succession after
//! a row is enqueued in this process.
//!
//! An enqueue is an ordinary insert in the application's own transaction. A poller cannot see its commit, unless
//! the entity asks the database for notifications (`listener.rs`). But this process can see that it sends a
//! statement with a due time ([`due_now`](crate::Queueable::due_now) and its siblings). A poller that serves the same
//! queue then probes several times in quick succession, and finds the row right after its commit. While its workers are
//! busy, it does so after them. An idle process that neither enqueues nor listens costs nothing more than its poll
//! interval.

use std::any::TypeId;
use std::sync::{Arc, Condvar, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::sync::Mutex;
use crate::sync::in_test::note_enqueued;

static POLLERS: Mutex<Vec<Weak<WakeSignal>>> = Mutex::new(Vec::new());

/// Announces that a row of this queue is about to be enqueued.
pub(crate) fn announce<T: 'static>() {
    note_enqueued::<T>();
    let mut pollers = POLLERS.lock();
    pollers.retain(|poller| match poller.upgrade() {
        Some(wake_signal) => {
            wake_signal.notify(Some(TypeId::of::<T>()));
            true
        }
        None => false,
    });
}

/// The signal that wakes the scout of one poller: enqueuers, `wake` and shutdown notify it.
#[derive(Default)]
pub(crate) struct WakeSignal {
    state: Mutex<WakeState>,
    changed: Condvar,
}

#[derive(Default)]
struct WakeState {
    reasons: WakeReasons,
    /// The queues that were announced and have not been probed since: their next probe is near.
    awaited: Vec<TypeId>,
}

/// Why the scout was woken since its last wait.
#[derive(Default)]
pub(crate) struct WakeReasons {
    /// The queues for which a row was announced, once each.
    pub(crate) announced: Vec<TypeId>,
    /// The runners whose workers found nothing more.
    pub(crate) drained: Vec<usize>,
    /// Whether all queues are to be probed now.
    pub(crate) all: bool,
}

impl WakeSignal {
    /// Creates a signal that `announce` reaches for as long as it lives.
    pub(crate) fn new() -> Arc<Self> {
        let wake_signal = Arc::new(WakeSignal::default());
        POLLERS.lock().push(Arc::downgrade(&wake_signal));
        wake_signal
    }

    /// Notes that rows of one queue, or of all, may be due. Only the first of many announcements between two probes
    /// counts, so that an application that enqueues ten thousand rows does not wake the scout ten thousand times.
    pub(crate) fn notify(&self, queue: Option<TypeId>) {
        let mut state = self.state.lock();
        match queue {
            Some(queue) if state.awaited.contains(&queue) => return,
            Some(queue) => {
                state.awaited.push(queue);
                state.reasons.announced.push(queue);
            }
            None => state.reasons.all = true,
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Notes that a probe of a queue begins: announcements from here on are news.
    pub(crate) fn begin_probe(&self, queue: TypeId) {
        self.state.lock().awaited.retain(|awaited| *awaited != queue);
    }

    /// Notes that a runner's workers found nothing more.
    pub(crate) fn note_drained(&self, runner: usize) {
        self.state.lock().reasons.drained.push(runner);
        self.changed.notify_all();
    }

    /// Sleeps until it is notified, but not past `deadline`.
    pub(crate) fn wait(&self, deadline: Instant) -> WakeReasons {
        let left = deadline.saturating_duration_since(Instant::now());
        let is_asleep = |state: &mut WakeState| !state.reasons.is_any();
        let woken = self.changed.wait_timeout_while(self.state.lock(), left, is_asleep);
        let (mut state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.reasons)
    }
}

impl WakeReasons {
    /// Tells whether there is any reason.
    pub(crate) fn is_any(&self) -> bool {
        self.all || !self.announced.is_empty() || !self.drained.is_empty()
    }
}

/// After an announced enqueue the scout probes several times, because the application still has to insert and to
/// commit. Most commits come within this time, and a probe costs some fifty microseconds. So the probes are dense in
/// it: each comes after a quarter of the time that has passed. Later, each doubles the time that has passed.
const DENSE: Duration = Duration::from_millis(5);

const FIRST_PAUSE: Duration = Duration::from_micros(250);

const LONGEST_PAUSE: Duration = Duration::from_millis(512);

/// How long the scout awaits an announced enqueue. The next ordinary probe finds a row that is committed later.
const PATIENCE: Duration = Duration::from_millis(1000);

/// The part of its budget that a probe uses: the budget allows 500 probes in a second, however many rows are announced,
/// and 64 in a burst.
const COST: Duration = Duration::from_millis(2);

const BURST: Duration = Duration::from_millis(128);

/// When the scout probes for a runner next.
pub(crate) struct PollTimer {
    pub(crate) next_probe: Instant,
    pub(crate) troubles: u32,
    /// The earliest time of the next low-water probe, which the scout makes while the workers are busy.
    pub(crate) next_low_water_probe: Instant,
    /// The earliest time at which an announcement brings a probe: the last probe has shown that an earlier one would find
    /// nothing.
    not_before: Instant,
    /// Whether the last probe found nothing due, and how many turns had ended before it.
    pub(crate) nothing_due: bool,
    pub(crate) turns_seen: u64,
    /// Since when an announced enqueue is awaited.
    awaited_since: Option<Instant>,
    /// When the scout last heard of new rows while the workers were busy.
    remembered: Option<Instant>,
    /// Until when the probes so far have used up the budget.
    spent_until: Instant,
    /// Whether the next probe was not asked for, and no row is known to become due.
    is_routine: bool,
}

impl PollTimer {
    /// Makes the timer of a runner that is probed for now.
    pub(crate) fn new(now: Instant) -> Self {
        PollTimer {
            next_probe: now,
            troubles: 0,
            next_low_water_probe: now,
            not_before: now,
            nothing_due: false,
            turns_seen: 0,
            awaited_since: None,
            remembered: None,
            spent_until: now,
            is_routine: false,
        }
    }

    /// Counts a probe. Returns whether it was not asked for.
    pub(crate) fn begin_probe(&mut self, now: Instant) -> bool {
        self.spent_until = self.spent_until.max(now) + COST;
        std::mem::take(&mut self.is_routine)
    }

    /// Hears news of its runner: a row is announced, or the workers find nothing more.
    pub(crate) fn hear(&mut self, is_announced: bool, is_drained: bool, has_work: bool, now: Instant) {
        match (is_announced, has_work) {
            (true, true) => self.remember(now),
            (true, false) => self.await_enqueue(now),
            (false, false) if is_drained => self.recall(now),
            (false, _) => {}
        }
    }

    /// Notes that a row is about to be enqueued.
    fn await_enqueue(&mut self, now: Instant) {
        self.awaited_since = Some(now);
        self.probe_at(now + FIRST_PAUSE);
    }

    /// Notes an enqueue, past or announced, while the workers are busy. It matters as soon as they find nothing more.
    pub(crate) fn remember(&mut self, now: Instant) {
        self.remembered = Some(now);
    }

    /// Notes that the workers find nothing more: they may have missed a row that was enqueued meanwhile.
    fn recall(&mut self, now: Instant) {
        // Only the first of the announcements between two probes was heard.
        if self.remembered.take().is_some_and(|since| now.saturating_duration_since(since) < PATIENCE * 2) {
            return self.await_enqueue(now);
        }
        let pause = self.awaited_since.and_then(|since| pause_after(now.saturating_duration_since(since)));
        if let Some(pause) = pause {
            self.probe_at(now + pause);
        }
    }

    /// Sets the next probe for now, because a thread asks for it.
    pub(crate) fn probe_now(&mut self, now: Instant) {
        self.next_probe = now;
        self.is_routine = false;
    }

    /// Notes that a due row was found, most likely the awaited one: the dense probes are over.
    pub(crate) fn note_found(&mut self, now: Instant) {
        self.awaited_since = self.awaited_since.map(|since| now.checked_sub(DENSE).unwrap_or(since).min(since));
    }

    /// Sets the next probe. An announced enqueue may want it earlier, but not within `pause`.
    pub(crate) fn probe_again_in(&mut self, wait: Duration, pause: Duration, is_routine: bool) {
        let now = Instant::now();
        self.next_probe = now + wait;
        self.not_before = now + pause.min(wait);
        self.is_routine = is_routine;
        let pause = self.awaited_since.and_then(|since| pause_after(now.saturating_duration_since(since)));
        match pause {
            Some(pause) => self.probe_at(now + pause),
            None => self.awaited_since = None,
        }
    }

    /// Sets the next probe. News of rows does not bring it forward.
    pub(crate) fn back_off(&mut self, wait: Duration) {
        self.next_probe = Instant::now() + wait;
        self.not_before = self.next_probe;
        self.is_routine = false;
    }

    /// Probes at this time, or as soon after it as the budget allows, unless a probe is to come earlier.
    pub(crate) fn probe_at(&mut self, time: Instant) {
        let time = time.max(self.not_before);
        let granted = self.spent_until.checked_sub(BURST).map_or(time, |granted| granted.max(time));
        self.next_probe = self.next_probe.min(granted);
        self.is_routine = false;
    }
}

/// Returns the pause after a probe, by the time since the announcement. `None`: it was the last.
fn pause_after(elapsed: Duration) -> Option<Duration> {
    let pause = if elapsed < DENSE { elapsed / 4 } else { elapsed };
    (elapsed < PATIENCE).then(|| pause.clamp(FIRST_PAUSE, LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_dense_at_first_and_then_double() {
        let mut times = vec![FIRST_PAUSE];
        while let Some(pause) = pause_after(times[times.len() - 1]) {
            times.push(times[times.len() - 1] + pause);
        }
        assert!(times.windows(2).take(10).all(|pair| pair[1] - pair[0] <= Duration::from_millis(1)), "{times:?}");
        assert!(times.len() <= 21, "{times:?}");
        assert!(times[times.len() - 1] >= PATIENCE);
    }

    #[test]
    fn however_many_rows_are_announced_the_probes_are_bounded() {
        let start = Instant::now();
        let mut timer = PollTimer::new(start);
        let mut probes = 0;
        for microseconds in (0..1_000_000).step_by(100) {
            let now = start + Duration::from_micros(microseconds);
            timer.await_enqueue(now);
            if timer.next_probe <= now {
                probes += 1;
                timer.begin_probe(now);
                timer.next_probe = now + Duration::from_secs(1);
            }
        }
        assert!((500..=565).contains(&probes), "{probes}");
    }

    #[test]
    fn what_is_heard_of_new_rows_brings_no_look_within_the_pause() {
        let mut timer = PollTimer::new(Instant::now());
        let pause = Duration::from_millis(50);
        timer.probe_again_in(Duration::from_secs(600), pause, false);
        let last = timer.next_probe;
        let received = last - Duration::from_secs(600);
        timer.probe_at(received);
        timer.await_enqueue(received);
        assert_eq!(timer.next_probe, received + pause);

        timer.back_off(Duration::from_secs(600));
        let last = timer.next_probe;
        timer.probe_at(received);
        timer.await_enqueue(received);
        assert_eq!(timer.next_probe, last);
        timer.probe_now(received);
        assert_eq!(timer.next_probe, received);
    }

    #[test]
    fn what_is_enqueued_while_the_workers_are_at_it_is_looked_for_after_them() {
        let start = Instant::now();
        let mut timer = PollTimer::new(start);
        timer.next_probe = start + PATIENCE;
        timer.recall(start);
        assert_eq!(timer.next_probe, start + PATIENCE);
        timer.remember(start);
        assert_eq!(timer.next_probe, start + PATIENCE);
        timer.recall(start);
        assert_eq!(timer.next_probe, start + FIRST_PAUSE);
    }
}
