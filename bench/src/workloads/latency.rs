//! How long a message waits for its handler in an idle queue: from the return of the enqueueing commit to the
//! handler's first line, with 4 idle workers and random gaps between the messages.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use contestant::{Enqueue, Handler, Reply, Request, Skill, Work};
use hdrhistogram::Histogram;

use crate::program::Entry;
use crate::sitting::{Site, Sitting, Value};

/// The longest gap between two messages, in microseconds.
const GAP: u64 = 100_000;

pub(crate) fn run(sitting: &mut Sitting) -> Result<&'static str> {
    let cases = [("same process".to_owned(), false), ("another process".to_owned(), true)];
    let chosen = |entry: &Entry| [Skill::Waits, Skill::Enqueue].iter().all(|skill| entry.can(*skill));
    let count = if sitting.options.quick { 60 } else { 500 };
    sitting
        .measure("latency", sitting.options.repeats(), chosen, &cases, |_, site, &apart| measure(site, count, apart))?;
    Ok("latency")
}

fn measure(site: &Site<'_>, count: i64, apart: bool) -> Result<Vec<Value>> {
    let mut program = site.prepared(1)?;
    let mut other = if apart { Some(site.program()?) } else { None };
    site.start(&mut program, &Work { workers: 4, handler: Handler::Clock, entities: 1 })?;
    // The workers connect, look, and fall asleep.
    thread::sleep(Duration::from_millis(2500));
    let enqueue = Request::Enqueue(Enqueue { first: 1, count, batch: 1, threads: 1, gap: GAP });
    let Reply::Enqueued { commits, .. } = other.as_mut().unwrap_or(&mut program).ask(&enqueue)? else {
        bail!("it does not say when it has enqueued");
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while program.count()? < u64::try_from(count)? {
        ensure!(Instant::now() < deadline, "of {count} messages only {} were handled", program.count()?);
        thread::sleep(Duration::from_millis(50));
    }
    let Reply::Begun(begun) = program.ask(&Request::Begun)? else { bail!("it does not say when handlers began") };
    program.tell(&Request::Stop)?;
    let begun: HashMap<i64, u64> = begun.into_iter().collect();
    let mut waits = Histogram::<u64>::new(3)?;
    for (number, committed) in &commits {
        if let Some(begun) = begun.get(number) {
            // A handler may begin before the enqueuer hears of its commit.
            waits.record(begun.saturating_sub(*committed))?;
        }
    }
    ensure!(!waits.is_empty(), "nothing was noted");
    let at = |share| waits.value_at_quantile(share) as f64 / 1e6;
    Ok(vec![Value::new("ms, p50", at(0.5)), Value::new("ms, p99", at(0.99))])
}
