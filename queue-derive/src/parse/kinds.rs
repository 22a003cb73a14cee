//! Parse: the values of the keys that ask for a kind of work.

use std::time::Duration;

use proc_macro2::{Span, TokenTree};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Error, Expr, Ident, LitStr, Path, Result, Token, parenthesized, token};

use super::lanes::{AtMost, SerialBy};
use super::suggest::{one_of, unknown};
use super::value::{self, Written, arguments, column_name, duration, table_name, unexpected, whole_number};

/// The optional columns: the keys that rename them, their default names, and the key that asks for them.
pub(crate) const OPTIONAL_COLUMNS: [(&str, &str, &str); 10] = [
    ("stage_column", "stage", "stage"),
    ("period", "period", "periodic"),
    ("cron", "cron", "periodic"),
    ("time_zone", "time_zone", "periodic"),
    ("scheduled_time", "scheduled_time", "periodic"),
    ("change_count", "change_count", "rerun_on_change"),
    ("created_time", "created_time", "timestamps"),
    ("updated_time", "updated_time", "timestamps"),
    ("begin_time", "begin_time", "timestamps"),
    ("end_time", "end_time", "timestamps"),
];

/// What the keys that ask for a kind of work say. It has a field for each key.
#[derive(Default)]
pub(crate) struct Kinds {
    pub(crate) order_by: Option<OrderBy>,
    pub(crate) priority: Option<Priority>,
    pub(crate) claim_if: Option<Box<Expr>>,
    pub(crate) stage: Option<Path>,
    pub(crate) periodic: Option<Periodic>,
    pub(crate) version: Option<Ident>,
    pub(crate) rerun_on_change: Option<(Span, Vec<Ident>)>,
    pub(crate) occasion: Option<OwnColumn>,
    pub(crate) traceparent: Option<OwnColumn>,
    pub(crate) timestamps: Option<[bool; 4]>,
    pub(crate) on_success_delete: Option<Span>,
    pub(crate) archive: Option<Archive>,
    pub(crate) keep: Option<Kept>,
    pub(crate) window: Option<LitStr>,
    pub(crate) exclusive: Option<Span>,
    pub(crate) serial_by: Option<SerialBy>,
    pub(crate) fair_by: Option<Ident>,
    pub(crate) at_most: Vec<(Span, AtMost)>,
    pub(crate) notify: bool,
    pub(crate) report_index: bool,
    /// The column by which reports are split.
    pub(crate) report_by: Option<Ident>,
    /// The names that were given, in the order of [`OPTIONAL_COLUMNS`].
    pub(crate) columns: [Option<Written<String>>; 10],
}

/// The columns by which due rows are claimed.
pub(crate) struct OrderBy {
    pub(crate) columns: Vec<OrderColumn>,
    pub(crate) age: Option<Duration>,
}

/// A column of the order, and whether higher values come first.
pub(crate) struct OrderColumn {
    pub(crate) column: Ident,
    pub(crate) descending: bool,
}

/// The queue's own column for the order.
pub(crate) struct Priority {
    pub(crate) name: Option<Written<String>>,
    pub(crate) age: Option<Duration>,
}

/// A column of the queue's own that counts occasions, or that has the trace context.
pub(crate) struct OwnColumn {
    pub(crate) name: Option<Written<String>>,
}

/// Schedules, and what happens to missed runs.
pub(crate) struct Periodic {
    pub(crate) span: Span,
    pub(crate) missed: Missed,
}

/// What happens to missed runs.
pub(crate) enum Missed {
    Once,
    Skip(Duration),
    All(u32),
}

/// Where finished rows go.
pub(crate) struct Archive {
    pub(crate) span: Span,
    pub(crate) success: Option<Written<String>>,
    pub(crate) failed: Option<Written<String>>,
}

/// For how long finished rows stay.
pub(crate) struct Kept {
    pub(crate) span: Span,
    pub(crate) success: Option<Written<Duration>>,
    pub(crate) failed: Option<Duration>,
    pub(crate) skipped: Option<Duration>,
}

const LATE: Duration = Duration::from_secs(60);
const CAP: u32 = 100;

