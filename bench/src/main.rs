//! Measures queueable beside hand-written SQL and beside other job frameworks.
//!
//! `./run.sh` builds everything and runs it; `docs/performance.md` says how the numbers are to be read.

#![allow(clippy::duplicate_mod, reason = "each database mounts what the suite's databases have in common")]

mod contestants;
mod db;
mod disk;
mod limits;
mod measure;
mod modes;
mod options;
mod page;
mod plot;
mod process;
mod program;
mod results;
mod service;
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
