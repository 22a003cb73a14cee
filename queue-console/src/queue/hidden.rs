//! What reports say of rows: with keys as people write them, and without the values of hidden columns.

use queueable::report::{Backlog, Explanations};
use queueable::{Explanation, Paused};

use super::facts::Facts;

/// What stands in the place of the column and the value of a pause.
const HIDDEN_PAUSE: &str = "a value that is not shown";

/// What stands in the place of a value.
const HIDDEN: &str = "[hidden]";

impl Facts {
    /// Whether nobody is to see the values by which the rows take turns.
    pub(crate) fn hides_turns(&self) -> bool {
        self.options.lanes.is_some_and(|lanes| self.is_secret(lanes.column))
    }

    /// Takes a value that is not shown out of a pause of this queue.
    pub(crate) fn shown_pause(&self, mut pause: Paused) -> Paused {
        if self.hides_turns() {
            pause.value = pause.value.map(|_| HIDDEN_PAUSE.to_owned());
        }
        pause
    }

    pub(super) fn shown_backlog(&self, mut backlog: Backlog) -> Backlog {
        backlog.paused = backlog.paused.into_iter().map(|pause| self.shown_pause(pause)).collect();
        backlog
    }

    pub(super) fn shown_explanation(&self, explanation: Explanation) -> Explanation {
        match explanation {
            Explanation::Paused { pause } => Explanation::Paused { pause: self.shown_pause(pause) },
            Explanation::NoPlace { by: Some((column, _)), at_most } if self.is_secret(&column) => {
                Explanation::NoPlace { by: Some((column, HIDDEN.to_owned())), at_most }
            }
            Explanation::Behind { key, time } => Explanation::Behind { key: self.key_of(&key).unwrap_or(key), time },
            other => other,
        }
    }

    pub(super) fn shown_explanations(&self, mut explanations: Explanations) -> Explanations {
        for reason in &mut explanations.reasons {
            let explanation = std::mem::replace(&mut reason.explanation, Explanation::Due);
            reason.explanation = self.shown_explanation(explanation);
            if let Some(key) = self.key_of(&reason.example) {
                reason.example = key;
            }
        }
        explanations
    }

    /// What a change was about, as the audit says it, without a value that is not shown.
    pub(crate) fn shown_filter(&self, action: &str, filter: &str) -> String {
        let is_of_pause = matches!(action.split(' ').next(), Some("pause" | "unpause"));
        let is_of_value = |lane: &str| filter.strip_prefix(lane).is_some_and(|rest| rest.starts_with(" = "));
        let lanes = self.options.lanes.filter(|lanes| self.is_secret(lanes.column) && is_of_value(lanes.column));
        match lanes.filter(|_| is_of_pause) {
            Some(_) => HIDDEN_PAUSE.to_owned(),
            None => filter.to_owned(),
        }
    }
}
