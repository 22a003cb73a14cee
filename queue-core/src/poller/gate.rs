//! Whether the messages of an entity may be processed now: by its window and the poller's, by the database's clock, by the
//! pauses that operators ask for, and by the columns of its table.

use std::mem;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};

use crate::entity::{InvalidWindow, Window};
use crate::error::Finding;
use crate::sync::Mutex;

/// For how long it is open without a window.
const ALWAYS: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Reads the window of an entity's attributes, if there is one.
pub(crate) fn window_of(entity: &str, own: Option<&str>) -> Result<Option<Window>, Finding> {
    own.map(str::parse).transpose().map_err(|error: InvalidWindow| Finding {
        entity: entity.to_owned(),
        problem: error.to_string(),
        mend: "correct #[queue(window = \"..\")], for example to \"Mon-Fri 22:00-06:00 Europe/Berlin\"".to_owned(),
    })
}

/// The gate of one entity in a poller. The scout repeatedly tells it the database's time. Between two times, the workers
/// count from the last one.
#[derive(Debug)]
pub(crate) struct Gate {
    windows: Vec<Window>,
    state: Mutex<GateState>,
}

#[derive(Debug)]
struct GateState {
    /// Until when its windows are open, while they are. Without a window they always are.
    open: Option<Instant>,
    is_paused: bool,
    /// Whether the table has columns that this process does not know.
    is_barred: bool,
    /// Raised by each change of the two. A turn that began before a change begins no further message.
    changes: u64,
}

impl Gate {
    /// Makes the gate of an entity, with the windows of its attributes and of the poller's settings.
    pub(crate) fn new(entity: &str, own: Option<&str>, pollers: Option<&Window>) -> Result<Self, Finding> {
        Ok(Gate::of(window_of(entity, own)?.into_iter().chain(pollers.cloned()).collect()))
    }

    fn of(windows: Vec<Window>) -> Self {
        let open = windows.is_empty().then(|| Instant::now() + ALWAYS);
        Gate { windows, state: Mutex::new(GateState { open, is_paused: false, is_barred: false, changes: 0 }) }
    }

    /// Tells whether it has a window, and so may close.
    pub(crate) fn has_window(&self) -> bool {
        !self.windows.is_empty()
    }

    /// Tells whether messages may be processed, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().is_open()
    }

    /// Tells whether messages may be processed, and nothing but the windows has changed since there were so many `changes`.
    pub(crate) fn is_open_since(&self, changes: u64) -> bool {
        self.state.lock().is_open_since(changes)
    }

    /// Tells whether the whole queue is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.state.lock().is_paused
    }

    /// Tells whether nothing is to be processed, whatever the windows.
    pub(crate) fn is_closed(&self) -> bool {
        let state = self.state.lock();
        state.is_paused || state.is_barred
    }

    /// Takes whether the queue stands still for its columns. Returns whether that is new.
    pub(crate) fn bar(&self, is_barred: bool) -> bool {
        let mut state = self.state.lock();
        let is_new = mem::replace(&mut state.is_barred, is_barred) != is_barred;
        state.changes += u64::from(is_new);
        is_new
    }

    /// Returns how often something but the windows has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Takes a change of the pauses: whether nothing is to be processed now.
    pub(crate) fn change(&self, is_paused: bool) {
        let mut state = self.state.lock();
        state.is_paused = is_paused;
        state.changes += 1;
    }

    /// Takes the database's time, which was asked for at `asked`, and returns how long the windows stay closed, if they are.
    pub(crate) fn tell(&self, now: DateTime<Utc>, asked: Instant) -> Option<Duration> {
        let closed = self.windows.iter().any(|window| !window.is_open(now));
        let closes = self.windows.iter().filter_map(|window| window.closes(now)).min();
        self.state.lock().open = match closes {
            _ if closed => None,
            closes => Some(asked + closes.map_or(ALWAYS, |closes| until(closes, now).min(ALWAYS))),
        };
        closed.then(|| self.next_opening(now).map_or(Duration::MAX, |opens| until(opens, now)))
    }

    /// Returns when all windows are open next. `None`: they hardly ever are.
    fn next_opening(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut opens = now;
        for _ in 0..1000 {
            let later = self.windows.iter().map(|window| window.next_opening(opens)).collect::<Option<Vec<_>>>()?;
            match later.into_iter().max() {
                Some(later) if later > opens => opens = later,
                _ => return Some(opens),
            }
        }
        None
    }
}

