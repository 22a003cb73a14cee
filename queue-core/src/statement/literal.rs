//! A value as an SQL literal: a time, or a primary key of one of the few types whose literals are certainly safe.
//!
//! Everywhere else statements bind their values. A text with several statements takes no binds, and is one round trip.

use std::any::{Any, TypeId, type_name};

use chrono::{DateTime, Utc};

use super::key_text::integer_text;
use crate::entity::is_integer;
use crate::row::{Instant, RowKey};

/// The application chooses the crate, so its type is recognized by name. Its text is checked all the same.
const UUID: &str = "uuid::Uuid";

/// Tells whether some values of a type have a safe literal.
pub(crate) fn has_literals<K: Any>() -> bool {
    is_integer::<K>() || TypeId::of::<K>() == TypeId::of::<String>() || type_name::<K>() == UUID
}

/// Returns the value as an SQL literal, if it is a whole number, a UUID or a plain word.
pub(crate) fn literal<K: Any>(key: &RowKey<K>) -> Option<String> {
    let value: &dyn Any = key.value();
    if let Some(number) = integer_text(value) {
        return Some(number);
    }
    let word = match value.downcast_ref::<String>() {
        Some(word) => word.clone(),
        None if type_name::<K>() == UUID => key.text().to_string(),
        None => return None,
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/' | '@');
    word.chars().all(is_plain).then(|| format!("'{word}'"))
}

/// Returns the time as an SQL literal, with the microseconds that the databases store.
pub(crate) fn time_literal(time: Instant) -> String {
    DateTime::<Utc>::from(time).format("'%Y-%m-%d %H:%M:%S%.6f+00'").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_plain_words_are_literals_and_nothing_else_is() {
        fn literal<K: Any + Clone>(value: &K) -> Option<String> {
            super::literal(&RowKey::new(value.clone(), "its text"))
        }
        assert_eq!(literal(&-42_i64).as_deref(), Some("-42"));
        assert_eq!(literal(&i32::MIN).as_deref(), Some("-2147483648"));
        assert_eq!(literal(&7_i16).as_deref(), Some("7"));
        assert_eq!(literal(&"INV-7/2026".to_owned()).as_deref(), Some("'INV-7/2026'"));
        for doubtful in ["it's", "a\\b", "ä", "a b", "x;y", "$1"] {
            assert_eq!(literal(&doubtful.to_owned()), None, "{doubtful}");
        }
        assert_eq!(literal(&(1_i64, 2_i64)), None);
        assert_eq!(literal(&vec![1_u8]), None);
        assert!(has_literals::<i32>() && has_literals::<String>() && !has_literals::<(i64, i64)>());
    }
}
