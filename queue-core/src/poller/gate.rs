//! Whether the messages of an entity may be processed now: by its windows, and by the pauses that operators ask for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::window_gate::WindowGate;

/// The gate of one entity in a poller.
pub(crate) struct Gate {
    pub(crate) window: WindowGate,
    is_paused: AtomicBool,
    /// Raised by each change of the pauses. A turn that began before a change begins no further message.
    changes: AtomicU64,
}

impl Gate {
    pub(crate) fn new(window: WindowGate) -> Self {
        Gate { window, is_paused: AtomicBool::new(false), changes: AtomicU64::new(0) }
    }

    /// Tells whether messages may be processed, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_paused() && self.window.is_open()
    }

    /// Tells whether nothing is to be processed because of a pause.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Acquire)
    }

    /// Returns how often the pauses have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Notes that the pauses have changed, and whether nothing is to be processed now.
    pub(crate) fn change(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_closes_it_and_each_change_is_counted() {
        let gate = Gate::new(WindowGate::new("Payment", None, None).unwrap());
        assert!(gate.is_open());
        gate.change(true);
        assert!(!gate.is_open() && gate.is_paused());
        gate.change(false);
        assert!(gate.is_open());
        assert_eq!(gate.changes(), 2);
    }

    #[test]
    fn a_closed_window_stays_closed_without_a_pause() {
        let gate = Gate::new(WindowGate::new("Payment", Some("22:00-06:00 UTC"), None).unwrap());
        assert!(!gate.is_open() && !gate.is_paused());
    }
}
