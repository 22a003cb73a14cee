//! The path under which the generated code finds the library, for a user who has renamed or re-exported it.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Path, parse_quote};

/// Replaces `::queueable` by another path, everywhere in the generated code.
pub(crate) fn in_crate(tokens: TokenStream, path: &Path) -> TokenStream {
    let mut out = TokenStream::new();
    let mut rest: Vec<_> = tokens.into_iter().collect();
    // The end first, so that `pop` takes the tokens in their order.
    rest.reverse();
    let mut before: Option<TokenTree> = None;
    while let Some(token) = rest.pop() {
        let next = |back: usize| rest.len().checked_sub(back).and_then(|at| rest.get(at));
        let is_ours = is_colon(Some(&token)) && is_colon(next(1)) && is_library(next(2));
        if is_ours && !before.as_ref().is_some_and(ends_a_path) {
            rest.truncate(rest.len() - 2);
            out.extend(path.to_token_stream());
            before = None;
            continue;
        }
        let token = match token {
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), in_crate(group.stream(), path));
                inner.set_span(group.span());
                TokenTree::Group(inner)
            }
            token => token,
        };
        before = Some(token.clone());
        out.extend([token]);
    }
    out
}

/// Returns the same path as seen from one module deeper, if it begins with `self` or `super`. Another one is that of a crate, or
/// begins with `crate`.
pub(crate) fn one_module_deeper(path: &Path) -> Path {
    let rest = path.segments.iter().skip(1);
    match path.segments.first() {
        Some(first) if first.ident == "self" => parse_quote!(super #(::#rest)*),
        Some(first) if first.ident == "super" => parse_quote!(super::#path),
        _ => path.clone(),
    }
}

fn is_colon(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':')
}

fn is_library(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == "queueable")
}

/// Tells whether what follows belongs to a path that has begun before: `other::queueable`. Another keyword than those of
/// paths, which is no identifier for syn, ends none; after `>` a path begins, as in `impl<T> ::queueable::Entity`.
fn ends_a_path(token: &TokenTree) -> bool {
    const KEYWORDS: [&str; 4] = ["crate", "self", "super", "Self"];

    match token {
        TokenTree::Ident(ident) => {
            KEYWORDS.iter().any(|keyword| ident == keyword) || syn::parse2::<Ident>(ident.to_token_stream()).is_ok()
        }
        TokenTree::Punct(_) | TokenTree::Group(_) | TokenTree::Literal(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    #[test]
    fn a_relative_path_leads_to_the_same_place_from_one_module_deeper() {
        for (path, deeper) in [
            ("self", "super"),
            ("self::jobs", "super::jobs"),
            ("super", "super::super"),
            ("super::super::jobs", "super::super::super::jobs"),
            ("crate::jobs", "crate::jobs"),
            ("::jobs", "::jobs"),
            ("jobs::queueable", "jobs::queueable"),
        ] {
            let seen = one_module_deeper(&syn::parse_str(path).unwrap());
            assert_eq!(seen.to_token_stream().to_string().replace(' ', ""), deeper);
        }
    }

    #[test]
    fn only_the_librarys_own_path_is_replaced() {
        let generated = quote! {
            impl<'a> ::queueable::Stage for Step<'a> {
                fn a() -> ::queueable::Result<::queueable::columns::Now, other::queueable::Now> {
                    <Self as ::queueable::Stage>::x(&::queueable::NONE, queueable::y);
                    (crate::queueable::Step, self::queueable::Step, super::queueable::Step, Self::queueable())
                }
            }
        };
        let expected = quote! {
            impl<'a> crate::jobs::Stage for Step<'a> {
                fn a() -> crate::jobs::Result<crate::jobs::columns::Now, other::queueable::Now> {
                    <Self as crate::jobs::Stage>::x(&crate::jobs::NONE, queueable::y);
                    (crate::queueable::Step, self::queueable::Step, super::queueable::Step, Self::queueable())
                }
            }
        };
        assert_eq!(in_crate(generated, &parse_quote!(crate::jobs)).to_string(), expected.to_string());
    }
}
