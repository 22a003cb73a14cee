//! What covers the list: a row, a group of errors, the help.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::theme::Theme;
use crate::shown::visible;
use crate::top::ask::Paragraph;
use crate::top::model::{Drawn, Model, Over};

/// How wide the names of columns are at most.
const WIDEST_NAME: usize = 30;

/// The keys, and whether they change something.
const HELP: [(&str, &str, bool); 20] = [
    ("Tab l h 1-5", "the next tab, the one before, a tab by its number", false),
    ("j k Up Down", "move", false),
    ("PgUp PgDn g G", "move by a page, to the first line, to the last", false),
    ("Enter", "queues: its rows; a row: explain it, with all columns; errors: examples", false),
    ("Esc", "back", false),
    ("s", "sort the queues or the rows by something else", false),
    ("f", "rows: only those of one state", false),
    ("/", "only rows for which a condition holds: company_id = 3345 and try_count > 2", false),
    ("r", "read now", false),
    ("p", "pause the queue; the reason is asked for", true),
    ("u", "end the pause of the queue", true),
    ("R", "retry now: the row, or all rows of a group of errors", true),
    ("S", "skip: they are not processed again", true),
    ("X", "stop: they wait until the command `resume`", true),
    (" ", "R, S and X need Shift. The rows are counted and shown, and y goes on.", true),
    ("?", "this page", false),
    ("Ctrl-L", "draw the screen anew", false),
    ("Ctrl-Z", "back to the shell, until `fg`", false),
    ("q", "quit", false),
    ("Ctrl-C", "quit with the exit code 130; a change stops between two transactions", false),
];

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, over: &Over, theme: Theme) -> Drawn {
    let name = |queue: usize| model.names.get(queue).map_or("", String::as_str);
    let (title, lines) = match over {
        Over::Help => ("keys".to_owned(), help(model, theme, area.width)),
        Over::Row(place, text) => {
            let read = text.as_deref().map(|text| paragraphs(text, theme, area.width));
            (format!("{} {}", name(place.queue), place.key), read.unwrap_or_else(|| vec![Line::from("is read")]))
        }
        Over::Group(_, text, _) => ("errors".to_owned(), paragraphs(text, theme, area.width)),
    };
    scrolled(frame, area, model, (&title, lines), theme)
}

fn scrolled(
    frame: &mut Frame<'_>,
    area: Rect,
    model: &Model,
    (title, lines): (&str, Vec<Line<'static>>),
    theme: Theme,
) -> Drawn {
    let page = usize::from(area.height.saturating_sub(1));
    let most = lines.len().saturating_sub(page);
    let from = model.drawn.from.min(most);
    let more = if from < most { format!("  ({} more lines: j)", most - from) } else { String::new() };
    let title = Line::styled(super::grid::clipped(&format!("{title}{more}"), area.width), theme.heading());
    let shown: Vec<_> = std::iter::once(title).chain(lines.into_iter().skip(from)).collect();
    super::put(frame, area, &shown);
    Drawn { page, most, from }
}

fn help(model: &Model, theme: Theme, width: u16) -> Vec<Line<'static>> {
    let keys = HELP.iter().filter(|(_, _, changes)| !(model.read_only && *changes));
    let text: Vec<_> = keys.map(|(keys, what, _)| Paragraph::named(keys, *what)).collect();
    paragraphs(&text, theme, width)
}

/// Lines of at most this width; the names stand in a column of their own.
fn paragraphs(text: &[Paragraph], theme: Theme, width: u16) -> Vec<Line<'static>> {
    let names = text.iter().map(|paragraph| visible(&paragraph.name).width()).max().unwrap_or(0).min(WIDEST_NAME);
    let indent = if names > 0 { names + 2 } else { 0 };
    let mut lines = Vec::new();
    for Paragraph { name, text, is_dim } in text {
        // A text without a name has the whole line.
        let indent = if name.is_empty() { 0 } else { indent };
        let room = usize::from(width).saturating_sub(indent).max(10);
        let room = u16::try_from(room).unwrap_or(width);
        for (place, line) in text.split('\n').flat_map(|line| wrapped(line, room)).enumerate() {
            let name = if place == 0 { super::grid::clipped(name, WIDEST_NAME as u16) } else { String::new() };
            let space = " ".repeat(indent.saturating_sub(name.width()));
            let style = if *is_dim { theme.dim() } else { ratatui::style::Style::new() };
            lines.push(Line::from(vec![
                Span::styled(name, theme.heading()),
                Span::raw(space),
                Span::styled(line, style),
            ]));
        }
    }
    lines
}

/// A line as lines of at most this width, in which everything is visible. It is broken at spaces where that is possible.
pub(super) fn wrapped(text: &str, width: u16) -> Vec<String> {
    let width = usize::from(width).max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in visible(text).split_inclusive(' ') {
        if line.width() + word.trim_end().width() > width && !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for c in word.chars() {
            if line.width() + c.width().unwrap_or(0) > width && c != ' ' {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    lines.push(line);
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}
