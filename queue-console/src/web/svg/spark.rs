//! A chart of a line's height.

use maud::{Markup, html};

use super::chart::{px, sum};
use crate::shown::{number, visible};

/// A chart of a line's height: what was done in each period, and below it what has failed.
pub(crate) fn spark(values: &[i64], failed: &[i64], label: &str) -> Markup {
    const HIGH: f64 = 18.0;
    const LOW: f64 = 8.0;
    let count = values.len().max(failed.len()).max(1);
    let bars = |values: &[i64], height: f64, sign: &str| {
        let most = values.iter().copied().max().unwrap_or(0).max(1) as f64;
        let bar = |(at, value): (usize, &i64)| {
            let height = px((*value as f64 / most * height).max(1.5));
            (*value > 0).then(|| format!("M{} {HIGH}v{sign}{height}h3V{HIGH}z", at * 4))
        };
        values.iter().enumerate().filter_map(bar).collect::<String>()
    };
    let words = format!(
        "{}: {} succeeded, at most {} at a time; {} failed",
        visible(label),
        number(sum(values)),
        number(values.iter().copied().max().unwrap_or(0)),
        number(sum(failed)),
    );
    html! {
        svg.spark role="img" aria-label=(words) viewBox={ "0 0 " (count * 4) " " (HIGH + LOW) } preserveAspectRatio="none" {
            title { (words) }
            path.succeeded fill="currentColor" d=(bars(values, HIGH, "-")) {}
            path.axis stroke="currentColor" d={ "M0 " (HIGH) "H" (count * 4) } {}
            path.failed fill="currentColor" d=(bars(failed, LOW, "")) {}
        }
    }
}
