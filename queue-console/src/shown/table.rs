//! Tables that fit the terminal.

use anstyle::{AnsiColor, Style};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width};

use unicode_width::UnicodeWidthStr;

use super::words::{cut, visible};

/// A table under a line of headings.
#[derive(Debug, Default)]
pub(crate) struct Table {
    headings: Vec<Heading>,
    lines: Vec<Vec<Cell>>,
}

#[derive(Debug)]
struct Heading {
    name: String,
    is_number: bool,
}

/// A value in a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Cell { text: visible(text.as_ref()), style: Style::new() }
    }

    pub(crate) fn red(self) -> Self {
        Cell { style: AnsiColor::Red.on_default(), ..self }
    }

    pub(crate) fn yellow(self) -> Self {
        Cell { style: AnsiColor::Yellow.on_default(), ..self }
    }

    pub(crate) fn dim(self) -> Self {
        Cell { style: Style::new().dimmed(), ..self }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::new(text)
    }
}

/// How wide a column of text is at least, before it is cut.
const NARROWEST: usize = 8;

impl Table {
    pub(crate) fn text(mut self, name: impl Into<String>) -> Self {
        self.headings.push(Heading { name: name.into(), is_number: false });
        self
    }

    pub(crate) fn number(mut self, name: impl Into<String>) -> Self {
        self.headings.push(Heading { name: name.into(), is_number: true });
        self
    }

    pub(crate) fn line(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.lines.push(cells.into_iter().collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Leaves out the columns without a value.
    pub(crate) fn without_empty_columns(mut self) -> Self {
        let is_empty =
            |place: usize| self.lines.iter().all(|line| line.get(place).is_none_or(|cell| cell.text.is_empty()));
        let empty: Vec<bool> = (0..self.headings.len()).map(is_empty).collect();
        let kept = |place: &mut usize| {
            *place += 1;
            !empty[*place - 1]
        };
        let mut place = 0;
        self.headings.retain(|_| kept(&mut place));
        for line in &mut self.lines {
            let mut place = 0;
            line.retain(|_| kept(&mut place));
        }
        self
    }

    /// Writes the table, in so many columns if a number is given. What does not fit is cut in the widest texts.
    pub(crate) fn written(&self, width: Option<u16>) -> String {
        let widths = self.widths(width.map(usize::from));
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let heading = |(heading, width): (&Heading, &usize)| comfy_table::Cell::new(cut(&heading.name, *width));
        table.set_header(self.headings.iter().zip(&widths).map(heading));
        for line in &self.lines {
            table.add_row(line.iter().zip(&widths).map(|(cell, width)| {
                // The width that is counted is that of the text alone.
                comfy_table::Cell::new(cut(&cell.text, *width))
            }));
        }
        for (place, (heading, width)) in self.headings.iter().zip(&widths).enumerate() {
            let Some(column) = table.column_mut(place) else { continue };
            column.set_padding((0, 2));
            column.set_cell_alignment(if heading.is_number { CellAlignment::Right } else { CellAlignment::Left });
            let width = u16::try_from(*width + 2).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
        let written: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        self.coloured(written)
    }

    /// Colours whole lines: that of the first cell with a style. So the widths of texts stay what they are.
    fn coloured(&self, written: Vec<String>) -> String {
        let bold = Style::new().bold();
        let styles =
            std::iter::once(bold).chain(self.lines.iter().map(|line| {
                line.iter().map(|cell| cell.style).find(|style| *style != Style::new()).unwrap_or_default()
            }));
        let lines = written.iter().zip(styles).map(|(line, style)| match style == Style::new() {
            true => format!("{line}\n"),
            false => format!("{style}{line}{style:#}\n"),
        });
        lines.collect()
    }

    fn widths(&self, width: Option<usize>) -> Vec<usize> {
        let widest = |place: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(place)).map(|cell| wide(&cell.text));
            cells.chain([wide(&self.headings[place].name)]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.headings.len()).map(widest).collect();
        let Some(most) = width else { return widths };
        loop {
            let all: usize = widths.iter().map(|width| width + 2).sum::<usize>().saturating_sub(2);
            let texts =
                widths.iter_mut().zip(&self.headings).filter(|(width, of)| !of.is_number && **width > NARROWEST);
            match texts.map(|(width, _)| width).max_by_key(|width| **width) {
                Some(widest) if all > most => *widest -= 1,
                _ => return widths,
            }
        }
    }
}

fn wide(text: &str) -> usize {
    text.width()
}
