//! The workloads, a file for each.

mod backlog;
mod calls;
mod drain;
mod enqueue;
mod idle;
mod latency;
mod memory;
mod old_snapshot;
mod processes;
mod reports;
mod waiting;
mod wide;

use anyhow::Result;

use crate::options::Workload;
use crate::plot;
use crate::sitting::Sitting;

/// Measures one of them and prints its tables.
pub(crate) fn run(workload: Workload, sitting: &mut Sitting) -> Result<()> {
    let name = match workload {
        Workload::Drain => drain::with_a_ledger(sitting)?,
        Workload::NoOp => drain::with_nothing(sitting)?,
        Workload::Latency => latency::run(sitting)?,
        Workload::Enqueue => enqueue::run(sitting)?,
        Workload::Backlog => backlog::run(sitting)?,
        Workload::Waiting => waiting::run(sitting)?,
        Workload::OldSnapshot => old_snapshot::run(sitting)?,
        Workload::Idle => idle::run(sitting)?,
        Workload::Wide => wide::run(sitting)?,
        Workload::Memory => memory::run(sitting)?,
        Workload::Processes => processes::run(sitting)?,
        Workload::Calls => calls::run(sitting)?,
        Workload::Reports => reports::run(sitting)?,
    };
    let directory = &sitting.options.out;
    for backend in sitting.backends() {
        for table in sitting.results.tables(name, backend) {
            println!("{}\n", table.markdown());
            plot::draw(&table, directory)?;
        }
    }
    sitting.results.write(directory)?;
    Ok(())
}
