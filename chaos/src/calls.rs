//! What the workers have noted in the file of their calls.

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
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| parse(line).with_context(|| format!("not a call: {line}"))).collect()
}

fn parse(line: &str) -> Option<Call> {
    let [payment, key, attempt, process] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    Some(Call {
        payment: payment.parse().ok()?,
        key: key.to_owned(),
        attempt: attempt.parse().ok()?,
        process: process.parse().ok()?,
    })
}
