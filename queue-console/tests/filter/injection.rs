//! No text becomes SQL.

use diesel::query_builder::{QueryBuilder, QueryFragment};
use diesel::{Connection, debug_query};
use proptest::prelude::*;

use crate::db::Conn;
use crate::filter::{Condition, Refused};
use crate::table::{payments, read};

type Backend = <Conn as Connection>::Backend;

/// Texts that have broken other programs: one a line, with `\n`, `\0` and the like as escapes.
const TEXTS: &str = include_str!("injection.txt");

#[test]
fn texts_that_break_other_programs_stay_values() {
    let texts: Vec<_> = TEXTS.lines().filter(|line| !line.is_empty()).map(unescaped).collect();
    assert!(texts.len() > 300, "{}", texts.len());
    for text in texts.iter().chain([&"'".repeat(30_000), &"(".repeat(60_000), &"A' OR 1=1 -- ".repeat(2_000)]) {
        alone(text);
        as_value(text);
    }
}

proptest! {
    #[test]
    fn random_texts_stay_values(text in any::<String>()) {
        alone(&text);
        as_value(&text);
    }

    #[test]
    fn random_texts_of_pieces_of_sql_stay_values(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "'", "''", "\"", "`", "\\", "\\'", ";", "--", "-- ", "/*", "*/", "#", " ", "\n", "(", ")", ",", "=", "<", "%", "_", "$1",
                "?", "{}", ":a", "@a", "$$", "E'", "x'", "U&'", "N'", "0x", " or ", " and ", " not ", " union select ", "drop table payments",
                "name", "company_id", "1", "1=1", "null", "true", " in ", " like ", " between ", "now()", "'a'", "\0", "\u{2019}",
                "\u{ff07}", "\u{bf}\u{27}", "\u{202e}", "\u{feff}",
            ]),
            0..24,
        )
    ) {
        let text = pieces.concat();
        alone(&text);
        as_value(&text);
    }
}

/// Gives a text as a whole condition: it is refused, or its SQL is made of the language's words.
fn alone(text: &str) {
    match read(text) {
        Ok(condition) => assert_is_of_known_words(&condition),
        Err(refused) => assert_is_shown(&refused, text),
    }
}

/// Gives a text between quotes: it is bound as it is, and the SQL is that of every other text. Only a null byte is refused.
fn as_value(text: &str) {
    let quoted = text.replace('\'', "''");
    for (before, after) in [("name = '", "'"), ("name in ('a', '", "') or company_id = 1"), ("kind <> '", "'")] {
        let condition = match read(&format!("{before}{quoted}{after}")) {
            Ok(condition) => condition,
            Err(refused) => {
                assert!(text.contains('\0') || text.len() > 60_000, "{refused}");
                continue;
            }
        };
        let harmless = read(&format!("{before}b{after}")).unwrap();
        assert_eq!(sql(&condition), sql(&harmless));
        assert!(binds(&condition).contains(&format!("{text:?}")), "{text:?}");
        assert_eq!(read(&condition.to_string()), Ok(condition));
    }
    as_name(text);
}

/// Gives a text as the name of a column.
fn as_name(text: &str) {
    let name = format!("\"{}\" = 1", text.replace('"', "\"\""));
    match read(&name) {
        Ok(condition) => assert_is_of_known_words(&condition),
        Err(refused) => assert_is_shown(&refused, &name),
    }
}

/// An answer is for a terminal: it obeys nothing of the text.
fn assert_is_shown(refused: &Refused, text: &str) {
    let shown = refused.to_string();
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    assert!(text.get(refused.span.clone()).is_some(), "{refused:?}");
    assert!(shown.len() < 4_000, "{shown}");
}

fn assert_is_of_known_words(condition: &Condition) {
    let sql = sql(condition);
    let mut rest = sql.as_str();
    while !rest.is_empty() {
        let word = WORDS.iter().filter(|word| rest.starts_with(**word)).max_by_key(|word| word.len());
        let column = crate::table::columns().list.into_iter().map(|column| identifier(&column.name));
        let column = column.filter(|column| rest.starts_with(column)).map(|column| column.len()).max();
        let Some(known) = word.map(|word| word.len()).max(column) else {
            panic!("not of known words: {rest}\nin {sql}")
        };
        rest = &rest[known..];
    }
}

/// Everything that the SQL of a condition may have but columns.
const WORDS: &[&str] = &[
    "(",
    ")",
    " ",
    ",",
    ".",
    "=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "?",
    "$",
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "6",
    "7",
    "8",
    "9",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "LIKE",
    "ESCAPE",
    "IS",
    "NULL",
    "CAST",
    "AS",
    "TEXT",
    "text",
    "CHAR",
    "NUMERIC",
    "numeric",
    "`payments`",
    "\"payments\"",
    "strftime('%Y-%m-%d %H:%M:%f', ",
];

fn identifier(name: &str) -> String {
    let mut builder = <Backend as diesel::backend::Backend>::QueryBuilder::default();
    builder.push_identifier(name).unwrap();
    builder.finish()
}

fn sql(condition: &Condition) -> String {
    let mut builder = <Backend as diesel::backend::Backend>::QueryBuilder::default();
    condition.on(&payments::table).to_sql(&mut builder, &Backend::default()).unwrap();
    builder.finish()
}

fn binds(condition: &Condition) -> String {
    debug_query::<Backend, _>(&condition.on(&payments::table)).to_string()
}

/// Reads the escapes of a line.
fn unescaped(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\\u{") {
        let (code, after) = after.split_once('}').expect("an escape ends");
        text.push_str(before);
        text.push(u32::from_str_radix(code, 16).ok().and_then(char::from_u32).expect("a character"));
        rest = after;
    }
    text.push_str(rest);
    text
}
