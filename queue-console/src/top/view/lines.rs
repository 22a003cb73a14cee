//! The lines around the list: the database, the tabs, the dialog, the connection, the keys.

use std::time::Duration;

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::grid::clipped;
use super::over::wrapped;
use super::theme::Theme;
use crate::change::word;
use crate::shown::{count, cut, span, visible};
use crate::top::ask::{Change, Target};
use crate::top::dialog::Dialog;
use crate::top::input::Input;
use crate::top::model::{Lost, Model, Over, Tab};

/// How many lines of a refused condition are shown.
const REFUSED: usize = 6;

pub(super) fn head(model: &Model, theme: Theme, width: u16) -> Line<'static> {
    let mut text = clipped(&model.address, width / 2);
    if let Some(environment) = &model.environment {
        text.push_str(&format!("  environment {}", clipped(environment, 20)));
    }
    if model.read_only {
        text.push_str("  read-only");
    }
    let clock = model.now.format("%H:%M:%S UTC").to_string();
    let space = usize::from(width).saturating_sub(text.width() + clock.width());
    Line::from(vec![Span::styled(text, theme.title()), Span::raw(" ".repeat(space)), Span::raw(clock)])
}

pub(super) fn tabs(model: &Model, theme: Theme) -> Line<'static> {
    let mut spans = Vec::new();
    for (place, tab) in Tab::ALL.into_iter().enumerate() {
        let name = format!("{} {}", place + 1, tab.name());
        spans.push(match tab == model.tab {
            true => Span::styled(format!("[{name}]"), theme.chosen()),
            false => Span::raw(format!(" {name} ")),
        });
        spans.push(Span::raw(" "));
    }
    spans.push(Span::styled(" ? help", theme.dim()));
    Line::from(spans)
}

/// What stands above the line of the connection, as long as something is asked.
pub(super) fn dialog(model: &Model, theme: Theme, width: u16) -> Vec<Line<'static>> {
    let lines = |text: &str| -> Vec<Line<'static>> { wrapped(text, width).into_iter().map(Line::from).collect() };
    match &model.dialog {
        Dialog::None => Vec::new(),
        Dialog::Typing(asked, input, refused) => {
            let mut all: Vec<_> = match refused {
                Some(refused) => refused_lines(refused, width, theme),
                None => Vec::new(),
            };
            all.push(Line::styled(clipped(&format!("{} (Enter, or Esc)", asked.question()), width), theme.heading()));
            all.push(Line::from(format!("> {}", seen(input, width).0)));
            all
        }
        Dialog::Counting(change) => {
            lines(&format!("{}: the rows are counted; Esc leaves it", of_change(model, change)))
        }
        Dialog::Confirming(change, found) => {
            let target = Line::styled(clipped(&of_change(model, change), width), theme.heading());
            let question = question(&found.summary, width).into_iter().map(|line| Line::styled(line, theme.warns()));
            std::iter::once(target).chain(question).collect()
        }
        Dialog::Working { what, progress, stops } => {
            let progress = progress.map(|(done, of)| format!(": {} of {} rows", count(done), count(of)));
            let end = match (stops, &progress) {
                (true, _) => ", stops after this transaction",
                (false, Some(_)) => ", Esc stops it",
                (false, None) => "",
            };
            lines(&format!("{what}{}{end}", progress.unwrap_or_default()))
        }
    }
}

/// What changes, and a question that stands in one line.
fn question(summary: &str, width: u16) -> Vec<String> {
    const QUESTION: &str = "go on? y/N";
    let mut lines = wrapped(&format!("{summary};"), width);
    match lines.last_mut() {
        Some(last) if last.width() + 1 + QUESTION.width() <= usize::from(width) => *last = format!("{last} {QUESTION}"),
        _ => lines.push(QUESTION.to_owned()),
    }
    lines
}

/// A condition with the place where it is wrong: its lines keep their beginnings, so that the caret stands where it belongs.
fn refused_lines(refused: &str, width: u16, theme: Theme) -> Vec<Line<'static>> {
    let wide = refused.lines().map(UnicodeWidthStr::width).max().unwrap_or(0);
    let caret = refused.lines().find(|line| line.trim_start().starts_with('^')).map_or(0, |line| line.width());
    // A long condition is moved to the left, with its caret.
    let moved = if wide > usize::from(width) { caret.saturating_sub(usize::from(width)) } else { 0 };
    let is_of_condition = |place: usize| {
        let next = refused.lines().nth(place + 1);
        [refused.lines().nth(place), next].iter().flatten().any(|line| line.trim_start().starts_with('^'))
    };
    let lines = refused.lines().enumerate().flat_map(|(place, line)| match is_of_condition(place) {
        true => vec![clipped(&line.chars().skip(moved).collect::<String>(), width)],
        false => wrapped(line, width),
    });
    lines.take(REFUSED).map(|line| Line::styled(line, theme.bad())).collect()
}

