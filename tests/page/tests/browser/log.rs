//! What the browser complains about: scripts that fail, what the policy of a page forbids, files that are missing.

use serde_json::Value;

use super::window::Browser;
use super::wire::Command;

impl Browser {
    /// Takes the errors that the browser's console shows since the last time.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let lines = self.command(Command::log()).unwrap_or_else(|error| panic!("no log: {error}"));
        let lines = lines.as_array().cloned().unwrap_or_default();
        let severe = lines.iter().filter(|line| line["level"] == "SEVERE");
        severe.filter_map(|line| line["message"].as_str()).map(str::to_owned).collect()
    }

    /// The text of an open dialog, which a script has raised.
    pub(crate) fn dialog(&self) -> Option<String> {
        self.ask(self.client().get_alert_text()).ok()
    }

    /// Asserts that no script has raised a dialog or failed, and that the page has kept its own policy.
    pub(crate) fn assert_quiet(&self, what: &str) {
        assert_eq!(self.dialog(), None, "a dialog on {what}");
        assert_eq!(self.complaints(), [""; 0], "the browser complains about {what}");
    }

    /// Runs a script of the test's own, which works on pages that forbid all others.
    pub(crate) fn script(&self, script: &str) -> Value {
        self.ask(self.client().execute(script, Vec::new())).unwrap_or_else(|error| panic!("{script}: {error}"))
    }
}
