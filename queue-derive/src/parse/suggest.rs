//! Parse: the error at a name that is not one of the accepted ones.

use syn::{Error, Ident};

/// Makes the error at a name that is not in `accepted`, with the nearest name that is.
pub(crate) fn unknown(what: &str, found: &Ident, accepted: &[&str]) -> Error {
    unknown_among(what, found, accepted, &[])
}

/// Does the same; `other_words` are pairs of another word and the accepted name that means it.
pub(crate) fn unknown_among(what: &str, found: &Ident, accepted: &[&str], other_words: &[(&str, &str)]) -> Error {
    let name = found.to_string();
    let meant = other_words.iter().find(|(other, _)| *other == name).map(|(_, meant)| *meant);
    let nearest = accepted.iter().map(|accepted| (distance(&name, accepted), *accepted)).min();
    let nearest = nearest.filter(|(distance, _)| *distance <= 2 || distance * 3 <= name.len());
    let hint = match meant.or(nearest.map(|(_, nearest)| nearest)) {
        Some(meant) => format!(", did you mean `{meant}`?"),
        None => format!("\nhelp: expected {}", one_of(accepted)),
    };
    Error::new(found.span(), format!("unknown {what} `{name}`{hint}"))
}

/// Writes "`a`, `b` or `c`".
pub(crate) fn one_of(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// Returns the number of letters to change, add or remove between two names (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<_> = b.chars().collect();
    let mut row: Vec<_> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let changed = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
