//! Removes from texts what they must not show: passwords, and whatever the application redacts.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The replacement for a secret.
const HIDDEN: &str = "***";

/// The replacement for a text that could not be redacted.
const UNREDACTED: &str = "the text is not shown: its redaction panicked";

/// The application's own redaction of texts, see [`Poller::redact`](crate::Poller::redact).
#[derive(Clone)]
pub struct Redact(Arc<dyn Fn(&str) -> String + Send + Sync>);

impl Redact {
    /// Rewrites texts with this function.
    pub fn new(redact: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Redact(Arc::new(redact))
    }

    /// Rewrites a text. If the function panics, nothing of the text is shown.
    pub(crate) fn apply(&self, text: &str) -> String {
        catch_unwind(AssertUnwindSafe(|| (self.0)(text))).unwrap_or_else(|panic| {
            std::mem::forget(panic);
            UNREDACTED.to_owned()
        })
    }
}

impl fmt::Debug for Redact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redact(..)")
    }
}

impl PartialEq for Redact {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Redact {}

/// Hides passwords, and the parts that the application wants hidden.
pub(crate) fn redacted(text: &str, redact: Option<&Redact>) -> String {
    let text = hide_passwords(text);
    match redact {
        Some(redact) => redact.apply(&text),
        None => text,
    }
}

/// Hides the passwords in URLs (`scheme://user:password@host`) and in settings (`password=..`).
pub(crate) fn hide_passwords(text: &str) -> String {
    hide_settings(&hide_in_urls(text))
}

/// Hides the parts of a URL that the text of a failed connection may contain. A client library that cannot parse a URL
/// quotes parts of it, and a password with `/` or `@` in it puts the wrong parts into the wrong places.
pub(crate) fn hide_connection_secrets(text: &str) -> String {
    let text = hide_passwords(text);
    // This server was reached, so its address was parsed as it was meant.
    if text.contains("connection to server ") {
        return text;
    }
    let mut parts = text.split('"');
    let mut hidden = parts.next().unwrap_or_default().to_owned();
    while let Some(quoted) = parts.next() {
        let kept = match quoted.rsplit_once('@') {
            _ if hidden.ends_with("connection option ") => quoted.to_owned(),
            Some((_, host)) if hidden.ends_with("host name ") => format!("{HIDDEN}@{host}"),
            None if hidden.ends_with("host name ") => quoted.to_owned(),
            _ => HIDDEN.to_owned(),
        };
        hidden = hidden + "\"" + &kept;
        if let Some(rest) = parts.next() {
            hidden = hidden + "\"" + rest;
        }
    }
    hidden
}

fn hide_in_urls(text: &str) -> String {
    let (mut hidden, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        let scheme = before[..at].rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let end = after.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>')).unwrap_or(after.len());
        let (url, beyond) = after.split_at(end);
        // A password in a database's URL may contain a `/` that should have been escaped.
        let is_database = ["postgres", "postgresql", "mysql", "mariadb"].contains(&scheme);
        let authority = if is_database { url } else { &url[..url.find(['/', '?', '#']).unwrap_or(url.len())] };
        hidden += before;
        match authority.rsplit_once('@').and_then(|(user, _)| Some((user.split_once(':')?.0, user.len()))) {
            Some((user, length)) => hidden = hidden + user + ":" + HIDDEN + &url[length..],
            None => hidden += url,
        }
        rest = beyond;
    }
    hidden + rest
}

fn hide_settings(text: &str) -> String {
    const NAMES: [&str; 3] = ["password", "passwd", "pwd"];
    let (mut hidden, mut rest) = (String::new(), text);
    loop {
        // The bytes keep their places: only ASCII changes.
        let lower = rest.to_ascii_lowercase();
        let found = NAMES.iter().filter_map(|name| Some((lower.find(name)?, name.len()))).min();
        let Some((at, length)) = found else { return hidden + rest };
        let (name, after) = rest.split_at(at + length);
        hidden += name;
        rest = after;
        let value = after.trim_start().strip_prefix('=').map(str::trim_start);
        if let Some(value) = value {
            let end = match value.strip_prefix('\'') {
                Some(quoted) => quoted.find('\'').map_or(value.len(), |end| end + 2),
                None => value.find(|c: char| c.is_whitespace() || "&\"';,)".contains(c)).unwrap_or(value.len()),
            };
            hidden = hidden + "=" + HIDDEN;
            rest = &value[end..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_wherever_they_stand() {
        for (text, hidden) in [
            ("postgres://me:secret@db/app", "postgres://me:***@db/app"),
            ("at postgres://me:se/cr@et@db:5432/app now", "at postgres://me:***@db:5432/app now"),
            ("https://me:secret@api.example/x?y=a@b", "https://me:***@api.example/x?y=a@b"),
            ("https://api.example:8080/x?to=a@b", "https://api.example:8080/x?to=a@b"),
            ("host=db password=secret user=me", "host=db password=*** user=me"),
            ("PASSWORD = 'two words' user=me", "PASSWORD=*** user=me"),
            ("sslpassword=secret&x=1", "sslpassword=***&x=1"),
            ("password authentication failed for user \"me\"", "password authentication failed for user \"me\""),
            ("größer: pwd=ß;", "größer: pwd=***;"),
            ("", ""),
        ] {
            assert_eq!(hide_passwords(text), hidden);
        }
    }

    #[test]
    fn what_a_client_quotes_of_a_url_that_it_cannot_read_is_hidden() {
        for (text, hidden) in [
            (
                "invalid integer value \"secr\" for connection option \"port\"",
                "invalid integer value \"***\" for connection option \"port\"",
            ),
            (
                "could not translate host name \"et@db\" to address: x",
                "could not translate host name \"***@db\" to address: x",
            ),
            (
                "could not translate host name \"db\" to address: x",
                "could not translate host name \"db\" to address: x",
            ),
            ("invalid percent-encoded token: \"se%cret\"", "invalid percent-encoded token: \"***\""),
            ("missing \"=\" after \"secret\" in", "missing \"***\" after \"***\" in"),
            (
                "connection to server at \"127.0.0.1\", port 5432 failed: FATAL:  role \"me\" does not exist",
                "connection to server at \"127.0.0.1\", port 5432 failed: FATAL:  role \"me\" does not exist",
            ),
        ] {
            assert_eq!(hide_connection_secrets(text), hidden);
        }
    }

    #[test]
    fn a_redaction_that_panics_tells_nothing() {
        let redact = Redact::new(|_| panic!("in redact"));
        assert_eq!(redacted("secret", Some(&redact)), UNREDACTED);
    }
}
