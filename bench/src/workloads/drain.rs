//! Rows already due, handled by 1, 4 and 16 workers.

use anyhow::{Result, ensure};
use contestant::{Fill, Handler, Pace, Request, RowState, Skill, Work};

use crate::measure;
use crate::options::Options;
use crate::program::Entry;
use crate::sitting::{Site, Sitting, Value};

/// Every handler inserts one row.
pub(crate) fn with_a_ledger(sitting: &mut Sitting) -> Result<&'static str> {
    drain(sitting, "drain", Handler::Ledger, |entry| entry.can(Skill::Drain))
}

/// The handlers do nothing, so all the cost is the framework's.
pub(crate) fn with_nothing(sitting: &mut Sitting) -> Result<&'static str> {
    drain(sitting, "no-op", Handler::Nothing, |entry| entry.can(Skill::Nothing))
}

fn drain(
    sitting: &mut Sitting,
    name: &'static str,
    handler: Handler,
    chosen: fn(&Entry) -> bool,
) -> Result<&'static str> {
    let cases: Vec<_> = sitting.options.workers.iter().map(|&workers| (format!("C = {workers}"), workers)).collect();
    sitting.measure(name, sitting.options.repeats(), chosen, &cases, |options, site, &workers| {
        run(options, site, workers, handler)
    })?;
    Ok(name)
}

fn run(options: &Options, site: &Site<'_>, workers: usize, handler: Handler) -> Result<Vec<Value>> {
    let rows = rows(options, site.entry);
    let mut programs = [site.filled(&Fill { first: 1, rows, bytes: 0, state: RowState::Due })?];
    site.start(&mut programs[0], &Work { workers, handler, entities: 1 })?;
    let rate = measure::rate(site.server, &mut programs, rows, options.window())?;
    let [program] = &mut programs;
    program.tell(&Request::Stop)?;
    let share = honest(site, program.count()?, handler)?;
    Ok(vec![
        Value::new("messages per second", rate.per_second * share),
        Value::new("microseconds of processor time per message", rate.processor.as_secs_f64() * 1e6 / share),
    ])
}

/// Enough rows for the window.
pub(crate) fn rows(options: &Options, entry: &Entry) -> i64 {
    let (warm_up, window) = options.window();
    let per_second = match entry.description.pace {
        Pace::Slow => 2_000.0,
        Pace::Single => 12_000.0,
        Pace::Group => 70_000.0,
    };
    ((warm_up + window).as_secs_f64() * per_second) as i64
}

/// The share of the handled messages that are booked in the end. It is less than 1 if attempts were rolled back and repeated.
pub(crate) fn honest(site: &Site<'_>, handled: u64, handler: Handler) -> Result<f64> {
    if !matches!(handler, Handler::Ledger | Handler::Call { .. }) {
        return Ok(1.0);
    }
    let booked = u64::try_from(site.place.booked()?)?;
    ensure!(booked * 2 > handled, "of {handled} handled messages only {booked} are booked");
    Ok(booked as f64 / handled as f64)
}
