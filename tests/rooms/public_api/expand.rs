//! Expands this workspace's own `macro_rules!`, so that the items that they write are seen: one rule, no nesting of names.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, Ident, Meta, Result, Type};

/// What a name of the pattern stands for: some tokens, or one thing for each repetition.
#[derive(Clone)]
enum Bound {
    Once(TokenStream),
    Repeated(Vec<Bound>),
}

type Bindings = BTreeMap<String, Bound>;

/// Writes what a macro with one rule makes of `input`.
pub(crate) fn expand(rules: TokenStream, input: TokenStream) -> Result<TokenStream> {
    let rules: Vec<_> = rules.into_iter().collect();
    let [TokenTree::Group(pattern), _, _, TokenTree::Group(body), ..] = &rules[..] else {
        return Err(Error::new_spanned(rules.first(), "a macro without a rule"));
    };
    let pattern: Vec<_> = pattern.stream().into_iter().collect();
    let bindings = (|input: ParseStream| matches(&pattern, input)).parse2(input)?;
    Ok(written(body.stream(), &bindings))
}

/// Reads what a pattern describes from the input.
fn matches(pattern: &[TokenTree], input: ParseStream) -> Result<Bindings> {
    let mut bindings = Bindings::new();
    let mut rest = pattern;
    while let Some(first) = rest.first() {
        rest = match rest {
            [sign, TokenTree::Group(repeated), after @ ..] if is_dollar(sign) => {
                let (separator, after) = separator_of(after);
                let repeated: Vec<_> = repeated.stream().into_iter().collect();
                bindings.extend(matches_repeated(&repeated, separator, input)?);
                after
            }
            [sign, TokenTree::Ident(name), _, TokenTree::Ident(kind), after @ ..] if is_dollar(sign) => {
                bindings.insert(name.to_string(), Bound::Once(fragment(kind, input)?));
                after
            }
            _ => {
                bindings.extend(matches_token(first, input)?);
                &rest[1..]
            }
        };
    }
    Ok(bindings)
}

fn matches_repeated(pattern: &[TokenTree], separator: Option<&TokenTree>, input: ParseStream) -> Result<Bindings> {
    let mut bindings: Bindings = names(pattern).into_iter().map(|name| (name, Bound::Repeated(Vec::new()))).collect();
    while !input.is_empty() && matches(pattern, &input.fork()).is_ok() {
        for (name, bound) in matches(pattern, input)? {
            if let Some(Bound::Repeated(all)) = bindings.get_mut(&name) {
                all.push(bound);
            }
        }
        match separator {
            Some(separator) if !input.is_empty() => drop(matches_token(separator, input)?),
            _ => {}
        }
    }
    Ok(bindings)
}

/// Reads a token that stands in the pattern as it is; inside brackets the pattern goes on.
fn matches_token(expected: &TokenTree, input: ParseStream) -> Result<Bindings> {
    let found: TokenTree = input.parse()?;
    match (expected, &found) {
        (TokenTree::Group(expected), TokenTree::Group(found)) if expected.delimiter() == found.delimiter() => {
            let pattern: Vec<_> = expected.stream().into_iter().collect();
            (|input: ParseStream| matches(&pattern, input)).parse2(found.stream())
        }
        (TokenTree::Group(_), _) | (_, TokenTree::Group(_)) => Err(Error::new(found.span(), "other brackets")),
        _ if expected.to_string() == found.to_string() => Ok(Bindings::new()),
        _ => Err(Error::new(found.span(), format!("expected `{expected}`"))),
    }
}

fn fragment(kind: &Ident, input: ParseStream) -> Result<TokenStream> {
    Ok(match kind.to_string().as_str() {
        "ident" => input.parse::<Ident>()?.into_token_stream(),
        "ty" => input.parse::<Type>()?.into_token_stream(),
        "expr" => input.parse::<Expr>()?.into_token_stream(),
        "meta" => input.parse::<Meta>()?.into_token_stream(),
        other => return Err(Error::new(kind.span(), format!("nobody has asked for a `{other}` yet"))),
    })
}

/// The names that a pattern binds.
fn names(pattern: &[TokenTree]) -> Vec<String> {
    let mut found = Vec::new();
    for (place, token) in pattern.iter().enumerate() {
        match token {
            TokenTree::Group(group) => found.extend(names(&group.stream().into_iter().collect::<Vec<_>>())),
            TokenTree::Ident(name) if place > 0 && is_dollar(&pattern[place - 1]) => found.push(name.to_string()),
            _ => {}
        }
    }
    found
}

/// What stands between repetitions, and the tokens after the `*`, `+` or `?` that ends them.
fn separator_of(after: &[TokenTree]) -> (Option<&TokenTree>, &[TokenTree]) {
    let is_operator = |token: &TokenTree| matches!(token.to_string().as_str(), "*" | "+" | "?");
    match after {
        [operator, rest @ ..] if is_operator(operator) => (None, rest),
        [separator, _, rest @ ..] => (Some(separator), rest),
        _ => (None, after),
    }
}

/// Writes the body with what the names stand for.
fn written(body: TokenStream, bindings: &Bindings) -> TokenStream {
    let body: Vec<_> = body.into_iter().collect();
    let mut out = TokenStream::new();
    let mut rest = &body[..];
    while let [first, after @ ..] = rest {
        rest = match rest {
            [sign, TokenTree::Group(repeated), after @ ..] if is_dollar(sign) => {
                let (separator, after) = separator_of(after);
                for (place, bindings) in repetitions(repeated, bindings).iter().enumerate() {
                    out.extend(separator.filter(|_| place > 0).cloned());
                    out.extend(written(repeated.stream(), bindings));
                }
                after
            }
            [sign, TokenTree::Ident(name), after @ ..] if is_dollar(sign) => {
                match bindings.get(&name.to_string()) {
                    Some(Bound::Once(tokens)) => out.extend(tokens.clone()),
                    // `$crate`.
                    _ => out.extend([TokenTree::from(name.clone())]),
                }
                after
            }
            [TokenTree::Group(group), after @ ..] => {
                let group = Group::new(group.delimiter(), written(group.stream(), bindings));
                out.extend([TokenTree::from(group)]);
                after
            }
            _ => {
                out.extend([first.clone()]);
                after
            }
        };
    }
    out
}

/// The bindings of each repetition of a part of the body.
fn repetitions(part: &Group, bindings: &Bindings) -> Vec<Bindings> {
    debug_assert_eq!(part.delimiter(), Delimiter::Parenthesis);
    let part: Vec<_> = part.stream().into_iter().collect();
    let repeated: Vec<_> = names(&part)
        .into_iter()
        .filter_map(|name| match bindings.get(&name) {
            Some(Bound::Repeated(all)) => Some((name, all)),
            _ => None,
        })
        .collect();
    let length = repeated.iter().map(|(_, all)| all.len()).max().unwrap_or(0);
    let nth = |place: usize| {
        let mut here = bindings.clone();
        here.extend(repeated.iter().filter_map(|(name, all)| Some((name.clone(), all.get(place)?.clone()))));
        here
    };
    (0..length).map(nth).collect()
}

fn is_dollar(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '$')
}
