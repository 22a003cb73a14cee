//! Receives the database's notifications, if entities ask for them: another process has made a row due.
//!
//! The scout listens on its own session. A notification is only a hint: it brings the next probe forward. If
//! notifications are lost, the scout finds the rows at the poll interval.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::PollerShared;
use super::wake::PollTimer;
use crate::backend::{Dialect, QueueConnection, Session, SessionHolder};
use crate::row::failure_text;

/// How long the scout rests before it asks its connection for notifications again. Diesel can only ask for them, and
/// not wait for them. Asking costs no round trip, but it wakes a thread, so the scout asks less often if notifications
/// are rare: after a thousandth of the time since the last one, within these bounds.
const SHORTEST_PAUSE: Duration = Duration::from_micros(500);

const LONGEST_PAUSE: Duration = Duration::from_millis(3);

const PAUSES: u32 = 1000;

/// The scout logs a warning after this many probes that found rows without a notification, within this time. Once in a
/// while, a notification may still be on its way, or another process's row may have become due.
const MISSED: u32 = 3;

const MISSED_WITHIN: Duration = Duration::from_secs(3600);

/// The channels on which the scout listens.
pub(crate) struct Listener<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    channels: Vec<Channel>,
    last_received: Instant,
}

/// The channel of one runner.
struct Channel {
    pub(crate) runner: usize,
    pub(crate) name: String,
    misses: Misses,
}

/// The probes that found rows without a notification.
#[derive(Default)]
struct Misses {
    first: Option<Instant>,
    count: u32,
}

impl<C: QueueConnection> Listener<C> {
    /// Makes the listener of a poller.
    pub(crate) fn new(shared: Arc<PollerShared<C>>) -> Self {
        let targets = shared.runners.iter().map(|runner| &runner.info().target).enumerate();
        let announced = targets.filter(|(_, target)| C::Backend::NOTIFIES && target.options.notifies);
        let channels = announced
            .map(|(runner, target)| Channel { runner, name: target.channel(), misses: Misses::default() })
            .collect();
        Listener { shared, channels, last_received: Instant::now() }
    }

    /// Tells whether there is a reason to listen. While workers process an entity's messages, no notification is
    /// needed: the workers report when they find nothing more.
    pub(crate) fn listens(&self, holder: &mut SessionHolder<C>) -> bool {
        let Some(session) = holder.open_session() else { return false };
        self.channels
            .iter()
            .any(|channel| session.subscriptions.listen(&channel.name) && !self.shared.board.work_of(channel.runner).0)
    }

    /// Returns how long to rest before the scout asks again.
    pub(crate) fn pause(&self) -> Duration {
        (self.last_received.elapsed() / PAUSES).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }

    /// Takes the notifications from the connection, which would keep them for ever, and brings the probes for their
    /// runners forward. Returns whether there are any.
    pub(crate) fn receive(&mut self, holder: &mut SessionHolder<C>, timers: &mut [PollTimer]) -> bool {
        if self.channels.is_empty() {
            return false;
        }
        // The next probe opens the session, and backs off by itself from a database in trouble.
        let Some(session) = holder.open_session() else { return false };
        // A channel that was not open may have missed notifications, so it counts as notified.
        let mut received = self.listen(session);
        let mut is_lost = false;
        match session.notified() {
            Ok(notified) => received.extend(notified),
            Err(error) => {
                let error = failure_text(&error, 500);
                self.shared.log.warn("poller", &format!("the session that listens for new rows is lost: {error}"));
                holder.close();
                is_lost = true;
            }
        }
        let now = Instant::now();
        let mut is_any = false;
        for channel in &mut self.channels {
            let is_received = received.contains(&channel.name);
            if is_received {
                (self.last_received, channel.misses) = (now, Misses::default());
            }
            if !is_received && !is_lost {
                continue;
            }
            if self.shared.board.work_of(channel.runner).0 {
                timers[channel.runner].remember(now);
            } else {
                timers[channel.runner].probe_at(now);
                is_any = true;
            }
        }
        is_any
    }

    /// Makes the session listen on the channels on which it does not listen yet: at once, and after a failure again at
    /// the poll interval. Returns the channels on which it listens from now on.
    fn listen(&self, session: &mut Session<C>) -> Vec<String> {
        let now = Instant::now();
        let mut listened = Vec::new();
        if session.subscriptions.next_try.is_some_and(|next_try| now < next_try) {
            return listened;
        }
        session.subscriptions.next_try = now.checked_add(self.shared.settings.poll_interval);
        for Channel { runner, name, .. } in &self.channels {
            if session.subscriptions.listen(name) {
                continue;
            }
            match session.listen(name) {
                Ok(()) => {
                    session.subscriptions.channels.push(name.clone());
                    listened.push(name.clone());
                }
                Err(error) => {
                    let error = failure_text(&error, 500);
                    let text = format!("cannot listen for new rows, and polls for them instead: {error}");
                    self.shared.warn(*runner, &text);
                }
            }
        }
        listened
    }

    /// Notes that a probe for this runner has found rows without a notification.
    pub(crate) fn note_missed(&mut self, runner: usize, holder: &mut SessionHolder<C>) {
        let Some(session) = holder.open_session() else { return };
        let Some(channel) = self.channels.iter_mut().find(|channel| channel.runner == runner) else { return };
        if session.subscriptions.listen(&channel.name) && channel.misses.add(Instant::now()) {
            let cause = "rows become due without a notification, and only polling finds them: is there a pooler in \
                         transaction mode in between, or is a trigger disabled?";
            self.shared.warn(runner, cause);
        }
    }
}

impl Misses {
    /// Counts a miss. Returns `true` once, when there are many.
    fn add(&mut self, now: Instant) -> bool {
        let first = *self.first.get_or_insert(now);
        if now.saturating_duration_since(first) > MISSED_WITHIN {
            *self = Misses { first: Some(now), count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count == MISSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_misses_in_weeks_are_no_reason_to_warn_and_several_in_an_hour_are() {
        let start = Instant::now();
        let mut misses = Misses::default();
        for hour in 0..1000 {
            assert!(!misses.add(start + MISSED_WITHIN * hour * 2), "{hour}");
        }
        let later = start + MISSED_WITHIN * 3000;
        let minute = Duration::from_secs(60);
        let warned: Vec<_> = (0..5).map(|minutes| misses.add(later + minute * minutes)).collect();
        assert_eq!(warned, [false, false, true, false, false]);
    }
}
