//! A table of which a part is seen.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::theme::Theme;
use crate::shown::{cut, visible};

/// How wide a column of text is at least, before it is cut.
const NARROWEST: usize = 8;

/// The space between two columns.
const GAP: usize = 1;

#[derive(Debug, Default)]
pub(super) struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
    /// What stands in the place of no rows.
    empty: String,
}

#[derive(Debug)]
struct Column {
    name: String,
    /// The name where there is little space.
    short: String,
    is_number: bool,
}

/// A value, which is made visible.
#[derive(Debug, Clone, Default)]
pub(super) struct Value {
    text: String,
    style: Style,
}

impl Value {
    pub(super) fn new(text: impl AsRef<str>) -> Self {
        Value { text: visible(text.as_ref()), style: Style::new() }
    }

    pub(super) fn styled(self, style: Style) -> Self {
        Value { style, ..self }
    }
}

impl Grid {
    pub(super) fn new(empty: &str) -> Self {
        Grid { empty: empty.to_owned(), ..Grid::default() }
    }

    pub(super) fn text(self, name: &str) -> Self {
        self.column(name, name, false)
    }

    pub(super) fn number(self, name: &str) -> Self {
        self.column(name, name, true)
    }

    pub(super) fn column(mut self, name: &str, short: &str, is_number: bool) -> Self {
        self.columns.push(Column { name: visible(name), short: visible(short), is_number });
        self
    }

    pub(super) fn row(&mut self, values: impl IntoIterator<Item = Value>) {
        self.rows.push(values.into_iter().collect());
    }

    /// Draws the rows around the chosen one, and returns how many there is room for.
    pub(super) fn draw(
        mut self,
        frame: &mut Frame<'_>,
        area: Rect,
        chosen: usize,
        first: &mut usize,
        theme: Theme,
    ) -> usize {
        let page = usize::from(area.height.saturating_sub(1));
        if self.rows.is_empty() {
            super::put(
                frame,
                area,
                &super::over::wrapped(&self.empty, area.width).into_iter().map(Line::from).collect::<Vec<_>>(),
            );
            return page;
        }
        self.drop_empty_columns();
        *first = (*first).min(chosen).max((chosen + 1).saturating_sub(page)).min(self.rows.len().saturating_sub(page));
        let (widths, is_short) = self.widths(usize::from(area.width).saturating_sub(2));
        let names = self.columns.iter().map(|column| Value {
            text: if is_short { column.short.clone() } else { column.name.clone() },
            style: theme.heading(),
        });
        let names: Vec<_> = names.collect();
        let heading = self.line("  ", &names, &widths);
        let rows = self.rows.iter().enumerate().skip(*first).take(page).map(|(place, row)| {
            let is_chosen = place == chosen;
            let line = self.line(if is_chosen { "> " } else { "  " }, row, &widths);
            if is_chosen { filled(line, area.width).patch_style(theme.chosen()) } else { line }
        });
        let lines: Vec<_> = std::iter::once(heading).chain(rows).collect();
        super::put(frame, area, &lines);
        page
    }

    fn line(&self, mark: &'static str, values: &[Value], widths: &[usize]) -> Line<'static> {
        let mut spans = vec![Span::raw(mark)];
        for ((value, width), column) in values.iter().zip(widths).zip(&self.columns) {
            let text = cut(&value.text, *width);
            let space = " ".repeat(width.saturating_sub(text.width()));
            let (before, after) = if column.is_number { (space, String::new()) } else { (String::new(), space) };
            spans.extend([Span::raw(before), Span::styled(text, value.style), Span::raw(after + " ")]);
        }
        Line::from(spans)
    }

    fn drop_empty_columns(&mut self) {
        let is_empty =
            |place: usize| self.rows.iter().all(|row| row.get(place).is_none_or(|value| value.text.is_empty()));
        let empty: Vec<bool> = (0..self.columns.len()).map(is_empty).collect();
        let kept = |place: &mut usize| {
            *place += 1;
            !empty[*place - 1]
        };
        let mut place = 0;
        self.columns.retain(|_| kept(&mut place));
        for row in &mut self.rows {
            let mut place = 0;
            row.retain(|_| kept(&mut place));
        }
    }

    /// How wide the columns are, and whether their names are short. Then the widest texts are cut.
    fn widths(&self, most: usize) -> (Vec<usize>, bool) {
        let of = |is_short: bool| -> Vec<usize> {
            let width = |(place, column): (usize, &Column)| {
                let values = self.rows.iter().filter_map(|row| row.get(place)).map(|value| value.text.width());
                values.max().unwrap_or(0).max(if is_short { &column.short } else { &column.name }.width())
            };
            self.columns.iter().enumerate().map(width).collect()
        };
        let all = |widths: &[usize]| widths.iter().map(|width| width + GAP).sum::<usize>().saturating_sub(GAP);
        let long = of(false);
        if all(&long) <= most {
            return (long, false);
        }
        let mut widths = of(true);
        while all(&widths) > most {
            let texts = widths.iter_mut().zip(&self.columns).filter(|(width, of)| !of.is_number && **width > NARROWEST);
            match texts.map(|(width, _)| width).max_by_key(|width| **width) {
                Some(widest) => *widest -= 1,
                None => break,
            }
        }
        (widths, true)
    }
}

/// A text that fits.
pub(super) fn clipped(text: &str, width: u16) -> String {
    cut(&visible(text), usize::from(width))
}

/// Fills a line with space, so that its style reaches the edge.
fn filled(line: Line<'static>, width: u16) -> Line<'static> {
    let space = usize::from(width).saturating_sub(line.width());
    let mut spans = line.spans;
    spans.push(Span::raw(" ".repeat(space)));
    Line::from(spans)
}
