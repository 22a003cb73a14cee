//! Makes of a literal the value that a column takes, or says what the column takes.

use std::ops::Range;

use chrono::{DateTime, Utc};
use queue_core::internals::backend::Holds;

use super::column::{Column, nearest};
use super::refused::{Fault, shown};
use super::time;
use super::value::{Decimal, UuidBytes, Value};

/// How many digits a decimal number has at most, and how many of them behind the point: MySQL's limits, and far within those of
/// PostgreSQL.
const DECIMAL_DIGITS: (usize, usize) = (65, 30);

/// A value as it was written.
#[derive(Debug, Clone)]
pub(super) enum Literal {
    /// With its sign.
    Number(String),
    Text(String),
    /// In double quotes, for a column that has a few texts only: also one that this version does not know.
    AnyText(String),
    Bytes(Vec<u8>),
    Boolean(bool),
    /// `now()`, with what was added.
    Time(DateTime<Utc>),
}

/// Makes the column's value of a literal that stands at this place.
pub(super) fn value(column: &Column, literal: &Literal, text: &str, span: Range<usize>) -> Result<Value, Fault> {
    let value = match (column.holds, literal) {
        (Holds::Integers(bytes), Literal::Number(number)) => integer(number, signed_range(bytes)),
        (Holds::Unsigned(bytes), Literal::Number(number)) => integer(number, unsigned_range(bytes)),
        (Holds::Floats, Literal::Number(number)) => {
            number.parse().ok().filter(|float: &f64| float.is_finite()).map(Value::Float)
        }
        (Holds::Decimals, Literal::Number(number)) => decimal(number),
        (Holds::Texts | Holds::Printed | Holds::Others, Literal::Text(text) | Literal::AnyText(text)) => {
            Some(Value::Text(text.clone()))
        }
        (Holds::Booleans, Literal::Boolean(boolean)) => Some(Value::Boolean(*boolean)),
        (Holds::Dates, Literal::Text(text)) => time::date(text).map(Value::Date),
        (Holds::Dates, Literal::Time(time)) => Some(Value::Date(time.date_naive())),
        (Holds::TimesOfDay, Literal::Text(text)) => time::time_of_day(text).map(Value::TimeOfDay),
        (Holds::Timestamps, Literal::Text(text)) => time::instant(text).map(|time| Value::Timestamp(time.naive_utc())),
        (Holds::Timestamps, Literal::Time(time)) => Some(Value::Timestamp(time.naive_utc())),
        (Holds::Instants | Holds::InstantsWithOffset, Literal::Text(text)) => {
            time::instant(text).map(|time| Value::Instant(time.into()))
        }
        (Holds::Instants | Holds::InstantsWithOffset, Literal::Time(time)) => Some(Value::Instant((*time).into())),
        (Holds::Uuids, Literal::Text(text)) => UuidBytes::read(text).map(Value::Uuid),
        (Holds::Bytes, Literal::Bytes(bytes)) => Some(Value::Bytes(bytes.clone())),
        // MySQL and SQLite store UUIDs as their bytes.
        (Holds::Bytes, Literal::Text(text)) => UuidBytes::read(text).map(|uuid| Value::Bytes(uuid.0.to_vec())),
        _ => None,
    };
    let Some(value) = value else {
        let Takes { what, accepted } = takes(column.holds);
        let message = format!("{} takes {what}, not {}", column.name, shown(text));
        return Err(Fault::new(span, message).accepts(accepted));
    };
    if matches!(literal, Literal::Text(_)) {
        one_of_the_values(column, &value, span)?;
    }
    Ok(value)
}

/// Says what a column takes, with examples.
pub(super) fn accepted(column: &Column) -> String {
    takes(column.holds).accepted
}

/// Checks a text of a column that has a few texts only.
fn one_of_the_values(column: &Column, value: &Value, span: Range<usize>) -> Result<(), Fault> {
    let (Some(values), Value::Text(text)) = (&column.values, value) else { return Ok(()) };
    if values.contains(text) {
        return Ok(());
    }
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    let meant = nearest(text, &values).map(|value| format!("; did you mean '{value}'?")).unwrap_or_default();
    let accepted: Vec<_> = values.iter().map(|value| format!("'{value}'")).collect();
    let accepted = format!("{}; in double quotes any text that a row has", accepted.join(", "));
    Err(Fault::new(span, format!("no {} is called '{}'{meant}", column.name, shown(text))).accepts(accepted))
}

fn signed_range(bytes: u8) -> (i128, i128) {
    let end = 1_i128 << (8 * u32::from(bytes.clamp(1, 8)) - 1);
    (-end, end - 1)
}

fn unsigned_range(bytes: u8) -> (i128, i128) {
    (0, (1_i128 << (8 * u32::from(bytes.clamp(1, 8)))) - 1)
}

fn integer(number: &str, (least, most): (i128, i128)) -> Option<Value> {
    let integer = number.parse::<i128>().ok().filter(|integer| (least..=most).contains(integer))?;
    Some(i64::try_from(integer).map_or_else(|_| Value::Decimal(Decimal(integer.to_string())), Value::Integer))
}

fn decimal(number: &str) -> Option<Value> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('-');
    let (most, most_behind) = DECIMAL_DIGITS;
    let fits = whole.len() + fraction.len() <= most && fraction.len() <= most_behind;
    (fits && !number.contains(['e', 'E'])).then(|| Value::Decimal(Decimal(number.to_owned())))
}

/// What a column takes.
struct Takes {
    /// In a few words.
    what: &'static str,
    /// With examples.
    accepted: String,
}

fn takes(holds: Holds) -> Takes {
    let range = |(least, most)| format!("integers from {least} to {most}");
    let takes = |what, accepted: &str| Takes { what, accepted: accepted.to_owned() };
    match holds {
        Holds::Integers(bytes) => takes("integers", &range(signed_range(bytes))),
        Holds::Unsigned(bytes) => takes("integers from 0", &range(unsigned_range(bytes))),
        Holds::Floats => takes("numbers", "numbers, as 1.5, -2 or 1e6"),
        Holds::Decimals => {
            takes("decimal numbers", "decimal numbers of at most 65 digits, 30 of them behind the point, as 10.50")
        }
        Holds::Booleans => takes("true or false", "true, false"),
        Holds::Dates => takes("dates", "dates, as '2026-03-01', and times, as now() - 30d"),
        Holds::TimesOfDay => takes("times of day", "times of day, as '12:30' or '12:30:15.5'"),
        Holds::Timestamps | Holds::Instants | Holds::InstantsWithOffset => {
            takes("times", "times, as now() - 2h, '2026-03-01T12:00:00Z', '2026-03-01 12:00' or '2026-03-01'")
        }
        Holds::Uuids => takes("UUIDs", "UUIDs, as '6f1c1e9a-58f2-4c2c-9d0e-3f0a4d1b2c3d'"),
        Holds::Bytes => takes("bytes", "bytes, as x'0a0b', and UUIDs, as '6f1c1e9a-58f2-4c2c-9d0e-3f0a4d1b2c3d'"),
        _ => takes("texts", "texts in single quotes, as 'abc'"),
    }
}
