//! How long reports take beside many finished rows.

use anyhow::Result;
use contestant::{Fill, Request, RowState, Skill};

use crate::program::Entry;
use crate::sitting::{Sitting, Value};
use crate::table;

const DUE: i64 = 100_000;
const FAILED: i64 = 10_000;

/// How many different texts the failed rows have.
const TEXTS: i64 = 30;

/// How many rows one statement fills in.
const AT_ONCE: usize = 1_000_000;

/// How often each report is made. The longest but one in twenty counts.
const TIMES: usize = 40;

pub(crate) fn run(sitting: &mut Sitting) -> Result<&'static str> {
    let finished: i64 = if sitting.options.quick { 200_000 } else { 10_000_000 };
    let cases = [(format!("{finished} finished"), finished)];
    let chosen = |entry: &Entry| entry.can(Skill::Reports);
    // Once, because ten million rows take long.
    let repeats = sitting.options.repeats.unwrap_or(1);
    sitting.measure("reports", repeats, chosen, &cases, |_, site, &finished| {
        let mut program = site.prepared(1)?;
        let mut fill = |first, rows, state| program.tell(&Request::Fill(Fill { first, rows, bytes: 0, state }));
        for first in (1..=finished).step_by(AT_ONCE) {
            fill(first, (AT_ONCE as i64).min(finished + 1 - first), RowState::Finished)?;
        }
        table::fail(site.place.backend, site.place.url(), FAILED, TEXTS)?;
        fill(finished + 1, DUE, RowState::Due)?;
        table::fill_minutes(site.place.backend, site.place.url())?;
        site.place.settle_down()?;
        let reports = table::time_reports(site.place.backend, site.place.url(), TIMES)?;
        let value = |(name, mut taken): (&str, Vec<f64>)| {
            taken.sort_by(f64::total_cmp);
            Value {
                case: Some(name.to_owned()),
                unit: "milliseconds at the 95th percentile",
                value: taken[TIMES - TIMES / 20 - 1],
            }
        };
        Ok(reports.into_iter().map(value).collect())
    })?;
    Ok("reports")
}
