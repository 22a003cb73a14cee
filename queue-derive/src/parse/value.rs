//! Parse: the values of `#[queue(..)]`, each with an error message of its own.

use std::time::Duration;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Ident, LitInt, LitStr, Path, Result, Token};

use super::suggest::{one_of, unknown};

/// The longest duration: `MAX_DELAY` of the runtime, 100 years.
const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The longest name of a column or a table: PostgreSQL truncates longer names, MySQL allows one byte more.
pub(crate) const MAX_NAME_BYTES: usize = 63;

/// A value and where it was written.
pub(crate) struct Written<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

/// Reads the name of a column: a string, or an identifier.
pub(crate) fn column_name(input: ParseStream<'_>) -> Result<Written<String>> {
    whole_name(input, "a column name", r#""charge_status""#)
}

/// Reads the name of a table: a string, or an identifier.
pub(crate) fn table_name(input: ParseStream<'_>) -> Result<Written<String>> {
    let start = input.fork();
    let name = whole_name(input, "a table name", "`payments_done`")?;
    let alone = "a table's name alone: the archive is in the schema of the entity's table";
    if name.value.contains('.') {
        return Err(unexpected(&start, alone));
    }
    if input.peek(Token![::]) || input.peek(Token![.]) {
        return Err(unexpected(input, alone));
    }
    Ok(name)
}

/// Reads a name as the database has it. `what` is "a column name" or "a table name".
fn whole_name(input: ParseStream<'_>, what: &str, example: &str) -> Result<Written<String>> {
    let name = name(input, what, example)?;
    if name.value.is_empty() {
        return Err(Error::new(name.span, format!("{what} may not be empty")));
    }
    if name.value.len() > MAX_NAME_BYTES {
        let message = format!("{what} has at most {MAX_NAME_BYTES} bytes, this one has {}", name.value.len());
        return Err(Error::new(name.span, message));
    }
    Ok(name)
}

/// Reads where the library is.
pub(crate) fn crate_path(input: ParseStream<'_>) -> Result<Path> {
    if input.peek(LitStr) || !(input.peek(Ident::peek_any) || input.peek(Token![::])) {
        return Err(unexpected(input, "a path such as `my_app::queueable`"));
    }
    input.call(Path::parse_mod_style)
}

/// Reads the prefix of the columns' default names.
pub(crate) fn prefix(input: ParseStream<'_>) -> Result<Written<String>> {
    name(input, "a prefix", r#""charge_""#)
}

fn name(input: ParseStream<'_>, what: &str, example: &str) -> Result<Written<String>> {
    let (value, span) = if input.peek(LitStr) {
        let literal: LitStr = input.parse()?;
        (literal.value(), literal.span())
    } else if input.peek(Ident::peek_any) {
        let ident = input.call(Ident::parse_any)?;
        (ident.unraw().to_string(), ident.span())
    } else {
        return Err(unexpected(input, &format!("{what} such as {example}")));
    };
    if value.contains('\0') {
        return Err(Error::new(span, format!("{what} cannot contain NUL")));
    }
    Ok(Written { value, span })
}

/// Reads the name of the generated module.
pub(crate) fn module(input: ParseStream<'_>) -> Result<Ident> {
    input.parse().map_err(|_| unexpected(input, "a module's name such as `charge_queue`"))
}

/// Reads a number of tries.
pub(crate) fn max_tries(input: ParseStream<'_>) -> Result<u32> {
    whole_number(input, 1, 2_147_483_647)
}

/// Reads the time that a handler may take.
pub(crate) fn timeout(input: ParseStream<'_>) -> Result<Duration> {
    let timeout = duration(input)?;
    if timeout.value.is_zero() {
        return Err(Error::new(timeout.span, "expected a duration longer than zero, a handler needs some time"));
    }
    Ok(timeout.value)
}

/// The shortest lease: the heartbeat has to reach the database several times within it.
const MIN_LEASE: Duration = Duration::from_millis(100);

/// The longest lease: the row of a killed worker waits that long.
const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads how long a claimed row belongs to its worker.
pub(crate) fn lease(input: ParseStream<'_>) -> Result<Written<Duration>> {
    let literal = input.fork().parse::<LitStr>();
    let lease = duration(input)?;
    if (MIN_LEASE..=MAX_LEASE).contains(&lease.value) {
        return Ok(lease);
    }
    let found = literal.map(|literal| literal.value()).unwrap_or_default();
    let message = format!(
        "expected a lease from `100ms` to `1d`, found `{found}`\n\
         note: if a worker is killed, another one takes its row when the lease has ended"
    );
    Err(Error::new(lease.span, message))
}

/// How rows share a transaction.
pub(crate) struct Group {
    /// How many at most. `None`: as the queue decides.
    pub(crate) size: Option<u32>,
    pub(crate) optimistic: bool,
}

/// The largest group: beyond it nothing is gained, and more is lost with each failure.
const MAX_GROUP: u32 = 1000;

/// Reads the size of a group.
pub(crate) fn group(input: ParseStream<'_>) -> Result<Group> {
    let accepted = format!("`auto` or a whole number from 2 to {MAX_GROUP}");
    let is_auto = input.fork().parse::<Ident>().is_ok_and(|word| word == "auto");
    let size = match is_auto {
        true => input.parse::<Ident>().map(|_| None)?,
        false => Some(number(input, 2, MAX_GROUP, &accepted)?),
    };
    Ok(Group { size, optimistic: false })
}

/// Reads the size of a group and, after a comma, whether it is optimistic.
pub(crate) fn group_list(input: ParseStream<'_>) -> Result<Group> {
    let group = group(input)?;
    if input.is_empty() {
        return Ok(group);
    }
    if !input.peek(Token![,]) {
        return Err(unexpected(input, "`,` or `)`"));
    }
    input.parse::<Token![,]>()?;
    if input.is_empty() {
        return Ok(group);
    }
    if !input.peek(Ident::peek_any) {
        return Err(unexpected(input, "`optimistic`"));
    }
    let word = input.call(Ident::parse_any)?;
    if word != "optimistic" {
        return Err(unknown("value", &word, &["optimistic"]));
    }
    input.parse::<Option<Token![,]>>()?;
    Ok(Group { optimistic: true, ..group })
}

/// Reads the column that orders the messages of a group.
pub(crate) fn order_in_group(input: ParseStream<'_>) -> Result<Ident> {
    column(input, "company_id")
}

/// Reads the name of a column of the entity's own table.
pub(crate) fn column(input: ParseStream<'_>, example: &str) -> Result<Ident> {
    if !input.peek(Ident::peek_any) {
        return Err(unexpected(input, &format!("a column such as `{example}`")));
    }
    let column = input.call(Ident::parse_any)?;
    if input.peek(Token![::]) {
        return Err(Error::new(column.span(), "a column of the entity's own table stands here, by its name alone"));
    }
    Ok(column)
}

pub(crate) fn whole_number(input: ParseStream<'_>, min: u32, max: u32) -> Result<u32> {
    number(input, min, max, &format!("a whole number from {min} to {max}"))
}

pub(crate) fn number(input: ParseStream<'_>, min: u32, max: u32, accepted: &str) -> Result<u32> {
    if !input.fork().parse::<LitInt>().is_ok_and(|literal| literal.suffix().is_empty()) {
        return Err(unexpected(input, accepted));
    }
    let literal: LitInt = input.parse()?;
    let number = literal.base10_parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| Error::new(literal.span(), format!("expected {accepted}, found `{literal}`")))
}

/// Reads a whole number and a unit, in a string.
pub(crate) fn duration(input: ParseStream<'_>) -> Result<Written<Duration>> {
    if !input.peek(LitStr) {
        let error = unexpected(input, r#"a duration such as "10s""#);
        let number = input.fork().parse::<LitInt>().ok();
        let text = number.map(|number| match number.suffix() {
            "" => format!("{number}s"),
            _ => number.to_string(),
        });
        return Err(match text.filter(|text| parse_duration(text).is_ok()) {
            Some(text) => with_help(error, &format!("a duration has a unit and quotes: `\"{text}\"`")),
            None => error,
        });
    }
    let literal: LitStr = input.parse()?;
    let value = parse_duration(&literal.value()).map_err(|message| Error::new(literal.span(), message))?;
    Ok(Written { value, span: literal.span() })
}

fn parse_duration(text: &str) -> std::result::Result<Duration, String> {
    const UNITS: &str = "`ms`, `s`, `m` (minutes), `h`, `d` or `y` (365 days)";

    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    if number.is_empty() || !unit.chars().all(char::is_alphabetic) {
        return Err(format!("`{text}` is not a duration, expected a whole number and one unit such as `10s`: {UNITS}"));
    }
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "y" => 365 * 86_400_000,
        "" => return Err(format!("`{text}` has no unit, expected {UNITS}")),
        _ => return Err(format!("unknown unit `{unit}`, expected {UNITS}")),
    };
    let duration =
        number.parse().ok().and_then(|number: u64| number.checked_mul(milliseconds)).map(Duration::from_millis);
    duration
        .filter(|duration| *duration <= MAX_DURATION)
        .ok_or_else(|| format!("`{text}` is longer than 100 years, the longest duration that every database can add"))
}

/// Reads `key = value, ..`. With `after_value`, a comma comes first.
pub(crate) fn arguments(
    input: ParseStream<'_>,
    after_value: bool,
    accepted: &[&str],
    mut read: impl FnMut(&Ident, ParseStream<'_>) -> Result<()>,
) -> Result<()> {
    let mut seen: Vec<Ident> = Vec::new();
    let mut expects_comma = after_value;
    while !input.is_empty() {
        if expects_comma {
            if !input.peek(Token![,]) {
                return Err(unexpected(input, "`,` or `)`"));
            }
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
        }
        expects_comma = true;
        let start = input.fork();
        let Ok(key) = input.call(Ident::parse_any) else {
            let error = unexpected(input, &one_of(accepted));
            return Err(without_name(&start, accepted, read).unwrap_or(error));
        };
        if !accepted.contains(&key.to_string().as_str()) {
            let unnamed = if input.peek(Token![=]) { None } else { without_name(&start, accepted, read) };
            return Err(unnamed.unwrap_or_else(|| unknown("argument", &key, accepted)));
        }
        if seen.contains(&key) {
            return Err(Error::new(key.span(), format!("`{key}` is given twice")));
        }
        if !input.peek(Token![=]) {
            return Err(unexpected(input, &format!("`=` and a value after `{key}`")));
        }
        input.parse::<Token![=]>()?;
        read(&key, input)?;
        seen.push(key);
    }
    Ok(())
}

/// Makes the error at a value that lacks the name of its argument, if an argument can have it.
fn without_name(
    value: ParseStream<'_>,
    accepted: &[&str],
    mut read: impl FnMut(&Ident, ParseStream<'_>) -> Result<()>,
) -> Option<Error> {
    let (token, _) = value.cursor().token_tree()?;
    let can_be = |name: &&&str| read(&Ident::new(name, token.span()), &value.fork()).is_ok();
    let named: Vec<_> = accepted.iter().filter(can_be).map(|name| format!("`{name} = {token}`")).collect();
    let message = format!("`{token}` needs the name of its argument\nhelp: write {}", named.join(" or "));
    (!named.is_empty()).then(|| Error::new(token.span(), message))
}

/// Adds a help to an error.
pub(crate) fn with_help(error: Error, help: &str) -> Error {
    Error::new(error.span(), format!("{error}\nhelp: {help}"))
}

/// Makes the error at the next token: what was found and what is accepted.
pub(crate) fn unexpected(input: ParseStream<'_>, accepted: &str) -> Error {
    match input.cursor().token_tree() {
        Some((token, _)) => Error::new(token.span(), format!("expected {accepted}, found `{token}`")),
        None => input.error(format!("expected {accepted}")),
    }
}
