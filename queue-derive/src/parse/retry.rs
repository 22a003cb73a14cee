//! Parse: the value of `retry`.

use std::time::Duration;

use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Expr, Ident, LitInt, Result, Token, parenthesized};

use super::suggest::{one_of, unknown};
use super::value::{Written, arguments, duration, number, unexpected, with_help};

const STRATEGIES: [&str; 5] = ["none", "fixed", "linear", "exponential", "custom"];

/// The value of `retry`.
pub(crate) enum Retry {
    None,
    Fixed(Written<Duration>),
    Linear { step: Written<Duration>, max: Option<Written<Duration>> },
    Exponential { first: Written<Duration>, max: Option<Written<Duration>>, jitter_percent: Option<u8> },
    Custom(Box<Expr>),
}

/// Reads a retry policy.
pub(crate) fn retry(input: ParseStream<'_>) -> Result<Retry> {
    if !input.peek(Ident::peek_any) {
        let error = unexpected(input, &one_of(&STRATEGIES));
        return Err(match input.fork().parse::<LitInt>() {
            Ok(tries) => with_help(error, &format!("the number of tries is another key: `max_tries = {tries}`")),
            Err(_) => error,
        });
    }
    let strategy = input.call(Ident::parse_any)?;
    let name = strategy.to_string();
    if name == "none" {
        return if input.is_empty() { Ok(Retry::None) } else { Err(unexpected(input, "nothing after `none`")) };
    }
    if !STRATEGIES.contains(&name.as_str()) {
        return Err(unknown("retry policy", &strategy, &STRATEGIES));
    }
    if !input.peek(syn::token::Paren) {
        let argument = if name == "custom" { "MyPolicy" } else { r#""10s""# };
        return Err(Error::new(strategy.span(), format!("expected an argument: `{name}({argument})`")));
    }
    let list;
    parenthesized!(list in input);
    match name.as_str() {
        "custom" => custom(&list),
        "fixed" => {
            let delay = duration(&list)?;
            if list.peek(Token![,]) && !list.peek2(syn::parse::End) {
                list.parse::<Token![,]>()?;
                return Err(unexpected(&list, "nothing after the delay"));
            }
            arguments(&list, true, &[], |_, _| Ok(()))?;
            Ok(Retry::Fixed(delay))
        }
        "linear" => {
            let (step, mut max) = (duration(&list)?, None);
            arguments(&list, true, &["max"], |_, input| {
                max = Some(duration(input)?);
                Ok(())
            })?;
            Ok(Retry::Linear { step, max })
        }
        _ => {
            let (first, mut max, mut jitter_percent) = (duration(&list)?, None, None);
            arguments(&list, true, &["max", "jitter"], |key, input| {
                if key == "max" {
                    max = Some(duration(input)?);
                } else {
                    let percent = number(input, 0, 100, "a whole number of percent from 0 to 100")?;
                    jitter_percent = Some(percent.try_into().expect("at most 100 fits into 8 bits"));
                }
                Ok(())
            })?;
            Ok(Retry::Exponential { first, max, jitter_percent })
        }
    }
}

fn custom(arguments: ParseStream<'_>) -> Result<Retry> {
    if arguments.is_empty() {
        return Err(unexpected(arguments, "an expression whose type implements `RetryPolicy`"));
    }
    let policy = arguments.parse()?;
    arguments.parse::<Option<Token![,]>>()?;
    if arguments.is_empty() { Ok(Retry::Custom(Box::new(policy))) } else { Err(unexpected(arguments, "`)`")) }
}
