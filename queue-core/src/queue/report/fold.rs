//! Folds the texts of one failure: a placeholder replaces each part that differs from row to row.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// The number of characters after which a pattern is cut.
///
/// It is well below the 1,000 characters that are read: if a longer text is cut in the middle of a value, its pattern
/// has ended before.
const PATTERN_CHARACTERS: usize = 400;

/// One alternative for each placeholder; the first that matches wins. Quotes count only if no word is at their outer
/// side, so that an apostrophe does not count. A number may be part of a word that it ends or begins (`E1234`, `10s`),
/// because such words are ids and durations more often than names.
static FOLDED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?x)
        (?<empty> '' | "" | `` )
        | (?-u:\B)' (?<single> [^'\n]+ ) '(?-u:\B)
        | (?-u:\B)" (?<double> (?: [^"\\\n] | \\. )+ ) "(?-u:\B)
        | (?-u:\B)` (?<back> [^`\n]+ ) `(?-u:\B)
        | (?-u:
            (?<time>
                \b \d{4}-\d\d-\d\d
                (?: [T\x20] \d\d:\d\d (?: :\d\d (?: [.,]\d+ )? )?
                    (?: \x20?UTC\b | Z\b | [+-]\d\d:?\d\d\b | [+-]\d\d\b )? )?
                | \b \d\d:\d\d:\d\d (?: [.,]\d+ )? )
            | (?<uuid> \b [0-9A-Fa-f]{8} (?: -[0-9A-Fa-f]{4} ){3} -[0-9A-Fa-f]{12} \b )
            | (?<hex> \b 0[xX][0-9A-Fa-f]+ \b | \b [0-9A-Fa-f]{8,} \b )
            | \d+ (?: [.,]\d+ )*
        )
        "#,
    )
    .expect("the expression is a constant that the tests compile")
});

/// Returns the pattern of a failure's text. Placeholders replace quoted values (`'<value>'` in the same quotes), times
/// (`<time>`), UUIDs (`<uuid>`), hexadecimal ids of eight digits or more (`<hex>`), and numbers (`<number>`). The
/// pattern is cut after 400 characters.
pub(crate) fn pattern(text: &str) -> String {
    let mut pattern = fold(text);
    if let Some((end, _)) = pattern.char_indices().nth(PATTERN_CHARACTERS) {
        pattern.truncate(end);
    }
    pattern
}

/// Folds until nothing changes, because a placeholder may replace the word that kept a quote from counting. This ends:
/// each round only removes digits, or quotes with more than one placeholder between them.
fn fold(text: &str) -> String {
    let mut folded = text.to_owned();
    loop {
        match FOLDED.replace_all(&folded, placeholder) {
            Cow::Owned(next) if next != folded => folded = next,
            _ => return folded,
        }
    }
}

fn placeholder(found: &Captures<'_>) -> String {
    let text = &found[0];
    let is = |name| found.name(name).is_some();
    match () {
        () if is("empty") => text,
        () if is("single") => "'<value>'",
        () if is("double") => "\"<value>\"",
        () if is("back") => "`<value>`",
        () if is("time") => "<time>",
        () if is("uuid") => "<uuid>",
        () if is("hex") && !text.bytes().all(|byte| byte.is_ascii_digit()) => "<hex>",
        () => "<number>",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_differs_from_row_to_row_is_folded() {
        for (text, expected) in [
            ("no route", "no route"),
            ("", ""),
            ("payment 17: no route", "payment <number>: no route"),
            ("HTTP 503", "HTTP <number>"),
            ("took 1,234.56 of -3.5 s", "took <number> of -<number> s"),
            ("ORD-2044 and E77, 10s", "ORD-<number> and E<number>, <number>s"),
            ("no account 'O-17' there", "no account '<value>' there"),
            ("unknown field \"a \\\"b\\\" c\"", "unknown field \"<value>\""),
            ("no column `id`", "no column `<value>`"),
            ("can't connect, won't retry", "can't connect, won't retry"),
            ("the shops' list isn't there", "the shops' list isn't there"),
            ("'' and 'x'", "'' and '<value>'"),
            ("1'2'3", "<number>'<value>'<number>"),
            ("at 2026-03-01T12:00:00.123Z", "at <time>"),
            ("at 2026-03-01 12:00:00+02:00, or 2026-03-01", "at <time>, or <time>"),
            ("until 12:30:59", "until <time>"),
            ("id 3F2504E0-4f89-11d3-9a0c-0305e82c3301!", "id <uuid>!"),
            ("commit 4f2a9c01b7, at 0x7ffe", "commit <hex>, at <hex>"),
            ("order 12345678", "order <number>"),
            ("a façade, 日本 5 円", "a façade, 日本 <number> 円"),
            ("127.0.0.1:5432 refused", "<number>:<number> refused"),
            ("two\nlines, 'not\nquoted' 1", "two\nlines, 'not\nquoted' <number>"),
        ] {
            assert_eq!(pattern(text), expected, "{text}");
        }
    }

    #[test]
    fn a_pattern_is_cut_at_a_character() {
        assert_eq!(pattern(&"é".repeat(1000)), "é".repeat(400));
        // Texts that are cut at different places of one value have one pattern.
        let text = |id: &str| format!("{id} {}", "x ".repeat(600)).chars().take(1000).collect::<String>();
        assert_eq!(pattern(&text("7")), pattern(&text("70000")));
    }

    proptest! {
        #[test]
        fn folding_again_changes_nothing(text in "[ a-f0-9xTZ.,:'\"`\\\\<>_é\n-]{0,40}") {
            let folded = fold(&text);
            prop_assert!(!folded.contains(|c: char| c.is_ascii_digit()), "{folded}");
            prop_assert_eq!(fold(&folded), folded);
        }

        #[test]
        fn any_text_can_be_folded(text in any::<String>()) {
            pattern(&text);
        }
    }
}
