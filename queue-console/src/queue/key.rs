//! Keys as people write them.

use std::fmt::Debug;

/// The text of a key, as a person writes it: its parts with commas between them, or as a JSON list if that would not be clear.
pub(crate) fn joined(parts: &[Option<String>]) -> String {
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

/// A value as its debug text has it, without the quotes of a text, and without the name of a type around it.
fn bare(text: &str) -> String {
    if let Ok(text) = serde_json::from_str::<String>(text) {
        return text;
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
    }
}
