//! Whether the messages of an entity may be processed now, by its window and the poller's, and by the database's clock.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};

use crate::entity::Window;
use crate::error::Finding;
use crate::lock::Mutex;

/// The windows of one entity in a poller. The scout repeatedly tells it the database's time. Between two times, the
/// workers count from the last one.
#[derive(Debug)]
pub(crate) struct WindowGate {
    windows: Vec<Window>,
    /// Until when it is open, while it is. Without a window it always is.
    open: Mutex<Open>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Not,
    Until(Instant),
    Always,
}

impl WindowGate {
    /// Makes the gate of an entity, with the windows of its attributes and of the poller's settings.
    pub(crate) fn new(entity: &str, own: Option<&str>, pollers: Option<&Window>) -> Result<Self, Finding> {
        let own = own.map(str::parse::<Window>).transpose().map_err(|error| Finding {
            entity: entity.to_owned(),
            problem: error.to_string(),
            mend: "correct #[queue(window = \"..\")], for example to \"Mon-Fri 22:00-06:00 Europe/Berlin\"".to_owned(),
        })?;
        Ok(WindowGate::of(own.into_iter().chain(pollers.cloned()).collect()))
    }

    fn of(windows: Vec<Window>) -> Self {
        let open = if windows.is_empty() { Open::Always } else { Open::Not };
        WindowGate { windows, open: Mutex::new(open) }
    }

    /// Tells whether it ever closes.
    pub(crate) fn has_window(&self) -> bool {
        !self.windows.is_empty()
    }

    /// Tells whether messages may be processed, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        match *self.open.lock() {
            Open::Not => false,
            Open::Until(until) => Instant::now() < until,
            Open::Always => true,
        }
    }

    /// Takes the database's time, which was asked for at `asked`, and returns how long the gate stays closed, if it is.
    pub(crate) fn tell(&self, now: DateTime<Utc>, asked: Instant) -> Option<Duration> {
        let closed = self.windows.iter().any(|window| !window.is_open(now));
        let closes = self.windows.iter().filter_map(|window| window.closes(now)).min();
        *self.open.lock() = match closes {
            _ if closed => Open::Not,
            Some(closes) => asked.checked_add(until(closes, now)).map_or(Open::Always, Open::Until),
            None => Open::Always,
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

fn until(time: DateTime<Utc>, now: DateTime<Utc>) -> Duration {
    (time - now).max(TimeDelta::zero()).to_std().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn gate(windows: &[&str]) -> WindowGate {
        WindowGate::of(windows.iter().map(|window| window.parse().unwrap_or_else(|error| panic!("{error}"))).collect())
    }

    fn at(time: &str) -> DateTime<Utc> {
        time.parse().unwrap_or_else(|error| panic!("{time}: {error}"))
    }

    #[test]
    fn without_a_window_it_is_always_open() {
        let window_gate = gate(&[]);
        assert!(window_gate.is_open() && !window_gate.has_window());
    }

    #[test]
    fn with_a_window_it_is_closed_until_the_database_has_told_the_time() {
        let window_gate = gate(&["22:00-06:00 UTC"]);
        assert!(!window_gate.is_open());
        assert_eq!(window_gate.tell(at("2026-03-28T23:00:00Z"), Instant::now()), None);
        assert!(window_gate.is_open());
        assert_eq!(window_gate.tell(at("2026-03-28T21:59:00Z"), Instant::now()), Some(SECOND * 60));
        assert!(!window_gate.is_open());
    }

    #[test]
    fn it_closes_by_itself_counted_from_the_time_that_was_told_last() {
        let window_gate = gate(&["22:00-06:00 UTC"]);
        assert_eq!(window_gate.tell(at("2026-03-28T05:00:00Z"), Instant::now()), None);
        let long_ago = Instant::now().checked_sub(SECOND * 2).unwrap_or_else(|| panic!("the machine has just started"));
        assert_eq!(window_gate.tell(at("2026-03-28T05:59:58.500Z"), long_ago), None, "it was open when it was asked");
        assert!(!window_gate.is_open(), "it has closed half a second ago");
    }

    #[test]
    fn two_windows_are_open_when_both_are() {
        let window_gate = gate(&["22:00-06:00 UTC", "Sat-Sun 00:00-24:00 Europe/Berlin"]);
        // Friday night in UTC is Saturday in Berlin from 23:00 on.
        assert_eq!(window_gate.tell(at("2026-03-27T12:00:00Z"), Instant::now()), Some(SECOND * 3600 * 11));
        assert_eq!(window_gate.tell(at("2026-03-27T22:30:00Z"), Instant::now()), Some(SECOND * 1800));
        assert_eq!(window_gate.tell(at("2026-03-27T23:00:00Z"), Instant::now()), None);
        let never = super::tests::gate(&["Mon 10:00-11:00 UTC", "Mon 12:00-13:00 UTC"]);
        assert_eq!(never.tell(at("2026-03-27T23:00:00Z"), Instant::now()), Some(Duration::MAX));
        let always = super::tests::gate(&["00:00-24:00 UTC"]);
        assert_eq!(always.tell(at("2026-03-27T23:00:00Z"), Instant::now()), None);
        assert!(always.is_open());
    }

    #[test]
    fn a_window_that_cannot_be_read_is_a_finding_with_its_mend() {
        let finding = WindowGate::new("Payment", Some("22:00-06:00 Berlin"), None).unwrap_err();
        assert!(finding.problem.contains("the time zone `Berlin` is not in the IANA database"), "{}", finding.problem);
        assert!(finding.mend.contains("Mon-Fri 22:00-06:00 Europe/Berlin"), "{}", finding.mend);
    }
}
