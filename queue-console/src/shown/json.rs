//! JSON: names are stable, times are RFC 3339, keys are texts.

use chrono::{DateTime, NaiveDateTime, SecondsFormat, Utc};
use queue_core::internals::by_name::Holds;
use serde::Serialize;
use serde_json::{Number, Value};

use crate::filter::with_offset;

/// A report as JSON.
pub(crate) fn of_report(report: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(report).unwrap_or(Value::Null);
    in_seconds(&mut value);
    value
}

/// Turns each `{"secs": 1, "nanos": 500000000}` of the library's reports into `1.5`.
fn in_seconds(value: &mut Value) {
    match value {
        Value::Object(object) if object.len() == 2 && object.contains_key("secs") && object.contains_key("nanos") => {
            let part = |name: &str| object[name].as_f64().unwrap_or(0.0);
            let seconds = part("secs") + part("nanos") / 1e9;
            *value = Number::from_f64(seconds).map_or(Value::Null, Value::Number);
        }
        Value::Object(object) => object.values_mut().for_each(in_seconds),
        Value::Array(values) => values.iter_mut().for_each(in_seconds),
        _ => {}
    }
}

/// A column's value, read from its text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Typed {
    Null,
    Time(DateTime<Utc>),
    Boolean(bool),
    Text(String),
}

/// Reads a column's value from the text that the database has made of it.
pub(crate) fn typed(text: Option<&str>, holds: Holds) -> Typed {
    let Some(text) = text else { return Typed::Null };
    match holds {
        Holds::Instants | Holds::InstantsWithOffset => {
            instant(text).map_or_else(|| Typed::Text(text.to_owned()), Typed::Time)
        }
        Holds::Booleans if matches!(text, "1" | "t" | "true") => Typed::Boolean(true),
        Holds::Booleans if matches!(text, "0" | "f" | "false") => Typed::Boolean(false),
        _ => Typed::Text(text.to_owned()),
    }
}

/// PostgreSQL writes an offset, and the others write UTC without one.
fn instant(text: &str) -> Option<DateTime<Utc>> {
    let without = || NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").ok();
    with_offset(text).or_else(|| without().map(|time| time.and_utc()))
}

impl Typed {
    /// Numbers stay exact: one that JSON readers would round is a text.
    pub(crate) fn json(&self, holds: Holds) -> Value {
        match self {
            Typed::Null => Value::Null,
            Typed::Boolean(is) => Value::Bool(*is),
            Typed::Time(time) => Value::String(time.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
            Typed::Text(text) => match holds {
                Holds::Integers(_) | Holds::Unsigned(_) => {
                    const EXACT: u64 = 1 << 53;
                    let number = text.parse::<i64>().ok().filter(|number| number.unsigned_abs() <= EXACT);
                    number.map_or_else(|| Value::String(text.clone()), Value::from)
                }
                Holds::Floats => {
                    let number = text.parse().ok().and_then(Number::from_f64);
                    number.map_or_else(|| Value::String(text.clone()), Value::Number)
                }
                Holds::Json => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone())),
                _ => Value::String(text.clone()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_three_databases_are_one() {
        let expected: DateTime<Utc> = "2026-03-01T12:00:00.25Z".parse().expect("a time");
        for text in ["2026-03-01 12:00:00.25+00", "2026-03-01 17:30:00.25+05:30", "2026-03-01 12:00:00.250"] {
            assert_eq!(typed(Some(text), Holds::Instants), Typed::Time(expected), "{text}");
        }
        assert_eq!(typed(Some("infinity"), Holds::Instants), Typed::Text("infinity".to_owned()));
    }

    #[test]
    fn numbers_stay_exact() {
        let json = |text, holds| typed(Some(text), holds).json(holds);
        assert_eq!(json("42", Holds::Integers(8)), Value::from(42));
        assert_eq!(json("9007199254740993", Holds::Integers(8)), Value::from("9007199254740993"));
        assert_eq!(json("0.10", Holds::Decimals), Value::from("0.10"));
        assert_eq!(json("t", Holds::Booleans), Value::from(true));
    }

    #[test]
    fn durations_are_seconds() {
        let value = of_report(&(Some(std::time::Duration::from_millis(1_500)), "x"));
        assert_eq!(value, serde_json::json!([1.5, "x"]));
    }
}
