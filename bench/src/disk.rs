//! The speed of the databases' disk, which is the least that a commit costs.

use std::io::Write;
use std::time::Instant;

use anyhow::Result;

/// Appends 8 KB again and again, as a database writes its log, and says how long each takes to reach the disk.
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
