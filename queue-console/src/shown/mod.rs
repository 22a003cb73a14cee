//! How answers look: tables and lines for people, JSON for programs.

mod json;
mod screen;
mod table;
mod words;

pub(crate) use self::json::{Typed, of_report, typed};
pub(crate) use self::screen::{LONGEST, Screen};
pub(crate) use self::table::{Cell, Table};
pub(crate) use self::words::{ago, count, exact, number, rows, span, spark, visible};
#[cfg(feature = "top")]
pub(crate) use self::words::{cut, since};