/// Which rows a change is about.
fn of_change(model: &Model, change: &Change) -> String {
    let name = model.names.get(change.target.queue()).cloned().unwrap_or_default();
    match &change.target {
        Target::Row(place) => format!("{} of {name} {}", word(&change.operate), place.key),
        Target::Group { pattern, .. } => {
            format!("{} of {name}, errors: {}", word(&change.operate), pattern.lines().next().unwrap_or_default())
        }
    }
}

/// The part of a line that is seen, and where its cursor is.
fn seen(input: &Input, width: u16) -> (String, usize) {
    let most = usize::from(width).saturating_sub(3);
    let (before, after) = input.parts();
    let before = visible(before);
    let moved = before.width().saturating_sub(most);
    let mut skipped = 0;
    let before: String = before
        .chars()
        .skip_while(|c| {
            let skips = skipped < moved;
            skipped += c.to_string().width();
            skips
        })
        .collect();
    let at = before.width();
    (cut(&format!("{before}{}", visible(after)), most + 1), at)
}

/// The column of the cursor.
pub(super) fn cursor(input: &Input, width: u16) -> u16 {
    u16::try_from(seen(input, width).1 + 2).unwrap_or(0)
}

/// How many lines the connection takes at most.
const STATUS: usize = 3;

/// What is true of the connection. Why there is none may take more than one line.
pub(super) fn status(model: &Model, theme: Theme, width: u16) -> Vec<Line<'static>> {
    let (text, style) = match &model.lost {
        Some(lost) => (without_connection(model, lost), theme.bad()),
        None => with_connection(model, theme),
    };
    wrapped(&text, width).into_iter().take(STATUS).map(|line| Line::styled(line, style)).collect()
}

fn without_connection(model: &Model, lost: &Lost) -> String {
    let old = read_ago(model).map(|old| format!("stale, read {old} ago; ")).unwrap_or_default();
    let since = lost.since.format("%H:%M:%S UTC");
    let next = match (lost.next - model.now).to_std() {
        Ok(next) if next.as_secs() > 0 => format!("next try in {}", seconds(next)),
        _ => "connects".to_owned(),
    };
    format!("! {old}no connection since {since}, {next}: {}", lost.why.lines().next().unwrap_or_default())
}

fn with_connection(model: &Model, theme: Theme) -> (String, Style) {
    let waits = model.busy.and_then(|since| (model.now - since).to_std().ok()).unwrap_or_default();
    if waits > model.patience {
        return (format!("! no answer for {}: r connects anew, q quits", seconds(waits)), theme.bad());
    }
    if waits > Duration::from_secs(3) {
        return (format!("the database has not answered for {}", seconds(waits)), theme.warns());
    }
    let said = match read_ago(model) {
        Some(old) if old == "0ms" => "read now".to_owned(),
        Some(old) => format!("read {old} ago"),
        None => "reads for the first time".to_owned(),
    };
    (said, theme.dim())
}

fn read_ago(model: &Model) -> Option<String> {
    Some(seconds((model.now - model.read_at?).to_std().unwrap_or_default()))
}

/// A duration in whole seconds.
fn seconds(duration: Duration) -> String {
    span(Duration::from_secs(duration.as_secs()))
}

pub(super) fn keys(model: &Model, theme: Theme) -> Line<'static> {
    if let Some(said) = &model.said {
        let style = if said.is_refusal { theme.bad() } else { theme.good() };
        let mark = if said.is_refusal { "! " } else { "" };
        let text = said.text.lines().map(visible).collect::<Vec<_>>().join(" ");
        return Line::styled(format!("{mark}{text}"), style);
    }
    let changes = !model.read_only;
    let pause = if changes { " p pause u unpause" } else { "" };
    let shift = if changes { " R retry S skip X stop" } else { "" };
    let keys = match (&model.over, model.tab) {
        (Some(Over::Help), _) => "Esc back".to_owned(),
        (Some(Over::Row(..)), _) => format!("j k scroll{shift} Esc back"),
        (Some(Over::Group(..)), _) => format!("Enter explain the first{shift} Esc back"),
        (None, Tab::Queues) => format!("Enter rows s sort / filter{pause}"),
        (None, Tab::Running) => "Enter explain".to_owned(),
        (None, Tab::Errors) => format!("Enter examples{shift}"),
        (None, Tab::Rows) => format!("Enter row f state s sort / filter{shift}{pause}"),
        (None, Tab::Pollers) => "j k move".to_owned(),
    };
    Line::styled(format!("{keys} q quit"), theme.dim())
}
