//! Rows already due whose handler calls a service that answers after 200 milliseconds, with a thousand calls in flight.

use anyhow::Result;
use contestant::{Fill, Handler, Request, RowState, Skill, Work};

use super::drain::{honest, rows};
use crate::measure;
use crate::service::Service;
use crate::sitting::{Sitting, Value};

/// How many threads claim rows and write answers.
const WORKERS: [usize; 2] = [2, 4];

pub(crate) fn run(sitting: &mut Sitting) -> Result<&'static str> {
    let service = Service::start()?;
    let cases = WORKERS.map(|workers| (format!("1,000 in flight, {workers} workers"), workers));
    let repeats = sitting.options.repeats();
    sitting.measure(
        "calls",
        repeats,
        |entry| entry.can(Skill::Calls),
        &cases,
        |options, site, &workers| {
            let (handler, rows) = (Handler::Call { port: service.port }, rows(options, site.entry));
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
        },
    )?;
    Ok("calls")
}
