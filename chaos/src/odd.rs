//! Errors whose texts are hard to print or hard to store.

use std::error::Error;
use std::fmt;

/// The words that follow `errs ` in the kind of a payment that fails with such an error.
pub(crate) const ODD: &[&str] =
    &["nul", "emoji", "huge", "lossy", "control", "panics", "silent", "quotes", "bidirectional", "parts"];

/// An error that is hard to print.
#[derive(Debug)]
pub(crate) struct Odd(String);

impl Odd {
    /// The error of a payment of this kind.
    pub(crate) fn of(kind: &str) -> Self {
        Odd(kind.strip_prefix("errs ").unwrap_or(kind).to_owned())
    }
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            "nul" => f.write_str("\0 at the beginning, in the \0\0 middle and at the end \0"),
            "emoji" => f.write_str(&"💥👩‍👩‍👧‍👦🏳️‍🌈".repeat(1000)),
            "huge" => f.write_str(&"twenty megabytes ".repeat(20_000_000 / 17)),
            "lossy" => f.write_str(&String::from_utf8_lossy(b"\xff\xfe broken \xc3( \xed\xa0\x80 \xf0\x9f")),
            "control" => (0..0xa0u8).try_for_each(|code| f.write_str(char::from(code).encode_utf8(&mut [0; 4]))),
            "panics" => f.write_str("half of it").map(|()| panic!("planned panic in Display")),
            "silent" => Err(fmt::Error),
            "quotes" => f.write_str("'; DROP TABLE payments; -- \\' \" ` \\0 $1 ? %s {} \\x00"),
            "bidirectional" => f.write_str("\u{202e}\u{2066}\u{feff}\u{ffff}\u{10ffff}\u{e000}a\u{300}\u{300}"),
            // Characters of three bytes, so that a limit falls into the middle of one.
            _ => (0..500_000).try_for_each(|_| f.write_str("€")),
        }
    }
}

impl Error for Odd {}
