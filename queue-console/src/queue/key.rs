//! Keys as people write them.

use std::fmt::{Debug, Write};

use queue_core::internals::by_name::Holds;

use super::facts::Facts;

/// How many characters of a key the table of pollers has.
const LONGEST_OF_POLLERS: usize = 200;

impl Facts {
    /// Turns a key as the library writes it into one as people write it. `None`: it is a digest, or no key of this queue.
    pub(crate) fn key_of(&self, text: &str) -> Option<String> {
        let holds: Vec<Holds> = self.key_columns().iter().map(|column| column.holds).collect();
        read(text, &holds)
    }

    /// The same of a key in the table of pollers. `None` also if it was cut there.
    pub(crate) fn key_of_poller(&self, text: &str) -> Option<String> {
        self.key_of(text).filter(|_| text.chars().count() < LONGEST_OF_POLLERS)
    }

    /// Tells whether two keys are the same: some databases write the digits of bytes in upper case.
    pub(crate) fn is_same_key(&self, one: &str, other: &str) -> bool {
        let has_bytes = self.key_columns().iter().any(|column| matches!(column.holds, Holds::Bytes));
        one == other || has_bytes && one.eq_ignore_ascii_case(other)
    }
}

fn read(text: &str, holds: &[Holds]) -> Option<String> {
    let parts: Vec<&str> = text.split(',').collect();
    let read = parts.iter().zip(holds).map(|(part, holds)| unescaped(part, *holds).map(Some));
    let read: Vec<_> = read.collect::<Option<_>>()?;
    (parts.len() == holds.len()).then(|| joined(&read))
}

/// Reads a part of a key as the library writes it: printable ASCII, other bytes as `%0A`, and bytes that are no text after `0x`.
fn unescaped(part: &str, holds: Holds) -> Option<String> {
    if part.starts_with("sha256-") {
        return None;
    }
    if let Some(digits) = part.strip_prefix("0x") {
        return Some(digits.to_owned());
    }
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'%' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            byte => byte,
        });
    }
    match (holds, bytes.strip_prefix(b"\\x")) {
        // PostgreSQL writes digits; the others may have bytes that are a text.
        (Holds::Bytes, Some(digits)) => String::from_utf8(digits.to_vec()).ok(),
        (Holds::Bytes, None) => Some(hex(&bytes)),
        _ => String::from_utf8(bytes).ok(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// The text of a key, as a person writes it: its parts with commas between them, or as a JSON list if that would not be clear.
pub(super) fn joined(parts: &[Option<String>]) -> String {
    let parts: Vec<&str> = parts.iter().map(|part| part.as_deref().unwrap_or_default()).collect();
    let is_clear = |part: &&str| !part.contains(',') && part.trim() == *part && !part.starts_with('[');
    match *parts {
        [one] => one.to_owned(),
        _ if parts.iter().all(is_clear) => parts.join(","),
        _ => serde_json::json!(parts).to_string(),
    }
}

/// The same of a key that a report gives as a value.
pub(super) fn text_of(key: &impl Debug) -> String {
    let text = format!("{key:?}");
    match text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
        None => bare(&text),
        Some(parts) => joined(&split(parts).iter().map(|part| Some(bare(part))).collect::<Vec<_>>()),
    }
}

/// A value as its debug text has it, without the quotes of a text, and without the name of a type around it; bytes as digits.
fn bare(text: &str) -> String {
    if let Ok(text) = serde_json::from_str::<String>(text) {
        return text;
    }
    if let Ok(bytes) = serde_json::from_str::<Vec<u8>>(text) {
        return hex(&bytes);
    }
    let inner = text.split_once('(').and_then(|(name, inner)| Some((name, inner.strip_suffix(')')?)));
    match inner.filter(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')) {
        Some((_, inner)) => bare(inner),
        None => text.to_owned(),
    }
}

/// The parts of a tuple's debug text.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut quoted, mut depth, mut escaped) = (Vec::new(), 0, false, 0_usize, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if std::mem::take(&mut escaped) => {}
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "it is only shown")]
    struct PaymentId(i64);

    #[test]
    fn keys_are_shown_as_people_write_them() {
        assert_eq!(text_of(&42_i64), "42");
        assert_eq!(text_of(&"INV-7".to_owned()), "INV-7");
        assert_eq!(text_of(&PaymentId(42)), "42");
        assert_eq!(text_of(&("north".to_owned(), 2)), "north,2");
        assert_eq!(text_of(&(PaymentId(1), "a, \"b\")".to_owned())), r#"["1","a, \"b\")"]"#);
        assert_eq!(joined(&[Some("north, east".to_owned()), Some("1".to_owned())]), r#"["north, east","1"]"#);
        assert_eq!(text_of(&vec![111_u8, 28]), "6f1c");
        assert_eq!(text_of(&("north".to_owned(), [0_u8, 255])), "north,00ff");
    }

    #[test]
    fn keys_of_the_library_are_those_that_people_write() {
        let one = |text: &str| read(text, &[Holds::Texts]);
        assert_eq!(one("42").as_deref(), Some("42"));
        assert_eq!(one("a%20b%3Ac%2Cd%25").as_deref(), Some("a b:c,d%"));
        assert_eq!(one("%C3%A4").as_deref(), Some("ä"));
        assert_eq!(one("%30xff").as_deref(), Some("0xff"));
        let two = |text: &str| read(text, &[Holds::Texts, Holds::Integers(4)]);
        assert_eq!(two("north,2").as_deref(), Some("north,2"));
        assert_eq!(two("a%2Cb,2").as_deref(), Some(r#"["a,b","2"]"#));
        // The same bytes on PostgreSQL, and on the others, which write them as a text if they are one.
        for (text, digits) in [("\\x6f1c", "6f1c"), ("o%1C", "6f1c"), ("\\xff00", "ff00"), ("0xff00", "ff00")] {
            assert_eq!(read(text, &[Holds::Bytes]).as_deref(), Some(digits), "{text}");
        }
    }

    #[test]
    fn a_key_that_cannot_be_read_stays_what_it_is() {
        for text in ["%", "%4", "%zz", "%FF", "sha256-00", "1,2"] {
            assert_eq!(read(text, &[Holds::Texts]), None, "{text}");
        }
        assert_eq!(read("1", &[Holds::Texts, Holds::Texts]), None);
    }
}
