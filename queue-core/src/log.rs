//! A rate-limited log, one line per cause and second and then a count; and what no text may show: passwords, and whatever
//! the application redacts.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::r2d2::HandleError;

use crate::sync::Mutex;
use crate::sync::in_test::note_warning;

const PERIOD: Duration = Duration::from_secs(1);

/// How many causes are remembered, so that a program that makes up new ones for ever does not grow without bound.
const CAUSES: usize = 256;

/// Logs each cause at most once in a period.
#[derive(Default)]
pub(crate) struct RateLimitedLog {
    causes: Mutex<HashMap<String, (Instant, u64)>>,
    redact: Option<Redact>,
}

impl RateLimitedLog {
    /// Makes a log whose lines `redact` rewrites.
    pub(crate) fn new(redact: Option<Redact>) -> Self {
        RateLimitedLog { redact, ..Default::default() }
    }

    /// Logs a warning, unless the same cause was logged within the last second.
    pub(crate) fn warn(&self, entity: &str, cause: &str) {
        note_warning(|| self.redacted(cause));
        if let Some(suppressed) = self.admit(cause, Instant::now()) {
            tracing::warn!(entity, suppressed, "{}", self.redacted(cause));
        }
    }

    /// Returns how often the cause was suppressed, if the caller may log it now.
    pub(crate) fn admits(&self, cause: &str) -> Option<u64> {
        self.admit(cause, Instant::now())
    }

    /// Returns a cause as it may be logged.
    pub(crate) fn redacted(&self, cause: &str) -> String {
        redacted(cause, self.redact.as_ref())
    }

    /// Returns how often the cause was suppressed, if it may be logged now.
    fn admit(&self, cause: &str, now: Instant) -> Option<u64> {
        let mut causes = self.causes.lock();
        if let Some((last, suppressed)) = causes.get_mut(cause) {
            if now.duration_since(*last) < PERIOD {
                *suppressed += 1;
                return None;
            }
            *last = now;
            return Some(std::mem::take(suppressed));
        }
        if causes.len() >= CAUSES {
            causes.retain(|_, (last, _)| now.duration_since(*last) < PERIOD);
        }
        if causes.len() < CAUSES {
            causes.insert(cause.to_owned(), (now, 0));
            return Some(0);
        }
        None
    }
}

/// Logs why a pool has no connections: one line for each cause and second, and without passwords.
///
/// A pool of r2d2's belongs to the application. By itself it logs each try of each of its threads as an error, with all
/// that the client library quotes of the URL. Give this to
/// [`Builder::error_handler`](diesel::r2d2::Builder::error_handler):
///
/// ```no_run
/// # use diesel::prelude::*;
/// # use diesel::r2d2::{ConnectionManager, Pool};
/// use queueable::PoolErrorLog;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::builder()
///     .error_handler(Box::new(PoolErrorLog::default()))
///     .build(ConnectionManager::<SqliteConnection>::new("app.sqlite"))?;
/// # Ok(()) }
/// ```
#[derive(Default)]
pub struct PoolErrorLog(RateLimitedLog);

impl<E: fmt::Display> HandleError<E> for PoolErrorLog {
    fn handle_error(&self, error: E) {
        self.0.warn("pool", &format!("a connection failed: {}", hide_connection_secrets(&error.to_string())));
    }
}

impl fmt::Debug for PoolErrorLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolErrorLog")
    }
}

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
                Some(quoted) => 1 + quoted_length(quoted),
                None => value.find(|c: char| c.is_whitespace() || "&\"';,)".contains(c)).unwrap_or(value.len()),
            };
            hidden = hidden + "=" + HIDDEN;
            rest = &value[end..];
        }
    }
}

/// Returns the length of what follows an opening quote, up to the end of the closing one. A quote inside is doubled, or follows a
/// backslash.
fn quoted_length(quoted: &str) -> usize {
    let mut chars = quoted.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '\'' if chars.next_if(|(_, next)| *next == '\'').is_none() => return at + 1,
            _ => {}
        }
    }
    quoted.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_logged_once_a_second_and_then_with_a_count() {
        let log = RateLimitedLog::default();
        let start = Instant::now();
        assert_eq!(log.admit("down", start), Some(0));
        assert_eq!(log.admit("down", start + PERIOD / 2), None);
        assert_eq!(log.admit("other", start), Some(0));
        assert_eq!(log.admit("down", start + PERIOD), Some(1));
        for i in 0..1000 {
            log.admit(&format!("cause {i}"), start);
        }
        assert!(log.causes.lock().len() <= CAUSES);
    }

    #[test]
    fn passwords_are_hidden_wherever_they_stand() {
        for (text, hidden) in [
            ("postgres://me:secret@db/app", "postgres://me:***@db/app"),
            ("at postgres://me:se/cr@et@db:5432/app now", "at postgres://me:***@db:5432/app now"),
            ("https://me:secret@api.example/x?y=a@b", "https://me:***@api.example/x?y=a@b"),
            ("https://api.example:8080/x?to=a@b", "https://api.example:8080/x?to=a@b"),
            ("host=db password=secret user=me", "host=db password=*** user=me"),
            ("PASSWORD = 'two words' user=me", "PASSWORD=*** user=me"),
            (r"password='a\'b ß' user=me", "password=*** user=me"),
            (r"password='ends with \\' user='me'", "password=*** user='me'"),
            ("password='it''s ß' user=me", "password=*** user=me"),
            ("password='' user=me", "password=*** user=me"),
            (r"password='never ends \", "password=***"),
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
