//! Whether rows that wait for their time make a queue slow whose rows have an order: all of them are in the index of the order.

use anyhow::Result;
use contestant::{Fill, Handler, Request, RowState, Skill, Work};

use super::drain::honest;
use crate::measure;
use crate::program::Entry;
use crate::sitting::{Sitting, Value};

/// How many rows are due.
const DUE: i64 = 900;

pub(crate) fn run(sitting: &mut Sitting) -> Result<&'static str> {
    let many = if sitting.options.quick { 100_000 } else { 1_000_000 };
    let cases = [("nothing waits".to_owned(), 0), (format!("{many} wait"), many)];
    let chosen = |entry: &Entry| entry.can(Skill::Ordered);
    sitting.measure("waiting", sitting.options.repeats(), chosen, &cases, |options, site, &waiting| {
        let mut program = site.prepared(1)?;
        if waiting > 0 {
            let state = RowState::Waiting;
            program.tell(&Request::Fill(Fill { first: DUE + 1, rows: waiting, bytes: 0, state }))?;
        }
        program.tell(&Request::Fill(Fill { first: 1, rows: DUE, bytes: 0, state: RowState::Due }))?;
        site.place.settle_down()?;
        site.start(&mut program, &Work { workers: 1, handler: Handler::Ledger, entities: 1 })?;
        let mut programs = [program];
        let rate = measure::rate(site.server, &mut programs, DUE, options.window())?;
        let [program] = &mut programs;
        program.tell(&Request::Stop)?;
        Ok(vec![Value::new("messages per second", rate.per_second * honest(site, program.count()?, Handler::Ledger)?)])
    })?;
    sitting.results.add_shares("waiting", "share of the rate with nothing that waits");
    Ok("waiting")
}
