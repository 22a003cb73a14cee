//! The stages in which a poller claims rows: those that it serves, without those that are paused.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lock::unpoisoned;

/// The lists of stages that were left when others were paused, each once. They are few, and stay for good, so that
/// a claim borrows its list although the pauses change meanwhile.
static LEFT: Mutex<Vec<&'static [&'static str]>> = Mutex::new(Vec::new());

/// The stages in which a poller claims rows.
#[derive(Default)]
pub(crate) struct ServedStages {
    /// Those that it serves, if not all.
    served: Option<Vec<&'static str>>,
    /// The place in `LEFT`, counted from 1, of those that are left by pauses; 0 if no stage is paused.
    left: AtomicUsize,
}

impl ServedStages {
    /// Serves only these.
    pub(super) fn serve(&mut self, stages: Vec<&'static str>) {
        self.served = Some(stages);
    }

    /// Returns the stages, if not all.
    pub(super) fn now(&self) -> Option<&[&'static str]> {
        match self.left.load(Ordering::Acquire).checked_sub(1) {
            None => self.served.as_deref(),
            Some(place) => unpoisoned(LEFT.lock()).get(place).copied(),
        }
    }

    /// Leaves out the paused stages of all that the entity has. Returns whether any is left; if none is, nothing
    /// changes.
    pub(super) fn leave_out(&self, all: &'static [&'static str], paused: &[String]) -> bool {
        let served = self.served.as_deref().unwrap_or(all);
        let left: Vec<_> =
            served.iter().copied().filter(|stage| !paused.iter().any(|paused| paused == stage)).collect();
        if left.is_empty() {
            return false;
        }
        self.left.store(if left.len() == served.len() { 0 } else { place_of(left) }, Ordering::Release);
        true
    }
}

/// Returns the place of a list in `LEFT`, counted from 1.
fn place_of(stages: Vec<&'static str>) -> usize {
    let mut lists = unpoisoned(LEFT.lock());
    let place = lists.iter().position(|list| *list == stages).unwrap_or_else(|| {
        lists.push(stages.leak());
        lists.len() - 1
    });
    place + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[&str] = &["RENDER", "SEND", "BOOK"];

    fn paused(stages: &[&str]) -> Vec<String> {
        stages.iter().map(|stage| (*stage).to_owned()).collect()
    }

    #[test]
    fn paused_stages_are_left_out_until_they_are_not_paused() {
        let stages = ServedStages::default();
        assert_eq!(stages.now(), None);
        assert!(stages.leave_out(ALL, &paused(&["SEND"])));
        assert_eq!(stages.now(), Some(["RENDER", "BOOK"].as_slice()));
        assert!(stages.leave_out(ALL, &[]));
        assert_eq!(stages.now(), None);
    }

    #[test]
    fn a_poller_of_some_stages_keeps_to_those() {
        let mut stages = ServedStages::default();
        stages.serve(vec!["SEND", "BOOK"]);
        assert!(stages.leave_out(ALL, &paused(&["RENDER"])));
        assert_eq!(stages.now(), Some(["SEND", "BOOK"].as_slice()));
        assert!(stages.leave_out(ALL, &paused(&["BOOK"])));
        assert_eq!(stages.now(), Some(["SEND"].as_slice()));
        assert!(!stages.leave_out(ALL, &paused(&["SEND", "BOOK"])), "no stage is left");
    }
}
