//! A contestant's side of the conversation.

use std::env;
use std::io::{BufRead, Write, stdin, stdout};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::meter::now;
use crate::{Contestant, Enqueue, Handler, Meter, Reply, Request, Running};

/// Answers requests until there are no more. The program's last argument is the database's address.
///
/// # Errors
///
/// When the benchmark cannot be understood or no longer listens. What goes wrong with the work itself is told to it.
pub fn serve(contestant: &dyn Contestant) -> Result<()> {
    let url = env::args().next_back().context("the last argument is the database's address")?;
    let mut session = Session { contestant, url, meter: Arc::default(), running: None };
    for line in stdin().lock().lines() {
        let request = serde_json::from_str(&line?)?;
        let reply = session.answer(&request).unwrap_or_else(|error| Reply::Trouble(format!("{error:#}")));
        let mut stdout = stdout().lock();
        serde_json::to_writer(&mut stdout, &reply)?;
        stdout.write_all(b"\n")?;
        stdout.flush()?;
    }
    Ok(())
}

struct Session<'a> {
    contestant: &'a dyn Contestant,
    url: String,
    meter: Arc<Meter>,
    running: Option<Box<dyn Running>>,
}

impl Session<'_> {
    fn answer(&mut self, request: &Request) -> Result<Reply> {
        match request {
            Request::Describe => return Ok(Reply::Description(self.contestant.describe())),
            Request::Prepare { entities } => self.contestant.prepare(&self.url, *entities)?,
            Request::Fill(fill) => self.contestant.fill(&self.url, fill)?,
            Request::Enqueue(enqueue) => {
                let begin = Instant::now();
                let commits = self.enqueue(enqueue)?;
                return Ok(Reply::Enqueued { seconds: begin.elapsed().as_secs_f64(), commits });
            }
            Request::Start(work) => {
                if self.running.is_some() {
                    bail!("the workers were started already");
                }
                self.meter = Arc::new(Meter::new(work.handler == Handler::Clock));
                self.running = Some(self.contestant.start(&self.url, work, &self.meter)?);
            }
            Request::Count => return Ok(Reply::Handled(self.meter.count())),
            Request::Begun => return Ok(Reply::Begun(self.meter.begun())),
            Request::Stop => self.running.take().context("no workers were started")?.stop()?,
        }
        Ok(Reply::Done)
    }

    /// Divides the messages among threads.
    fn enqueue(&self, enqueue: &Enqueue) -> Result<Vec<(i64, u64)>> {
        let count = enqueue.count / enqueue.threads as i64;
        let shares = (0..).step_by(usize::try_from(count)?).take(enqueue.threads);
        let shares = shares.map(|offset: i64| Enqueue { first: enqueue.first + offset, count, ..enqueue.clone() });
        let (contestant, url) = (self.contestant, self.url.as_str());
        thread::scope(|scope| {
            let threads: Vec<_> = shares
                .map(|share| {
                    scope.spawn(move || {
                        let mut commits = Vec::new();
                        let mut note = |number| {
                            if share.gap > 0 {
                                commits.push((number, now()));
                            }
                        };
                        contestant.enqueue(url, &share, &mut note).map(|()| commits)
                    })
                })
                .collect();
            let mut commits = Vec::new();
            for thread in threads {
                commits.extend(thread.join().map_err(|_| anyhow!("an enqueueing thread panicked"))??);
            }
            Ok(commits)
        })
    }
}

impl Enqueue {
    /// Sleeps for a random time up to the longest gap. To be called before each insert.
    pub fn pause(&self) {
        if self.gap > 0 {
            thread::sleep(Duration::from_micros(now() % 1_000_003 * 7_919 % self.gap));
        }
    }
}
