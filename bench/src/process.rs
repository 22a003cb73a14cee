//! What the system knows of a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The processor time that it has used so far.
pub(crate) fn processor_time(id: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name in brackets may contain blanks. User and system time are the fields 14 and 15.
    let (_, fields) = stat.rsplit_once(") ").context("a process has a name")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// The most memory that it has had so far, in megabytes.
pub(crate) fn most_memory(id: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("the system knows the memory")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}
