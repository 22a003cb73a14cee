//! Which rows a condition picks.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Text};
use queue_core::internals::backend::Holds;

use crate::db::{Conn, Database};
use crate::filter::{Column, Columns, Condition, parse};
use crate::only;

diesel::table! {
    things (id) {
        id -> BigInt,
    }
}

/// The same on every database. The rows: 1 and 2 have values in all columns, 3 has nulls in all but the first two, and
/// 4 has the ends of their ranges.
const PICKED: &[(&str, &[i64])] = &[
    ("id = 1", &[1]),
    ("company_id = 7", &[1, 3]),
    ("company_id <> 7", &[2, 4]),
    ("company_id in (7, -2147483648)", &[1, 3, 4]),
    ("company_id not in (7, 9)", &[2, 4]),
    ("company_id between -5 and 7", &[1, 3]),
    ("company_id not between 7 and 8", &[4]),
    ("company_id like '7%'", &[1, 3]),
    ("tiny > -2 and tiny < 127", &[1, 2]),
    // Null is neither, nor the opposite of either.
    ("tiny = 1 or tiny <> 1", &[1, 2, 4]),
    ("not (tiny = 1)", &[2, 4]),
    ("not (tiny = 1 and company_id = 7)", &[2, 4]),
    ("not (tiny = 1 or company_id = 8)", &[4]),
    ("not (tiny = 1 and company_id = 8)", &[1, 2, 3, 4]),
    ("tiny not in (1, 2)", &[2, 4]),
    ("not (tiny is null)", &[1, 2, 4]),
    ("tiny is null", &[3]),
    ("tiny is not null and name is not null", &[1, 2, 4]),
    ("ratio = 1.5", &[1]),
    ("ratio > 1e299 or ratio = -2", &[2, 4]),
    ("amount = 10.5", &[1]),
    ("amount = 10.50", &[1]),
    ("amount in (0.1, 10.50)", &[1, 2]),
    ("amount > 10", &[1, 4]),
    ("amount between 0.1 and 10.4999", &[2]),
    ("name = 'O''Brien'", &[1]),
    ("name = 'naïve 漢字 \"quoted\" \\ 100% a_b 🙂'", &[2]),
    ("name = ''", &[4]),
    ("name > 'O' and name < 'P'", &[1]),
    ("name like 'O%'", &[1]),
    ("name like '%100\\% a\\_b%'", &[2]),
    ("name like '%1__\\% a\\_b%'", &[2]),
    ("name like '%a\\%b%'", &[]),
    ("name like '%\"quoted\" \\\\ %'", &[2]),
    ("name like 'O\\''Brien'", &[1]),
    ("name not like 'O%'", &[2, 4]),
    ("name in ('', 'O''Brien')", &[1, 4]),
    ("is_paid", &[1]),
    ("not is_paid", &[2, 4]),
    ("is_paid = false", &[2, 4]),
    ("is_paid <> false", &[1]),
    ("is_paid in (true, false)", &[1, 2, 4]),
    ("is_paid is null", &[3]),
    ("booked_on = '2026-03-01'", &[1]),
    ("booked_on < now()", &[2, 4]),
    ("booked_on between now() - 1d and now()", &[1, 2]),
    ("opens_at = '08:30'", &[1]),
    ("opens_at > '17:30:15.4'", &[2]),
    ("opens_at = '17:30:15.5'", &[2]),
    ("created = now()", &[1]),
    ("created = '2026-03-01T13:00:00+01:00'", &[1]),
    ("created > now()", &[2]),
    ("created = '2026-03-01 12:00:00.5'", &[2]),
    ("created < '1970-01-02'", &[4]),
    ("due = now()", &[1]),
    ("due > now() + 59m and due <= now() + 1h", &[2]),
    ("due = '2026-03-01T13:00:00Z'", &[2]),
    // As PostgreSQL writes it.
    ("due = '2026-03-01 13:00:00+00'", &[2]),
    ("due = '2026-03-01 17:30:00.000+05:30'", &[1]),
    ("due < now()", &[4]),
    ("hash = x'0a0B'", &[1]),
    ("hash <> x'00ff'", &[1, 4]),
    ("hash = x''", &[4]),
    ("reference = '6F1C1E9A-58F2-4C2C-9D0E-3F0A4D1B2C3D'", &[1]),
    ("reference in ('6f1c1e9a58f24c2c9d0e3f0a4d1b2c3d', '00000000-0000-0000-0000-000000000001')", &[1, 2]),
    ("details is null", &[3]),
    ("details like '%\"a\"%'", &[1]),
    ("kind = 'card'", &[1]),
    ("kind <> 'card'", &[2, 4]),
    ("kind in ('card', 'cash')", &[1, 2]),
    ("kind not in ('card', 'cash')", &[4]),
    ("kind like 'ca%'", &[1, 2]),
    ("kind is null", &[3]),
];

