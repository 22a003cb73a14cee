//! Tokens as one line of source, spaced as a person writes signatures.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// Words after which a `<` begins a path and no list of arguments.
const BEFORE_A_PATH: [&str; 7] = ["where", "as", "dyn", "mut", "in", "const", "for"];

/// Writes tokens in one line; a comma before a bracket or at the end is left out.
pub(crate) fn one_line(tokens: TokenStream) -> String {
    let mut words = Vec::new();
    flatten(tokens, &mut words);
    let mut line = String::new();
    for (place, word) in words.iter().enumerate() {
        let next = words.get(place + 1).map(String::as_str);
        if word == "," && matches!(next, None | Some(")" | "]" | ">" | "{" | "}")) {
            continue;
        }
        if let Some(before) = words[..place].last()
            && is_spaced(before, word)
        {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}

/// The words of the line: brackets are words, and so is a sign of several characters, or a lifetime.
fn flatten(tokens: TokenStream, words: &mut Vec<String>) {
    let mut joined = String::new();
    for token in tokens {
        match token {
            TokenTree::Punct(punct) => {
                joined.push(punct.as_char());
                let is_sign = matches!(joined.as_str(), ":" | "-" | "=" | "." | "..") || joined == "'";
                if !(is_sign && punct.spacing() == Spacing::Joint) {
                    words.push(std::mem::take(&mut joined));
                }
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::None => ("", ""),
                };
                words.extend(Some(open.to_owned()).filter(|open| !open.is_empty()));
                flatten(group.stream(), words);
                words.extend(Some(close.to_owned()).filter(|close| !close.is_empty()));
            }
            // A lifetime is a joint `'` and a name.
            word => words.push(std::mem::take(&mut joined) + &word.to_string()),
        }
    }
}

fn is_spaced(before: &str, word: &str) -> bool {
    let is_name = before.ends_with(|end: char| end.is_alphanumeric() || end == '_');
    match (before, word) {
        (_, "," | ";" | ":" | "." | ")" | "]" | ">" | "?") if word != "?" => false,
        ("(" | "[" | "<" | "&" | "#" | "::" | "." | "?" | "!" | "*" | "$", _) => false,
        (_, "::") => !is_name && before != ">",
        (_, "<") => !is_name || BEFORE_A_PATH.contains(&before) && before != "for",
        (_, "(") => !is_name && before != ">" || BEFORE_A_PATH.contains(&before),
        (_, "!") => !is_name,
        _ => true,
    }
}
