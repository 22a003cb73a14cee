//! The processor time and the memory of a process.

use std::time::Duration;

use anyhow::{Context, Result};
use procfs::process::{Process, Stat};

/// The processor time that a process has used so far.
pub(crate) fn processor_time(id: u32) -> Result<Duration> {
    Ok(ticks(own(&process(id)?.stat()?)))
}

/// The processor time that a process and its children have used so far, including children that have ended.
pub(crate) fn processor_time_of_all(id: u32) -> Result<Duration> {
    let parent = process(id)?;
    let stat = parent.stat()?;
    let mut all = own(&stat) + u64::try_from(stat.cutime + stat.cstime)?;
    for child in parent.task_main_thread()?.children()? {
        // The parent's times include a child that has ended meanwhile.
        if let Ok(stat) = process(child).and_then(|child| Ok(child.stat()?)) {
            all += own(&stat);
        }
    }
    Ok(ticks(all))
}

/// The most memory that a process has had so far, in megabytes.
pub(crate) fn most_memory(id: u32) -> Result<f64> {
    let kilobytes = process(id)?.status()?.vmhwm.context("the process has ended")?;
    Ok(kilobytes as f64 / 1024.0)
}

fn process(id: u32) -> Result<Process> {
    Ok(Process::new(i32::try_from(id)?)?)
}

fn own(stat: &Stat) -> u64 {
    stat.utime + stat.stime
}

fn ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64)
}
