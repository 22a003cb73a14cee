//! How fast the disk is on which the databases lie: what a commit costs at least.

use std::io::Write;
use std::time::Instant;

use anyhow::Result;

/// Writes 8 KB over and over again, as a log is written, and says how long that takes until it is on the disk.
pub(crate) fn speed() -> Result<String> {
    let mut file = tempfile::tempfile()?;
    let mut times = Vec::new();
    for _ in 0..50 {
        let begin = Instant::now();
        file.write_all(&[0; 8192])?;
        file.sync_data()?;
        times.push(begin.elapsed());
    }
    times.sort();
    Ok(format!("8 KB with fdatasync take {:?} (median), {:?} (the longest of 50)", times[25], times[49]))
}
