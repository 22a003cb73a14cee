//! Counts what handlers have done, and when they were called.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Counts the messages that were handled. Where latency is measured it also notes when each handler began.
#[derive(Debug, Default)]
pub struct Meter {
    handled: AtomicU64,
    begun: Option<Mutex<Vec<(i64, u64)>>>,
}

impl Meter {
    /// A meter that counts, and with `notes` also notes the times.
    pub fn new(notes: bool) -> Self {
        Meter { handled: AtomicU64::new(0), begun: notes.then(Mutex::default) }
    }

    /// Counts a message. To be called first thing in its handler, with the number that it was enqueued with.
    pub fn handled(&self, number: i64) {
        if let Some(begun) = &self.begun {
            begun.lock().expect("nobody panics while holding the notes").push((number, now()));
        }
        self.handled.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts several messages at once.
    pub fn handled_all(&self, numbers: impl ExactSizeIterator<Item = i64>) {
        if self.begun.is_some() {
            numbers.for_each(|number| self.handled(number));
        } else {
            self.handled.fetch_add(numbers.len() as u64, Ordering::Relaxed);
        }
    }

    /// How many messages were handled so far.
    pub fn count(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// The messages' numbers and when their handlers began, in nanoseconds since 1970.
    pub(crate) fn begun(&self) -> Vec<(i64, u64)> {
        let Some(begun) = &self.begun else { return Vec::new() };
        begun.lock().expect("nobody panics while holding the notes").clone()
    }
}

/// Nanoseconds since 1970, which are the same in every process of a machine.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970");
    u64::try_from(since.as_nanos()).expect("the clock is before 2500")
}
