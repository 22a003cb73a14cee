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
    /// Whether its texts are shown whole or not at all, as numbers are.
    is_whole: bool,
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

/// How wide a column of text stays, while names of numbers can still be cut.
const NARROW: usize = 8;

/// How wide a column of text stays, while columns can be left out.
const NARROWEST: usize = 4;

/// How many blanks are between two columns.
const GAP: usize = 2;

impl Table {
    pub(crate) fn text(mut self, name: impl Into<String>) -> Self {
        self.headings.push(Heading { name: name.into(), is_number: false, is_whole: false });
        self
    }

    /// Adds a column of texts that would mean nothing if they were cut, such as times.
    pub(crate) fn whole(mut self, name: impl Into<String>) -> Self {
        self.headings.push(Heading { name: name.into(), is_number: false, is_whole: true });
        self
    }

    pub(crate) fn number(mut self, name: impl Into<String>) -> Self {
        self.headings.push(Heading { name: name.into(), is_number: true, is_whole: true });
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
            let width = u16::try_from(*width + GAP).unwrap_or(u16::MAX);
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

    /// How wide the columns are. What does not fit is taken from the widest texts, then from the names of numbers, and then from all
    /// texts; the last columns are left out if that is not enough.
    fn widths(&self, width: Option<usize>) -> Vec<usize> {
        let of_cells = |place: usize| {
            self.lines.iter().filter_map(|line| line.get(place)).map(|cell| cell.text.width()).max().unwrap_or(0)
        };
        let headings = || self.headings.iter().enumerate();
        let mut widths: Vec<usize> = headings().map(|(at, heading)| of_cells(at).max(heading.name.width())).collect();
        let Some(most) = width else { return widths };
        let texts = |least| headings().map(|(_, heading)| if heading.is_whole { usize::MAX } else { least }).collect();
        let number = |(at, heading): (usize, &Heading)| if heading.is_whole { of_cells(at).max(3) } else { usize::MAX };
        let least: [Vec<usize>; 3] = [texts(NARROW), headings().map(number).collect(), texts(NARROWEST)];
        let all = |widths: &[usize]| widths.iter().map(|width| width + GAP).sum::<usize>().saturating_sub(GAP);
        for least in &least {
            while all(&widths) > most {
                let wider = widths.iter_mut().zip(least).filter(|(width, least)| **width > **least);
                let Some(widest) = wider.map(|(width, _)| width).max_by_key(|width| **width) else { break };
                *widest -= 1;
            }
        }
        while all(&widths) > most && widths.len() > 1 {
            widths.pop();
        }
        widths
    }
}
