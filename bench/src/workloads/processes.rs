//! Several processes on one queue, with 4 workers each.

use anyhow::Result;
use contestant::{Fill, Handler, Request, RowState, Skill, Work};

use super::drain::{honest, rows};
use crate::measure;
use crate::program::Entry;
use crate::sitting::{Sitting, Value};

pub(crate) fn run(sitting: &mut Sitting) -> Result<&'static str> {
    let cases = [1, 2, 4].map(|processes| (format!("{processes} x 4 workers"), processes));
    let chosen = |entry: &Entry| entry.can(Skill::Scales);
    sitting.measure("processes", sitting.options.repeats(), chosen, &cases, |options, site, &processes| {
        let rows = rows(options, site.entry);
        let mut programs = vec![site.filled(&Fill { first: 1, rows, bytes: 0, state: RowState::Due })?];
        for _ in 1..processes {
            programs.push(site.program()?);
        }
        for program in &mut programs {
            site.start(program, &Work { workers: 4, handler: Handler::Ledger, entities: 1 })?;
        }
        let rate = measure::rate(site.server, &mut programs, rows, options.window())?;
        let mut handled = 0;
        for program in &mut programs {
            program.tell(&Request::Stop)?;
            handled += program.count()?;
        }
        Ok(vec![Value::new("messages per second", rate.per_second * honest(site, handled, Handler::Ledger)?)])
    })?;
    Ok("processes")
}
