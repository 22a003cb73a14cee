//! The stages in which a poller claims rows: those that it serves, without those that are paused.

use crate::sync::Mutex;

/// The lists of stages that were left when others were paused, each once. They are few, and stay for good, so that
/// a claim borrows its list although the pauses change meanwhile.
static LEFT: Mutex<Vec<&'static [&'static str]>> = Mutex::new(Vec::new());

/// The stages in which a poller claims rows.
pub(crate) struct ServedStages {
    /// Those that it serves, if not all.
    served: Option<Vec<&'static str>>,
    /// Those that are left by pauses, if any stage is paused.
    left: Mutex<Option<&'static [&'static str]>>,
}

impl ServedStages {
    /// Serves only these, or all.
    pub(super) fn of(served: Option<Vec<&'static str>>) -> Self {
        ServedStages { served, left: Mutex::default() }
    }

    /// Returns the stages, if not all.
    pub(super) fn now(&self) -> Option<&[&'static str]> {
        self.left.lock().or(self.served.as_deref())
    }

    /// Leaves out the paused stages of all that the entity has. Returns whether any is left; if none is, nothing
    /// changes.
    pub(crate) fn leave_out(&self, all: Option<&'static [&'static str]>, paused: &[String]) -> bool {
        let Some(served) = self.served.as_deref().or(all) else { return true };
        let left: Vec<_> =
            served.iter().copied().filter(|stage| !paused.iter().any(|paused| paused == stage)).collect();
        if left.is_empty() {
            return false;
        }
        *self.left.lock() = (left.len() < served.len()).then(|| kept(left));
        true
    }
}

/// Returns a list of `LEFT`.
fn kept(stages: Vec<&'static str>) -> &'static [&'static str] {
    let mut lists = LEFT.lock();
    lists.iter().copied().find(|list| **list == *stages).unwrap_or_else(|| {
        lists.push(stages.leak());
        lists[lists.len() - 1]
    })
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
        let stages = ServedStages::of(None);
        assert_eq!(stages.now(), None);
        assert!(stages.leave_out(Some(ALL), &paused(&["SEND"])));
        assert_eq!(stages.now(), Some(["RENDER", "BOOK"].as_slice()));
        assert!(stages.leave_out(Some(ALL), &[]));
        assert_eq!(stages.now(), None);
    }

    #[test]
    fn a_poller_of_some_stages_keeps_to_those() {
        let stages = ServedStages::of(Some(vec!["SEND", "BOOK"]));
        assert!(stages.leave_out(Some(ALL), &paused(&["RENDER"])));
        assert_eq!(stages.now(), Some(["SEND", "BOOK"].as_slice()));
        assert!(stages.leave_out(Some(ALL), &paused(&["BOOK"])));
        assert_eq!(stages.now(), Some(["SEND"].as_slice()));
        assert!(!stages.leave_out(Some(ALL), &paused(&["SEND", "BOOK"])), "no stage is left");
    }
}
