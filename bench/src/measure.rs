//! Measures a rate while contestants work.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::program::Program;

/// How often a contestant is asked for its count.
const PACE: Duration = Duration::from_millis(20);

/// How long a contestant may take until its first message.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many messages the programs handle in a second together.
///
/// The clock starts when a first part of the window is over, counted from the first message, or when a tenth of the rows is
/// handled: nobody's connections and threads are measured. It ends with the window, or when no rows are left.
pub(crate) fn rate(programs: &mut [Program], rows: i64, (warm_up, window): (Duration, Duration)) -> Result<f64> {
    let rows = u64::try_from(rows)?;
    let started = Instant::now();
    let mut first = None;
    let mut warm = None;
    loop {
        let mut count = 0;
        for program in &mut *programs {
            count += program.count()?;
        }
        let now = Instant::now();
        if count == 0 {
            if started.elapsed() > PATIENCE {
                bail!("nothing was handled within {PATIENCE:?}");
            }
        } else {
            let first = *first.get_or_insert(now);
            match warm {
                None if now - first >= warm_up || count >= rows / 10 => warm = Some((now, count)),
                None => {}
                Some((since, before)) if now - since >= window || count >= rows => {
                    return Ok((count - before) as f64 / (now - since).as_secs_f64());
                }
                Some(_) => {}
            }
        }
        thread::sleep(PACE);
    }
}
