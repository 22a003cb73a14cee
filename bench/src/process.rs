//! What the system knows of a process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Error, Result};

/// The processor time that it has used so far.
pub(crate) fn processor_time(id: u32) -> Result<Duration> {
    let fields = fields(id)?;
    Ok(ticks(fields[0] + fields[1]))
}

/// The processor time that it and all its children have used so far, also those that have ended.
pub(crate) fn processor_time_of_all(id: u32) -> Result<Duration> {
    let mut all: u64 = fields(id)?.iter().sum();
    for child in fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?.split_whitespace() {
        // One that has ended meanwhile is counted by its parent.
        if let Ok(fields) = fields(child.parse()?) {
            all += fields[0] + fields[1];
        }
    }
    Ok(ticks(all))
}

/// User and system time, its own and then that of its children that have ended: the fields 14 to 17.
fn fields(id: u32) -> Result<[u64; 4]> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name in brackets may contain blanks.
    let (_, fields) = stat.rsplit_once(") ").context("a process has a name")?;
    let mut fields = fields.split(' ').skip(11).map(str::parse);
    let mut next = || Ok::<_, Error>(fields.next().context("a process has times")??);
    Ok([next()?, next()?, next()?, next()?])
}

fn ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The most memory that it has had so far, in megabytes.
pub(crate) fn most_memory(id: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("the system knows the memory")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}
