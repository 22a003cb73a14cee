//! Charts as SVG in the page.
//!
//! They are made by hand, because no library that is well kept gives what the page needs. The policy of the page allows neither `style`
//! nor a style sheet in the markup, and the colours follow the browser's light or dark: so each shape has a class, and `page.css` its
//! colour. `plotters` writes fixed colours into shapes without classes, `poloto` writes a style sheet, `charming` needs a script. None of
//! them has patterns or titles, by which a chart is read without colours and without eyes.

mod chart;
mod outcomes;
mod spark;
#[cfg(test)]
mod tests;
mod ticks;
mod times;

pub(crate) use self::chart::{Chart, Percentiles, Period, name_of};
pub(crate) use self::outcomes::Outcome;
pub(crate) use self::spark::spark;
