//! A table as CSV, which a spreadsheet opens without running anything.

use csv::{Terminator, Writer, WriterBuilder};
use queue_core::internals::by_name::TextColumn;

use super::cells::exact;
use super::export::File;
use super::trouble::{Told, Trouble};
use crate::command::is_number;
use crate::queue::{Facts, Line};
use crate::shown::{Typed, typed};

/// A file in CSV: a line of names, then a line for each row. A null is an empty field.
pub(super) struct Sheet(Writer<Vec<u8>>);

impl File for Sheet {
    const KIND: &'static str = "text/csv; charset=utf-8; header=present";
    const ENDING: &'static str = "csv";

    fn begin(columns: &[TextColumn]) -> Self {
        let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
        let names = columns.iter().map(|column| harmless(column.name.clone()));
        writer.write_record(names).expect("memory takes every record");
        Sheet(writer)
    }

    fn add(&mut self, facts: &Facts, columns: &[TextColumn], line: &Line) -> Told<()> {
        let values = columns.iter().zip(&line.values).map(|(column, value)| field(facts, column, value.as_deref()));
        self.0.write_record(values).map_err(|error| Trouble::logged(&error))
    }

    fn len(&self) -> usize {
        self.0.get_ref().len()
    }

    fn end(self) -> Told<Vec<u8>> {
        self.0.into_inner().map_err(|error| Trouble::logged(&error))
    }
}

fn field(facts: &Facts, column: &TextColumn, value: Option<&str>) -> String {
    let value = typed(value, column.holds);
    let is_plain = match &value {
        Typed::Text(text) => is_number(column.holds) && is_figure(text),
        _ => true,
    };
    match facts.words(&column.name, value, exact) {
        Ok(text) if is_plain => text,
        Ok(text) => harmless(text),
        Err("null") => String::new(),
        Err(instead) => instead.to_owned(),
    }
}

/// Whether a text is a number. SQLite lets a column of numbers have any text.
fn is_figure(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok()
}

/// Puts an apostrophe before what a spreadsheet would read as a formula. A row's text can be anybody's, and a formula can send other
/// cells away or start a program: <https://owasp.org/www-community/attacks/CSV_Injection>, from where these characters are.
fn harmless(text: String) -> String {
    const BEGIN: [char; 11] = ['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];
    if text.starts_with(BEGIN) { format!("'{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_is_a_formula() {
        for text in ["=1+1", "+1", "-1", "@a", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠a"] {
            assert_eq!(harmless(text.to_owned()), format!("'{text}"));
        }
        for text in ["", "a=1", " a", "1-1", "'=1", "é"] {
            assert_eq!(harmless(text.to_owned()), text);
        }
    }

    #[test]
    fn numbers_stay_numbers() {
        for text in ["0", "-12", "-0.50", "1e-7", "184467440737095516160"] {
            assert!(is_figure(text), "{text}");
        }
        for text in ["-1+cmd|' /C calc'!A0", "=1", "+1", "-", "", "-inf", "nan", "1 000"] {
            assert!(!is_figure(text), "{text}");
        }
    }
}
