//! How a bug changes a file of the core: only while it is alive, so that one build holds all bugs.

use anyhow::{Result, ensure};

/// A change of one file.
pub(crate) struct Edit {
    /// Its path in `queue-core/src`.
    pub(crate) file: &'static str,
    /// What is in the file exactly once.
    text: &'static str,
    /// What the bug does.
    code: &'static str,
    place: Place,
}

enum Place {
    Before,
    InsteadOf,
}

/// Runs these statements before the text, with which a statement begins.
pub(crate) const fn before(file: &'static str, text: &'static str, code: &'static str) -> Edit {
    Edit { file, text, code, place: Place::Before }
}

/// Evaluates this expression instead of the text, which is a whole expression.
pub(crate) const fn instead_of(file: &'static str, text: &'static str, code: &'static str) -> Edit {
    Edit { file, text, code, place: Place::InsteadOf }
}

impl Edit {
    /// The source of the file with this change, which is made where the condition holds.
    pub(crate) fn apply(&self, source: &str, condition: &str) -> Result<String> {
        let Edit { file, text, code, .. } = self;
        let times = source.matches(text).count();
        ensure!(times == 1, "{file} has this text {times} times instead of once: {text}");
        let edited = match self.place {
            Place::Before => format!("if {condition} {{ {code} }}\n{text}"),
            Place::InsteadOf => format!("if {condition} {{ {code} }} else {{ {text} }}"),
        };
        Ok(source.replacen(text, &edited, 1))
    }
}
