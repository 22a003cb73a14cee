//! Whether a long queue, or a long history, makes a queue slow.

use anyhow::Result;
use contestant::{Fill, Handler, Request, RowState, Skill, Work};

use super::drain::{honest, rows};
use crate::measure;
use crate::program::Entry;
use crate::sitting::{Sitting, Value};

const WORKERS: usize = 4;

/// The rows in the table besides those that the workers are about to handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ballast {
    Nothing,
    Due,
    Finished,
}

pub(crate) fn run(sitting: &mut Sitting) -> Result<&'static str> {
    let many = if sitting.options.quick { 100_000 } else { 1_000_000 };
    let cases = [
        ("little to do".to_owned(), Ballast::Nothing),
        (format!("{many} due"), Ballast::Due),
        (format!("{many} finished"), Ballast::Finished),
    ];
    let chosen = |entry: &Entry| entry.can(Skill::Endures);
    sitting.measure("backlog", sitting.options.repeats(), chosen, &cases, |options, site, &ballast| {
        if ballast == Ballast::Finished && !site.entry.can(Skill::Finished) {
            return Ok(Vec::new());
        }
        let own = rows(options, site.entry);
        let mut program = site.prepared(1)?;
        if ballast != Ballast::Nothing {
            let state = if ballast == Ballast::Finished { RowState::Finished } else { RowState::Due };
            program.tell(&Request::Fill(Fill { first: own + 1, rows: many, bytes: 0, state }))?;
        }
        program.tell(&Request::Fill(Fill { first: 1, rows: own, bytes: 0, state: RowState::Due }))?;
        site.place.settle_down()?;
        site.start(&mut program, &Work { workers: WORKERS, handler: Handler::Ledger, entities: 1 })?;
        let mut programs = [program];
        let rate = measure::rate(site.server, &mut programs, own, options.window())?;
        let [program] = &mut programs;
        program.tell(&Request::Stop)?;
        Ok(vec![Value::new("messages per second", rate.per_second * honest(site, program.count()?, Handler::Ledger)?)])
    })?;
    sitting.results.add_shares("backlog", "share of the rate with little to do");
    Ok("backlog")
}
