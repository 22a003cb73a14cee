//! The file in which workers note their calls of the outside world.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

/// One call of the outside world.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    pub(crate) payment: i64,
    /// The idempotency key that it carried.
    pub(crate) key: String,
    pub(crate) attempt: u32,
    /// The process that made it.
    pub(crate) process: u32,
}

/// All calls so far, in their order.
pub(crate) fn calls(file: &Path) -> Result<Vec<Call>> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context("the calls cannot be read"),
    };
    Ok(text.lines().filter_map(parse).collect())
}

impl fmt::Display for Call {
    /// A line, which begins with a line end: a process that is killed while it writes may leave a piece of a line, and the next
    /// line must not continue it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{} {} {} {} {END}", self.payment, self.key, self.attempt, self.process)
    }
}

/// Ends each line, and so tells a whole line from a piece of one.
const END: &str = ".";

/// Reads a line. A piece of a line stands for no call: its process died before it made the call.
fn parse(line: &str) -> Option<Call> {
    let [payment, key, attempt, process, END] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    Some(Call {
        payment: payment.parse().ok()?,
        key: key.to_owned(),
        attempt: attempt.parse().ok()?,
        process: process.parse().ok()?,
    })
}
