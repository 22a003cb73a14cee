//! What torment tells.

use std::fmt;

/// An effect that is not there as often as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Effect {
    /// Whether it is one of the outside world's. If not, it is a row of the database.
    pub is_outside: bool,
    /// Its text.
    pub what: String,
    /// How often it is there.
    pub times: usize,
    /// How often it is there after a run that nothing disturbed.
    pub expected: usize,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_outside { "outside" } else { "in the database" };
        let Effect { what, times, expected, .. } = self;
        match (times, expected) {
            (0, _) => write!(f, "missing {place}: {what}"),
            (1, 0) => write!(f, "{place} and not expected: {what}"),
            _ => write!(f, "{place} {} instead of {}: {what}", often(*times), often(*expected)),
        }
    }
}

fn often(times: usize) -> String {
    match times {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        times => format!("{times} times"),
    }
}

/// How a handler was found not to be idempotent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Story {
    /// How the world ended.
    pub end: String,
    /// How the row ended, if not as it does when nothing disturbs the handler.
    pub row: Option<String>,
    /// The effects that are missing, doubled, or not expected.
    pub effects: Vec<Effect>,
    /// The attempts that were seen, each in a line.
    pub attempts: Vec<String>,
    /// The call that gives the handler its idempotency key.
    pub(super) key: &'static str,
}

impl Story {
    /// Says what a right handler does instead.
    pub fn advice(&self) -> String {
        let any = |is_outside, is_more| {
            let is_so =
                |effect: &Effect| effect.is_outside == is_outside && (effect.times > effect.expected) == is_more;
            self.effects.iter().any(is_so)
        };
        let key = self.key;
        if any(true, true) {
            return format!(
                "a call of the outside world is not undone by a rollback: send `{key}` with it, so that the receiver does it once; or \
                 write a row for the call in this transaction, and make the call from that row's own queue"
            );
        }
        if any(true, false) {
            return format!(
                "do not note a call as done before it is: make it again at the next attempt, with `{key}`, and note it in the \
                 transaction that writes its answer"
            );
        }
        if any(false, false) || any(false, true) {
            return "keep nothing of an attempt but what it writes on `message.connection()`: a static, a cache, a file or another \
                    connection is not undone by a rollback; and count from what the database holds, not from what the last attempt \
                    left in memory"
                .to_owned();
        }
        "let the next attempt find its way through what the last one left behind: what the outside world has already, it may \
         refuse a second time, and that is a success"
            .to_owned()
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.end)?;
        for effect in &self.effects {
            write!(f, "\n  {effect}")?;
        }
        if let Some(row) = &self.row {
            write!(f, "\n  {row}")?;
        }
        for attempt in &self.attempts {
            write!(f, "\n  attempt: {attempt}")?;
        }
        write!(f, "\na right handler: {}", self.advice())
    }
}
