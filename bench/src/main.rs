//! Measures queueable beside hand-written SQL and beside other job frameworks.
//!
//! `./run.sh` builds everything and runs it; `docs/performance.md` says how the numbers are to be read.

#![expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "measured numbers are small")]

mod contestants;
mod db;
mod disk;
mod limits;
mod measure;
mod modes;
mod options;
mod plot;
mod process;
mod program;
mod results;
mod sitting;
mod table;
mod workloads;

use anyhow::Result;
use clap::Parser;

use crate::options::Options;
use crate::sitting::Sitting;

fn main() -> Result<()> {
    if contestants::be_one_if_asked()? {
        return Ok(());
    }
    let mut sitting = Sitting::open(Options::parse())?;
    for workload in sitting.options.workloads().to_vec() {
        workloads::run(workload, &mut sitting)?;
    }
    println!("samples, log and plots: {}", sitting.options.out.display());
    for failure in sitting.results.failures() {
        println!("not measured: {failure}");
    }
    Ok(())
}