/// The largest number of runs that are made up for: the queue searches the schedule for each while it holds the row's
/// lock.
const MOST_MISSED: u32 = 10_000;

/// Reads `column` or `column.desc()` or, in a list, several of them and `age = "1h"`.
pub(crate) fn order_by(input: ParseStream<'_>) -> Result<OrderBy> {
    let mut columns = vec![order_column(input)?];
    while input.peek(Token![,]) && input.peek2(Ident::peek_any) && !input.peek3(Token![=]) {
        input.parse::<Token![,]>()?;
        let next = order_column(input)?;
        if columns.iter().any(|column| column.column == next.column) {
            return Err(Error::new(next.column.span(), format!("`{}` is given twice", next.column)));
        }
        columns.push(next);
    }
    let mut age = None;
    arguments(input, true, &["age"], |_, input| {
        age = Some(some_time(input)?);
        Ok(())
    })?;
    Ok(OrderBy { columns, age })
}

fn order_column(input: ParseStream<'_>) -> Result<OrderColumn> {
    let column = value::column(input, "due_date")?;
    if input.parse::<Option<Token![.]>>()?.is_none() {
        return Ok(OrderColumn { column, descending: false });
    }
    if !input.peek(Ident::peek_any) {
        return Err(unexpected(input, "`asc()` or `desc()`"));
    }
    let method = input.call(Ident::parse_any)?;
    let descending = match method.to_string().as_str() {
        "asc" => false,
        "desc" => true,
        _ => return Err(unknown("order", &method, &["asc", "desc"])),
    };
    if !input.peek(token::Paren) {
        return Err(Error::new(method.span(), format!("expected `{method}()`")));
    }
    let arguments;
    parenthesized!(arguments in input);
    if !arguments.is_empty() {
        return Err(unexpected(&arguments, "`)`"));
    }
    Ok(OrderColumn { column, descending })
}

/// Reads the name of the column `priority`.
pub(crate) fn priority_name(input: ParseStream<'_>) -> Result<Written<String>> {
    column_name(input)
}

/// Reads `name = "urgency", age = "1h"`, in any order.
pub(crate) fn priority_list(input: ParseStream<'_>) -> Result<(Option<Written<String>>, Option<Duration>)> {
    let (mut name, mut age) = (None, None);
    arguments(input, false, &["name", "age"], |key, input| {
        if key == "age" {
            age = Some(some_time(input)?);
        } else {
            name = Some(column_name(input)?);
        }
        Ok(())
    })?;
    Ok((name, age))
}

