//! Measures a rate while contestants work.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::db::Server;
use crate::process;
use crate::program::Program;

/// How often a contestant is asked for its count.
const PACE: Duration = Duration::from_millis(20);

/// How long a contestant may take until its first message.
const PATIENCE: Duration = Duration::from_secs(30);

/// How fast messages were handled, and the processor time that they took.
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    /// Processor time per message, of the programs and the server.
    pub(crate) processor: Duration,
}

/// How many messages the programs handle in a second together.
///
/// The clock starts at the end of the warm-up, which begins with the first message, or when a tenth of the rows is handled:
/// so it does not measure how connections and threads start. It stops at the end of the window, or when no rows are left.
pub(crate) fn rate(
    server: &Server,
    programs: &mut [Program],
    rows: i64,
    (warm_up, window): (Duration, Duration),
) -> Result<Rate> {
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
                None if now - first >= warm_up || count >= rows / 10 => {
                    warm = Some((now, count, processor_time(server, programs)?));
                }
                None => {}
                Some((since, before, used)) if now - since >= window || count >= rows => {
                    if count == before {
                        return Ok(Rate { per_second: 0.0, processor: Duration::ZERO });
                    }
                    let count = (count - before) as f64;
                    let used = processor_time(server, programs)? - used;
                    return Ok(Rate {
                        per_second: count / (now - since).as_secs_f64(),
                        processor: used.div_f64(count),
                    });
                }
                Some(_) => {}
            }
        }
        thread::sleep(PACE);
    }
}

fn processor_time(server: &Server, programs: &[Program]) -> Result<Duration> {
    let mut time = server.processor_time()?;
    for program in programs {
        time += process::processor_time(program.id())?;
    }
    Ok(time)
}
