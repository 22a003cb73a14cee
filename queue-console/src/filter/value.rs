//! The values of a condition, each as its column takes it.

use std::fmt;

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};
use queueable::columns::Instant;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Integer(i64),
    Float(f64),
    /// Also an integer beyond 64 bits with a sign.
    Decimal(Decimal),
    /// Also a value of a type that the library does not know.
    Text(String),
    Boolean(bool),
    Date(NaiveDate),
    TimeOfDay(NaiveTime),
    Timestamp(NaiveDateTime),
    Instant(Instant),
    Uuid(UuidBytes),
    Bytes(Vec<u8>),
}

/// A decimal number, exactly as it was written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Decimal(pub(super) String);

/// The bytes of a UUID.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct UuidBytes(pub(super) [u8; 16]);

impl UuidBytes {
    /// Reads a UUID with its hyphens, or without any.
    pub(super) fn read(text: &str) -> Option<Self> {
        let is_hyphenated = text.len() == 36 && [8, 13, 18, 23].iter().all(|at| text.as_bytes()[*at] == b'-');
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let is_plain = text.len() == 32;
        if !(is_hyphenated || is_plain) || digits.len() != 32 || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        u128::from_str_radix(&digits, 16).ok().map(|number| UuidBytes(number.to_be_bytes()))
    }
}

/// As a literal, for the text of a filter in the audit.
impl fmt::Debug for UuidBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl fmt::Display for UuidBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", u128::from_be_bytes(self.0));
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        f.write_str(&parts.join("-"))
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As a condition writes it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(integer) => write!(f, "{integer}"),
            // `Display` would write out 1e300.
            Value::Float(float) => write!(f, "{float:?}"),
            Value::Decimal(Decimal(decimal)) => f.write_str(decimal),
            Value::Text(text) => write_text(f, text),
            Value::Boolean(boolean) => write!(f, "{boolean}"),
            Value::Date(date) => write!(f, "'{}'", date.format("%Y-%m-%d")),
            Value::TimeOfDay(time) => write!(f, "'{}'", time.format("%H:%M:%S%.f")),
            Value::Timestamp(time) => write!(f, "'{}'", time.format("%Y-%m-%dT%H:%M:%S%.f")),
            Value::Instant(time) => write!(f, "'{}'", time.format("%Y-%m-%dT%H:%M:%S%.fZ")),
            Value::Uuid(uuid) => write!(f, "'{uuid}'"),
            Value::Bytes(bytes) => {
                f.write_str("x'")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("'")
            }
        }
    }
}

/// Writes a text between single quotes.
pub(super) fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "'{}'", text.replace('\'', "''"))
}
