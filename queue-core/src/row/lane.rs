//! Lanes: how due rows are scheduled by the values of a column of the domain. The rows of one value are a lane.

use std::borrow::Cow;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// The longest value in the name of a pause, in bytes. The name of the column stands before it, and MySQL's key has 255 characters.
const LONGEST_PAUSE_NAME: usize = 160;

/// How due rows are scheduled by the values of a column of the domain. The rows of one value are a lane: the lanes take
/// turns, and each has a limited number of places.
///
/// The derive writes it, from `serial_by`, `at_most` and `fair_by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lanes {
    /// The name of the column. A row whose value is null is in no lane: no limit holds for it. All such rows together
    /// have one turn among the lanes.
    pub column: &'static str,
    /// What its values are.
    pub of: LaneValues,
    /// How many rows of a lane are attempted at the same time, over all processes. `None`: any number.
    pub at_most: Option<u32>,
    /// Whether a group takes no more than one row of each lane, and no row overtakes another while nothing fails.
    pub serial: bool,
    /// Whether a row that has failed, was interrupted or cannot be written holds the lane back until it is settled.
    pub strict: bool,
}

/// The values of a column by which rows are scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneValues {
    /// Their kind.
    pub kind: ValueKind,
    /// Whether one may be null.
    pub nullable: bool,
}

/// The kinds of values that make a lane: how a value is read, named and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueKind {
    /// An integer of any width.
    Integer,
    /// A text, compared by the column's collation.
    Text,
    /// A UUID of PostgreSQL.
    Uuid,
    /// Bytes, such as a UUID in MySQL and SQLite.
    Binary,
}

impl ValueKind {
    /// Tells whether a value may be too long for an index.
    pub(crate) const fn is_long(self) -> bool {
        matches!(self, ValueKind::Text | ValueKind::Binary)
    }
}

/// Rows that share places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lane {
    /// All rows of the queue.
    Queue,
    /// The rows without a value.
    NoValue,
    /// The rows with this value.
    Value(LaneValue),
}

/// The value that makes a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneValue {
    /// A text that every equal value has, and no other.
    pub identity: Arc<str>,
    /// The value as it is bound.
    pub bound: BoundValue,
}

/// A value as it is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundValue {
    /// An integer.
    Integer(i64),
    /// A text, or the text of a UUID.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
}

/// What stands between the identity of a text and the text, where they differ.
pub(crate) const IDENTITY_END: char = ':';

impl Lane {
    /// Returns a text that only this lane has among those of its queue.
    pub(crate) fn identity(&self) -> Arc<str> {
        match self {
            Lane::Queue => "queue".into(),
            Lane::NoValue => "no value".into(),
            Lane::Value(value) => format!("={}", value.identity).into(),
        }
    }

    /// Returns the name by which a pause knows it: its value, or a digest of one that is long. `None`: it cannot be paused.
    pub(crate) fn pause_name(&self) -> Option<Cow<'_, str>> {
        let identity = &self.value()?.identity;
        if identity.len() <= LONGEST_PAUSE_NAME {
            return Some(Cow::Borrowed(identity));
        }
        let digest = Sha256::digest(identity.as_bytes());
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
    }

    /// Returns the value of all its rows.
    pub(crate) fn value(&self) -> Option<&LaneValue> {
        match self {
            Lane::Value(value) => Some(value),
            Lane::Queue | Lane::NoValue => None,
        }
    }
}

impl LaneValue {
    /// Returns the value as people read it.
    pub(crate) fn text(&self) -> String {
        match &self.bound {
            BoundValue::Integer(integer) => integer.to_string(),
            BoundValue::Text(text) => text.clone(),
            BoundValue::Binary(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Reads the text that a database returns for a value of this kind. `has_identity`: the text begins with the
    /// identity.
    pub(crate) fn read(kind: ValueKind, text: String, has_identity: bool) -> Self {
        let (identity, text) = match text.split_once(IDENTITY_END) {
            Some((identity, text)) if has_identity && kind == ValueKind::Text => (identity.into(), text.to_owned()),
            _ => (text.as_str().into(), text),
        };
        let bound = match kind {
            // SQLite stores values of any type, whatever the column's.
            ValueKind::Integer => text.parse().map_or(BoundValue::Text(text), BoundValue::Integer),
            ValueKind::Text | ValueKind::Uuid => BoundValue::Text(text),
            ValueKind::Binary => bytes(&text).map_or(BoundValue::Text(text), BoundValue::Binary),
        };
        LaneValue { identity, bound }
    }
}

/// Reads hexadecimal digits.
fn bytes(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_by_its_kind() {
        let read = |kind, text: &str, has_identity| LaneValue::read(kind, text.to_owned(), has_identity);
        assert_eq!(read(ValueKind::Integer, "-7", false).bound, BoundValue::Integer(-7));
        assert_eq!(read(ValueKind::Integer, "seven", false).bound, BoundValue::Text("seven".to_owned()));
        assert_eq!(read(ValueKind::Binary, "00fF", false).bound, BoundValue::Binary(vec![0, 255]));
        for no_bytes in ["0", "+f", "0\u{e9}"] {
            assert_eq!(read(ValueKind::Binary, no_bytes, false).bound, BoundValue::Text(no_bytes.to_owned()));
        }
        let text = read(ValueKind::Text, "0041:a:b", true);
        assert_eq!((&*text.identity, text.bound), ("0041", BoundValue::Text("a:b".to_owned())));
        assert_eq!(read(ValueKind::Text, "a:b", false).bound, BoundValue::Text("a:b".to_owned()));
    }
}