/// Reads a condition: an expression in a string, the path of a function that returns one, or an expression as it is.
pub(crate) fn claim_if(input: ParseStream<'_>) -> Result<Box<Expr>> {
    const HELP: &str = "help: a Diesel condition on the table, such as \"payments::state.eq(State::Approved)\"";

    let place = input.fork().parse::<TokenTree>()?.span();
    let condition: Expr = match input.peek(LitStr) {
        true => input
            .parse::<LitStr>()?
            .parse()
            .map_err(|error: Error| Error::new(place, format!("this is not an expression: {error}\n{HELP}")))?,
        false => match input.parse()? {
            // A path without quotes names a function. In a string it would be a value: a column that is true or false.
            Expr::Path(path) => syn::parse_quote!(#path()),
            other => other,
        },
    };
    match condition {
        Expr::Assign(_) | Expr::Binary(_) => {
            let message = format!("Rust's operators make no SQL: `.eq(..)`, `.gt(..)`, `.and(..)` do\n{HELP}");
            Err(Error::new(place, message))
        }
        condition => Ok(Box::new(condition)),
    }
}

/// Reads the enum of the stages.
pub(crate) fn stage(input: ParseStream<'_>) -> Result<Path> {
    if !input.peek(Ident::peek_any) && !input.peek(Token![::]) {
        return Err(unexpected(input, "an enum that derives `Stage`, such as `InvoiceStage`"));
    }
    input.parse()
}

/// Reads `missed = once`, `missed = skip("1m")` or `missed = all(100)`.
pub(crate) fn periodic_list(input: ParseStream<'_>) -> Result<Missed> {
    let mut missed = Missed::Once;
    arguments(input, false, &["missed"], |_, input| {
        missed = read_missed(input)?;
        Ok(())
    })?;
    Ok(missed)
}

/// Refuses a value: the schedule is data of each row.
pub(crate) fn periodic_value(input: ParseStream<'_>) -> Result<Missed> {
    let literal: LitStr = input.fork().parse().map_err(|_| unexpected(input, "`periodic` alone, or a list"))?;
    Err(schedule_is_on_the_row("cron", &literal.value(), literal.span()))
}

/// Refuses the name of a column that is a schedule.
pub(crate) fn is_no_schedule(key: &str, name: &Written<String>) -> Result<()> {
    let is_schedule = match key {
        "cron" => name.value.contains([' ', '*']),
        "period" => name.value.starts_with(|first: char| first.is_ascii_digit()),
        "time_zone" => name.value.contains('/') || name.value == "UTC",
        _ => false,
    };
    if is_schedule { Err(schedule_is_on_the_row(key, &name.value, name.span)) } else { Ok(()) }
}

fn schedule_is_on_the_row(column: &str, value: &str, span: Span) -> Error {
    let message = format!(
        "each row has its own schedule, `{value}` is not for the whole queue\n         help: write `periodic`, and set the row's column `{column}` when you insert it"
    );
    Error::new(span, message)
}

/// The default: one run makes up for all missed runs.
pub(crate) const ONCE: Missed = Missed::Once;

fn read_missed(input: ParseStream<'_>) -> Result<Missed> {
    const POLICIES: [&str; 3] = ["once", "skip", "all"];

    if !input.peek(Ident::peek_any) {
        return Err(unexpected(input, &one_of(&POLICIES)));
    }
    let policy = input.call(Ident::parse_any)?;
    let name = policy.to_string();
    if !POLICIES.contains(&name.as_str()) {
        return Err(unknown("policy", &policy, &POLICIES));
    }
    let argument = if input.peek(syn::token::Paren) {
        let argument;
        parenthesized!(argument in input);
        Some(argument)
    } else {
        None
    };
    let missed = match (name.as_str(), &argument) {
        ("once", None) => Missed::Once,
        ("once", Some(_)) => return Err(Error::new(policy.span(), "`once` takes no argument")),
        ("skip", None) => Missed::Skip(LATE),
        ("skip", Some(argument)) => Missed::Skip(some_time(argument)?),
        (_, None) => Missed::All(CAP),
        (_, Some(argument)) => Missed::All(whole_number(argument, 1, MOST_MISSED)?),
    };
    match argument {
        Some(argument) if !argument.is_empty() => Err(unexpected(&argument, "`)`")),
        _ => Ok(missed),
    }
}

/// Reads the name of a column of the domain.
pub(crate) fn column(input: ParseStream<'_>) -> Result<Ident> {
    value::column(input, "content_version")
}

/// Reads the column by which reports are split.
pub(crate) fn report_by(input: ParseStream<'_>) -> Result<Ident> {
    value::column(input, "company_id")
}

/// Reads the names of columns.
pub(crate) fn columns(input: ParseStream<'_>) -> Result<Vec<Ident>> {
    let mut columns: Vec<Ident> = Vec::new();
    loop {
        let column = column(input)?;
        if columns.contains(&column) {
            return Err(Error::new(column.span(), format!("`{column}` is named twice")));
        }
        columns.push(column);
        if input.is_empty() {
            return Ok(columns);
        }
        if !input.peek(Token![,]) {
            return Err(unexpected(input, "`,` or `)`"));
        }
        input.parse::<Token![,]>()?;
        if input.is_empty() {
            return Ok(columns);
        }
    }
}

/// Reads the times that the queue keeps.
pub(crate) fn timestamps_list(input: ParseStream<'_>) -> Result<[bool; 4]> {
    const TIMES: [&str; 4] = ["created", "updated", "begin", "end"];

    let mut kept = [false; 4];
    for time in columns(input)? {
        match TIMES.iter().position(|name| time == name) {
            Some(place) => kept[place] = true,
            None => return Err(unknown("time", &time, &TIMES)),
        }
    }
    Ok(kept)
}

/// Reads `delete`.
pub(crate) fn on_success(input: ParseStream<'_>) -> Result<Span> {
    if !input.peek(Ident::peek_any) {
        return Err(unexpected(input, "`delete`"));
    }
    let word = input.call(Ident::parse_any)?;
    if word == "delete" { Ok(word.span()) } else { Err(unknown("value", &word, &["delete"])) }
}

/// Reads `notify` or `poll`.
pub(crate) fn wake(input: ParseStream<'_>) -> Result<bool> {
    const WAYS: [&str; 2] = ["notify", "poll"];

    if !input.peek(Ident::peek_any) {
        return Err(unexpected(input, &one_of(&WAYS)));
    }
    let way = input.call(Ident::parse_any)?;
    match WAYS.iter().position(|name| way == name) {
        Some(place) => Ok(place == 0),
        None => Err(unknown("value", &way, &WAYS)),
    }
}

/// Reads `success = table, failed = table`.
pub(crate) fn archive_list(input: ParseStream<'_>) -> Result<[Option<Written<String>>; 2]> {
    let (mut success, mut failed) = (None, None);
    arguments(input, false, &["success", "failed"], |key, input| {
        let table = Some(table_name(input)?);
        if key == "success" {
            success = table
        } else {
            failed = table
        }
        Ok(())
    })?;
    if success.is_none() && failed.is_none() {
        return Err(unexpected(input, "`success = table` or `failed = table`"));
    }
    Ok([success, failed])
}

/// Reads `success = "30d", failed = "1y", skipped = "30d"`.
pub(crate) fn keep_list(input: ParseStream<'_>) -> Result<Kept> {
    let mut kept = Kept { span: input.span(), success: None, failed: None, skipped: None };
    arguments(input, false, &["success", "failed", "skipped"], |key, input| {
        let (span, time) = (input.span(), some_time(input)?);
        match key.to_string().as_str() {
            "success" => kept.success = Some(Written { value: time, span }),
            "failed" => kept.failed = Some(time),
            _ => kept.skipped = Some(time),
        }
        Ok(())
    })?;
    if kept.success.is_none() && kept.failed.is_none() && kept.skipped.is_none() {
        return Err(unexpected(input, r#"`success = "30d"`, `failed = "1y"` or `skipped = "30d"`"#));
    }
    Ok(kept)
}

/// Reads days, hours and a time zone. The poller reads the hours when it starts, because the derive does not know the
/// zones.
pub(crate) fn window(input: ParseStream<'_>) -> Result<LitStr> {
    const EXAMPLE: &str = r#"a window such as "Mon-Fri 22:00-06:00 Europe/Berlin""#;

    if !input.peek(LitStr) {
        return Err(unexpected(input, EXAMPLE));
    }
    let window: LitStr = input.parse()?;
    let text = window.value();
    let mut words = text.split_whitespace();
    let zone = words.next_back().filter(|zone| zone.chars().next().is_some_and(char::is_alphabetic));
    let hours = words.any(|word| word.trim_end_matches(',').split('-').all(is_hour) && word.contains('-'));
    if zone.is_none() || !hours {
        let message = format!(
            "`{text}` is not a window, expected {EXAMPLE}: days (or none), hours as `HH:MM-HH:MM`, and the name of a time \
             zone"
        );
        return Err(Error::new(window.span(), message));
    }
    Ok(window)
}

fn is_hour(text: &str) -> bool {
    let number = |text: &str, max| text.len() == 2 && text.parse::<u32>().is_ok_and(|number| number <= max);
    text.split_once(':').is_some_and(|(hour, minute)| number(hour, 24) && number(minute, 59))
}

fn some_time(input: ParseStream<'_>) -> Result<Duration> {
    let duration = duration(input)?;
    if duration.value.is_zero() {
        return Err(Error::new(duration.span, "expected a duration longer than zero"));
    }
    Ok(duration.value)
}
