//! Commands of the driver that the WebDriver client does not have.

use std::fmt::Debug;

use fantoccini::wd::WebDriverCompatibleCommand;
use http::Method;
use serde_json::{Value, json};
use url::{ParseError, Url};

/// A command by its path below the session, with its body if it is a POST.
#[derive(Debug)]
pub(super) struct Command {
    path: String,
    body: Option<Value>,
}

impl Command {
    /// A command of Chromium's own protocol.
    pub(super) fn of_chromium(name: &str, parameters: Value) -> Self {
        Command { path: "goog/cdp/execute".to_owned(), body: Some(json!({ "cmd": name, "params": parameters })) }
    }

    /// Takes the lines that the browser has written to its console since the last time.
    pub(super) fn log() -> Self {
        Command { path: "se/log".to_owned(), body: Some(json!({ "type": "browser" })) }
    }

    /// The role of an element, as a screen reader says it.
    pub(super) fn role(element: &str) -> Self {
        Command { path: format!("element/{element}/computedrole"), body: None }
    }

    /// The name of an element, as a screen reader says it.
    pub(super) fn name(element: &str) -> Self {
        Command { path: format!("element/{element}/computedlabel"), body: None }
    }
}

impl WebDriverCompatibleCommand for Command {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        match &self.body {
            Some(body) => (Method::POST, Some(body.to_string())),
            None => (Method::GET, None),
        }
    }
}
