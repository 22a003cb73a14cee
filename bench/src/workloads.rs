//! What is measured, a room for each.

mod drain;

use anyhow::Result;

use crate::options::Workload;
use crate::sitting::Sitting;

/// Measures one of them and prints its tables.
pub(crate) fn run(workload: Workload, sitting: &mut Sitting) -> Result<()> {
    let name = match workload {
        Workload::Drain => drain::with_a_ledger(sitting)?,
        Workload::NoOp => drain::with_nothing(sitting)?,
    };
    for backend in sitting.backends() {
        for table in sitting.results.tables(name, backend) {
            println!("{}\n", table.markdown());
        }
    }
    sitting.results.write(&sitting.options.out)?;
    Ok(())
}