impl GateState {
    fn is_open(&self) -> bool {
        !self.is_paused && !self.is_barred && self.open.is_some_and(|until| Instant::now() < until)
    }

    fn is_open_since(&self, changes: u64) -> bool {
        self.changes == changes && self.is_open()
    }
}

fn until(time: DateTime<Utc>, now: DateTime<Utc>) -> Duration {
    (time - now).max(TimeDelta::zero()).to_std().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn gate(windows: &[&str]) -> Gate {
        Gate::of(windows.iter().map(|window| window.parse().unwrap_or_else(|error| panic!("{error}"))).collect())
    }

    fn at(time: &str) -> DateTime<Utc> {
        time.parse().unwrap_or_else(|error| panic!("{time}: {error}"))
    }

    #[test]
    fn a_pause_closes_it_and_each_change_is_counted() {
        let gate = gate(&[]);
        assert!(gate.is_open());
        gate.change(true);
        assert!(!gate.is_open() && gate.is_closed());
        gate.change(false);
        assert!(gate.is_open());
        assert_eq!(gate.changes(), 2);
        assert_eq!([gate.bar(true), gate.bar(true)], [true, false]);
        assert!(!gate.is_open() && gate.is_closed());
        assert!(gate.bar(false));
        assert!(gate.is_open());
        assert_eq!(gate.changes(), 4);
    }

    #[test]
    fn a_closed_window_stays_closed_without_a_pause() {
        let gate = gate(&["22:00-06:00 UTC"]);
        assert!(!gate.is_open() && !gate.is_closed());
    }

    #[test]
    fn without_a_window_it_is_always_open() {
        let window = gate(&[]);
        assert!(window.is_open() && !window.has_window());
    }

    #[test]
    fn with_a_window_it_is_closed_until_the_database_has_told_the_time() {
        let window = gate(&["22:00-06:00 UTC"]);
        assert!(!window.is_open());
        assert_eq!(window.tell(at("2026-03-28T23:00:00Z"), Instant::now()), None);
        assert!(window.is_open());
        assert_eq!(window.tell(at("2026-03-28T21:59:00Z"), Instant::now()), Some(SECOND * 60));
        assert!(!window.is_open());
    }

    #[test]
    fn it_closes_by_itself_counted_from_the_time_that_was_told_last() {
        let window = gate(&["22:00-06:00 UTC"]);
        assert_eq!(window.tell(at("2026-03-28T05:00:00Z"), Instant::now()), None);
        let long_ago = Instant::now().checked_sub(SECOND * 2).unwrap_or_else(|| panic!("the machine has just started"));
        assert_eq!(window.tell(at("2026-03-28T05:59:58.500Z"), long_ago), None, "it was open when it was asked");
        assert!(!window.is_open(), "it has closed half a second ago");
    }

    #[test]
    fn two_windows_are_open_when_both_are() {
        let window = gate(&["22:00-06:00 UTC", "Sat-Sun 00:00-24:00 Europe/Berlin"]);
        // Friday night in UTC is Saturday in Berlin from 23:00 on.
        assert_eq!(window.tell(at("2026-03-27T12:00:00Z"), Instant::now()), Some(SECOND * 3600 * 11));
        assert_eq!(window.tell(at("2026-03-27T22:30:00Z"), Instant::now()), Some(SECOND * 1800));
        assert_eq!(window.tell(at("2026-03-27T23:00:00Z"), Instant::now()), None);
        let never = gate(&["Mon 10:00-11:00 UTC", "Mon 12:00-13:00 UTC"]);
        assert_eq!(never.tell(at("2026-03-27T23:00:00Z"), Instant::now()), Some(Duration::MAX));
        let always = gate(&["00:00-24:00 UTC"]);
        assert_eq!(always.tell(at("2026-03-27T23:00:00Z"), Instant::now()), None);
        assert!(always.is_open());
    }

    #[test]
    fn a_window_that_cannot_be_read_is_a_finding_with_its_mend() {
        let finding = Gate::new("Payment", Some("22:00-06:00 Berlin"), None).unwrap_err();
        assert!(finding.problem.contains("the time zone `Berlin` is not in the IANA database"), "{}", finding.problem);
        assert!(finding.mend.contains("Mon-Fri 22:00-06:00 Europe/Berlin"), "{}", finding.mend);
    }
}
