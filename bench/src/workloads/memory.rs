//! Whether the memory of a process grows with its queue.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use contestant::{Fill, Handler, Request, RowState, Skill, Work};

use crate::process;
use crate::program::Entry;
use crate::sitting::{Sitting, Value};

pub(crate) fn run(sitting: &mut Sitting) -> Result<&'static str> {
    let many = if sitting.options.quick { 100_000 } else { 1_000_000 };
    let cases = [1_000, many].map(|rows| (format!("{rows} due"), rows));
    let chosen = |entry: &Entry| entry.can(Skill::Endures);
    // Once, because every repeat needs the same memory, and a million rows take long.
    let repeats = sitting.options.repeats.unwrap_or(1);
    sitting.measure("memory", repeats, chosen, &cases, |options, site, &rows| {
        // Another process fills the table, because its memory does not count.
        site.filled(&Fill { first: 1, rows, bytes: 0, state: RowState::Due })?;
        let mut program = site.program()?;
        site.start(&mut program, &Work { workers: 4, handler: Handler::Ledger, entities: 1 })?;
        let patience = Instant::now() + Duration::from_secs(30);
        while program.count()? == 0 {
            ensure!(Instant::now() < patience, "nothing was handled");
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(options.window().1);
        let most = process::most_memory(program.id())?;
        program.tell(&Request::Stop)?;
        Ok(vec![Value::new("MB at most", most)])
    })?;
    Ok("memory")
}