#[test]
fn a_condition_picks_the_rows_for_which_it_holds() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(only::THINGS).unwrap();
    for (text, expected) in PICKED.iter().chain(only::PICKED) {
        assert_eq!(picked(&mut connection, text), *expected, "{text}");
    }
}

/// Columns with the values that rows 1, 2 and 4 have in them.
const SORTED: &[(&str, [&str; 3])] =
    &[("is_paid", ["true", "false", "false"]), ("booked_on", ["'2026-03-01'", "'2026-02-28'", "'1970-01-01'"])];

#[test]
fn the_rows_beyond_a_key_are_those_that_the_database_sorts_after_it() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(only::THINGS).unwrap();
    for (column, values) in SORTED.iter().chain(only::SORTED) {
        let order = sql::<Text>(&format!("{column}, id"));
        let has_value = sql::<Bool>(&format!("{column} IS NOT NULL"));
        let sorted = things::table.filter(has_value).select(things::id).order(order);
        let sorted: Vec<i64> = sorted.load(&mut connection).unwrap();
        for (id, value) in std::iter::zip([1, 2, 4], values) {
            let key = [condition(&format!("{column} = {value}")), condition(&format!("id = {id}"))];
            let at = sorted.iter().position(|of| *of == id).unwrap();
            for (descends, expected) in [(false, &sorted[at + 1..]), (true, &sorted[..at])] {
                let mut expected = expected.to_vec();
                expected.sort();
                let beyond = Condition::beyond(&key, descends);
                assert_eq!(picked_by(&mut connection, &beyond), expected, "{beyond}");
            }
        }
    }
}

#[test]
fn a_long_list_and_a_deep_condition_are_read_by_the_database() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(only::THINGS).unwrap();
    let list: Vec<_> = (2..10_002).map(|id| id.to_string()).collect();
    assert_eq!(picked(&mut connection, &format!("id in ({})", list.join(", "))), [2, 3, 4]);
    let chain = "id = 1".to_owned() + &" or id = 7".repeat(499);
    assert_eq!(picked(&mut connection, &chain), [1]);
    assert_eq!(picked(&mut connection, &format!("{}id = 1{}", "not (".repeat(31), ")".repeat(31))), [2, 3, 4]);
}

/// Returns the keys of the rows that a condition picks.
pub(crate) fn picked(connection: &mut Conn, text: &str) -> Vec<i64> {
    picked_by(connection, &condition(text))
}

fn picked_by(connection: &mut Conn, condition: &Condition) -> Vec<i64> {
    let query = things::table.filter(condition.on(&things::table)).select(things::id).order(things::id);
    query.load(connection).unwrap_or_else(|error| panic!("{condition}: {error}"))
}

/// Reads a condition on the things.
pub(crate) fn condition(text: &str) -> Condition {
    let now = "2026-03-01T12:00:00Z".parse().expect("a time");
    parse(text, &columns(), now).unwrap_or_else(|refused| panic!("{refused}"))
}

fn columns() -> Columns {
    let columns = [
        ("id", Holds::Integers(8)),
        ("company_id", Holds::Integers(4)),
        ("tiny", Holds::Integers(2)),
        ("ratio", Holds::Floats),
        ("amount", Holds::Decimals),
        ("name", Holds::Texts),
        ("is_paid", Holds::Booleans),
        ("booked_on", Holds::Dates),
        ("opens_at", Holds::TimesOfDay),
        ("created", Holds::Timestamps),
        ("due", Holds::Instants),
        ("hash", Holds::Bytes),
        ("reference", only::REFERENCE),
        ("details", Holds::Json),
        ("kind", Holds::Others),
    ];
    let column =
        |(name, holds): &(&str, _)| Column { name: (*name).to_owned(), nullable: true, holds: *holds, values: None };
    Columns { table: "things".to_owned(), list: columns.iter().chain(only::COLUMNS).map(column).collect() }
}
