//! How long reports, and the page in a browser, take beside many finished rows.

use anyhow::Result;
use contestant::{Backend, Fill, Request, RowState, Skill};

use crate::page::{self, Timed};
use crate::program::Entry;
use crate::sitting::{Sitting, Value};
use crate::table;

const DUE: i64 = 100_000;
const FAILED: i64 = 10_000;

/// How many different texts the failed rows have.
const TEXTS: i64 = 30;

/// How many rows one statement fills in.
const AT_ONCE: usize = 1_000_000;

/// How often each report is made and each page is asked for.
const TIMES: usize = 40;

pub(crate) fn run(sitting: &mut Sitting) -> Result<&'static str> {
    let finished: i64 = if sitting.options.quick { 200_000 } else { 10_000_000 };
    let cases = [(format!("{finished} finished"), finished)];
    // What only reads does not depend on how safely SQLite commits.
    let chosen = |entry: &Entry| entry.can(Skill::Reports) && entry.backend != Backend::SqliteNormal;
    // Once, because ten million rows take long.
    let repeats = sitting.options.repeats.unwrap_or(1);
    sitting.measure("reports", repeats, chosen, &cases, |_, site, &finished| {
        let mut program = site.prepared(1)?;
        // The page shows all columns.
        table::add_company_column(site.place.backend, site.place.url())?;
        let mut fill = |first, rows, state| program.tell(&Request::Fill(Fill { first, rows, bytes: 0, state }));
        for first in (1..=finished).step_by(AT_ONCE) {
            fill(first, (AT_ONCE as i64).min(finished + 1 - first), RowState::Finished)?;
        }
        table::fail(site.place.backend, site.place.url(), FAILED, TEXTS)?;
        fill(finished + 1, DUE, RowState::Due)?;
        table::fill_minutes(site.place.backend, site.place.url())?;
        site.place.settle_down()?;
        let (backend, url) = (site.place.backend, site.place.url());
        let mut values = Vec::new();
        for (name, taken, used) in table::time_reports(backend, url, TIMES, || site.server.processor_time())? {
            values.extend(percentiles(name.to_owned(), taken));
            if used > 0.0 {
                let unit = "milliseconds of the server's processor";
                values.push(Value { case: Some(name.to_owned()), unit, value: used });
            }
        }
        table::add_page(backend, url)?;
        site.place.settle_down()?;
        for Timed { page, taken, too_long } in page::time_pages(backend, url, TIMES)? {
            let name = format!("page: {page}");
            values.extend(percentiles(name.clone(), taken));
            if too_long > 0 {
                let unit = "answers in forty that it takes too long";
                values.push(Value { case: Some(name), unit, value: too_long as f64 });
            }
        }
        Ok(values)
    })?;
    Ok("reports")
}

/// The median, and the time that all but the longest in twenty keep.
fn percentiles(name: String, mut taken: Vec<f64>) -> [Value; 2] {
    taken.sort_by(f64::total_cmp);
    let of = |unit, at: usize| Value { case: Some(name.clone()), unit, value: taken[at] };
    [
        of("milliseconds, median", taken.len() / 2),
        of("milliseconds at the 95th percentile", taken.len() - taken.len() / 20 - 1),
    ]
}
