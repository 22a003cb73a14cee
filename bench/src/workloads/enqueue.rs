//! How fast messages get into the queue, each in a transaction of its own or a thousand at once.

use anyhow::{Result, bail};
use contestant::{Enqueue, Reply, Request, Skill};

use crate::program::Entry;
use crate::sitting::{Sitting, Value};

pub(crate) fn run(sitting: &mut Sitting) -> Result<&'static str> {
    let cases = [("one, 1 thread", 1, 1), ("one, 16 threads", 1, 16), ("1000 at once", 1000, 1)];
    let cases = cases.map(|(name, batch, threads)| (name.to_owned(), (batch, threads)));
    let chosen = |entry: &Entry| entry.can(Skill::Enqueue);
    sitting.measure("enqueue", sitting.options.repeats(), chosen, &cases, |options, site, &(batch, threads)| {
        let mut count = if batch > 1 { 100_000 } else { 2_000 + 1_000 * threads as i64 };
        if options.quick {
            count /= 5;
        }
        let mut program = site.prepared(1)?;
        let enqueue = Enqueue { first: 1, count, batch, threads, gap: 0 };
        let Reply::Enqueued { seconds, .. } = program.ask(&Request::Enqueue(enqueue))? else {
            bail!("it does not say how long it took");
        };
        Ok(vec![Value::new("messages per second", count as f64 / seconds)])
    })?;
    Ok("enqueue")
}
