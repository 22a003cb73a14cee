//! Properties of every text.

use chrono::{DateTime, Utc};
use proptest::prelude::*;

use crate::table::{columns, read};

proptest! {
    #[test]
    fn every_text_has_an_answer_that_is_text_only(text in any::<String>()) {
        answer(&text);
    }

    #[test]
    fn every_row_of_tokens_has_an_answer_that_is_text_only(tokens in prop::collection::vec(token(), 0..40)) {
        answer(&tokens.join(" "));
        answer(&tokens.concat());
    }

    #[test]
    fn what_a_condition_says_of_itself_is_the_same_condition(text in condition()) {
        let condition = read(&text).unwrap_or_else(|refused| panic!("{refused}"));
        let said = condition.to_string();
        let again = read(&said).unwrap_or_else(|refused| panic!("{text}\n{refused}"));
        prop_assert_eq!(&again, &condition, "{}", said);
        prop_assert_eq!(again.to_string(), said);
    }
}

fn answer(text: &str) {
    let Err(refused) = read(text) else { return };
    let shown = refused.to_string();
    assert!(text.get(refused.span.clone()).is_some(), "{refused:?}");
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
}

fn token() -> impl Strategy<Value = String> {
    let names = columns().list.into_iter().map(|column| column.name);
    let words = [
        "and",
        "or",
        "not",
        "in",
        "between",
        "like",
        "is",
        "null",
        "true",
        "false",
        "now",
        "now()",
        "(",
        ")",
        ",",
        "=",
        "<>",
        "<=",
        "-",
        "+",
        "1",
        "-1",
        "1.5",
        "1e5",
        "2h",
        "'a'",
        "''",
        "x'0a'",
        "'2026-03-01'",
        "\"id\"",
        "`id`",
        "'",
        "\"",
        ";",
        ".",
    ];
    prop::sample::select(names.chain(words.map(str::to_owned)).collect::<Vec<_>>())
}

/// Texts of conditions that are accepted.
fn condition() -> impl Strategy<Value = String> {
    comparison().prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|one| format!("not {one}")),
            inner.clone().prop_map(|one| format!("({one})")),
            (inner.clone(), inner.clone()).prop_map(|(one, other)| format!("({one} and {other})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(one, two, three)| format!("({one} or {two} and {three})")),
        ]
    })
}

fn comparison() -> impl Strategy<Value = String> {
    let columns: Vec<_> = [
        "company_id",
        "visits",
        "ratio",
        "amount",
        "name",
        "is_paid",
        "booked_on",
        "opens_at",
        "created",
        "seen",
        "next_attempt_time",
        "reference",
        "hash",
        "kind",
        "\"Größe \"\"x\"\"\"",
        "\"like\"",
    ]
    .into();
    prop::sample::select(columns).prop_flat_map(|column| {
        let of = values(column);
        let is_ordered = !matches!(column, "is_paid" | "kind");
        prop_oneof![
            (prop::sample::select(vec!["=", "<>", "!=", "<", "<=", ">", ">="]), of.clone()).prop_map(
                move |(operator, value)| {
                    let operator = if is_ordered { operator } else { "=" };
                    format!("{column} {operator} {value}")
                }
            ),
            (any::<bool>(), prop::collection::vec(of.clone(), 1..5)).prop_map(move |(is, values)| format!(
                "{column} {}in ({})",
                not(is),
                values.join(",")
            )),
            (any::<bool>(), of.clone(), of).prop_map(move |(is, low, high)| match is_ordered {
                true => format!("{column} {}between {low} and {high}", not(is)),
                false => format!("{column} is {}null", not(is)),
            }),
            (any::<bool>(), text()).prop_map(move |(is, pattern)| match column {
                "is_paid" => column.to_owned(),
                "hash" => format!("{column} is {}null", not(is)),
                _ => format!("{column} {}like {}", not(is), pattern.replace('\\', "\\\\")),
            }),
        ]
    })
}

fn not(is: bool) -> &'static str {
    if is { "" } else { "not " }
}

/// Values as the column takes them.
fn values(column: &str) -> BoxedStrategy<String> {
    // From the year 1 to 9999.
    let time = || {
        (-62_135_596_800_000_000..253_402_300_800_000_000_i64)
            .prop_filter_map("a time", DateTime::<Utc>::from_timestamp_micros)
    };
    match column {
        "company_id" | "\"Größe \"\"x\"\"\"" => any::<i32>().prop_map(|integer| integer.to_string()).boxed(),
        "visits" => any::<u64>().prop_map(|integer| integer.to_string()).boxed(),
        "ratio" => prop::num::f64::NORMAL.prop_map(|float| format!("{float:?}")).boxed(),
        "amount" => (any::<i128>(), 0_u64..1_000_000).prop_map(|(whole, behind)| format!("{whole}.{behind}")).boxed(),
        "is_paid" => any::<bool>().prop_map(|boolean| boolean.to_string()).boxed(),
        "booked_on" => time().prop_map(|time| time.format("'%Y-%m-%d'").to_string()).boxed(),
        "opens_at" => time().prop_map(|time| time.format("'%H:%M:%S%.f'").to_string()).boxed(),
        "created" => time().prop_map(|time| time.format("'%Y-%m-%d %H:%M:%S%.f'").to_string()).boxed(),
        "next_attempt_time" | "seen" => prop_oneof![
            time().prop_map(|time| format!("'{}'", time.to_rfc3339())),
            (0..100_000_u32, 0..1_000_u32).prop_map(|(hours, ms)| format!("now() - {hours}h + {ms}ms")),
        ]
        .boxed(),
        "reference" => any::<u128>().prop_map(|uuid| format!("'{uuid:032X}'")).boxed(),
        "hash" => prop::collection::vec(any::<u8>(), 0..20)
            .prop_map(|bytes| format!("x'{}'", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
            .boxed(),
        _ => text().boxed(),
    }
}

fn text() -> impl Strategy<Value = String> {
    any::<String>().prop_map(|text| format!("'{}'", text.replace('\0', "").replace('\'', "''")))
}
