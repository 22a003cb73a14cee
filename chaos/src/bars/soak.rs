//! Bar 25: a long random schedule. One process lives through it, and its memory, threads and handles do not grow.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::bar::{Bar, Needs};
use crate::options::{Backend, Mode};
use crate::run::{Run, Scale};
use crate::session::{Dialect, Session, connect};
use crate::storm::Storm;
use crate::worker::process;

pub(super) const BAR: Bar = Bar {
    number: 25,
    title: "soak with the random schedule",
    backends: Backend::SINGLE,
    modes: Mode::ALL,
    server: Needs::Own,
    measures: false,
    smoke_seconds: 15,
    run,
};

const PROCESSES: usize = 3;
/// The workers of a process: its threads may differ by as many from one moment to another.
const WORKERS: i64 = 4;
/// Its connections: the workers', the scout's and the heartbeat's. In a short run the server may be away for a third.
const CONNECTIONS: i64 = WORKERS + 2;

fn run(run: &mut Run) -> Result<()> {
    let length = length(run);
    let payments_per_second = if run.asked.backend == Backend::Sqlite { 40 } else { 60 };
    let storm = Storm { length, processes: PROCESSES, spared: 1, payments_per_second };
    let strikes = storm.schedule(run);
    fs::create_dir_all(&run.asked.plots)?;
    let name = format!("soak-{:?}-{:?}", run.asked.backend, run.asked.mode).to_lowercase();
    let file = |extension: &str| run.asked.plots.join(format!("{name}.{extension}"));
    // In a file, because a long schedule is too much to read on the screen.
    let lines: String = strikes.iter().map(|strike| format!("{strike}\n")).collect();
    fs::write(file("txt"), lines).context("the schedule cannot be written")?;
    let csv = file("csv");

    let url = run.url().to_owned();
    let mut sampler = None;
    let raged = storm.rage(run, &strikes, |ids| {
        sampler = Some(Sampler::start(url, *ids.first().context("no process")?));
        Ok(())
    });
    let samples = sampler.map(Sampler::end).transpose()?.unwrap_or_default();
    write(&csv, &samples)?;
    raged?;
    run.number("samples", samples.len());
    run.number("curve", csv.display().to_string());
    judge(run, &samples)
}

/// Half an hour for each database in a release, shared by the modes.
fn length(run: &Run) -> Duration {
    let seconds = match (run.asked.given_seconds, run.asked.scale) {
        (Some(seconds), _) | (None, Scale::Count(seconds)) => seconds,
        (None, Scale::Release) => 600,
        (None, Scale::Smoke) => 12,
    };
    Duration::from_secs(seconds)
}

/// The resources of the spared process, and the database's sessions, at one moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    second: u64,
    /// Its resident memory.
    kilobytes: i64,
    threads: i64,
    handles: i64,
    /// Those of all processes, if the database has sessions and can be asked at this moment.
    sessions: Option<i64>,
}

/// Takes a sample every second.
struct Sampler {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Sample>>,
}

impl Sampler {
    fn start(url: String, process: u32) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let told = is_over.clone();
        let thread = thread::spawn(move || {
            let mut session = None;
            let mut samples = Vec::new();
            let began = Instant::now();
            for second in 1.. {
                while began.elapsed() < Duration::from_secs(second) {
                    if told.load(Ordering::Relaxed) {
                        return samples;
                    }
                    thread::sleep(Duration::from_millis(20));
                }
                // The process has ended.
                let Ok((kilobytes, threads, handles)) = holdings(process) else { break };
                let sessions = sessions(&url, &mut session);
                samples.push(Sample { second, kilobytes, threads, handles, sessions });
            }
            samples
        });
        Sampler { is_over, thread }
    }

    fn end(self) -> Result<Vec<Sample>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the sampler has panicked")
    }
}

/// A process's memory in kilobytes, its threads, and its open handles.
fn holdings(id: u32) -> Result<(i64, i64, i64)> {
    let process = process(id)?;
    let status = process.status()?;
    let kilobytes = status.vmrss.context("the process has ended")?;
    Ok((kilobytes.try_into()?, status.threads.try_into()?, process.fd_count()?.try_into()?))
}

/// How many sessions the database has. `None` if it cannot be asked; the next sample then opens a new session.
fn sessions(url: &str, session: &mut Option<Box<dyn Session>>) -> Option<i64> {
    let sql = Dialect::of(url).sessions()?;
    if session.is_none() {
        *session = connect(url).ok();
    }
    let sessions = session.as_mut()?.count(sql).ok();
    if sessions.is_none() {
        *session = None;
    }
    sessions
}

fn write(path: &Path, samples: &[Sample]) -> Result<()> {
    let mut csv = "second,kilobytes,threads,handles,sessions\n".to_owned();
    for Sample { second, kilobytes, threads, handles, sessions } in samples {
        let sessions = sessions.map_or_else(String::new, |sessions| sessions.to_string());
        writeln!(csv, "{second},{kilobytes},{threads},{handles},{sessions}")?;
    }
    fs::write(path, csv).context("the curve cannot be written")
}

/// Checks that nothing grows. The first third of the samples is a warm-up. Of the others, the median of the last third may
/// exceed the first third's by no more than a margin.
fn judge(run: &mut Run, samples: &[Sample]) -> Result<()> {
    let warm = &samples[samples.len() / 3..];
    let third = warm.len() / 3;
    ensure!(third > 0, "{} samples are too few", samples.len());
    let mut compare = |name: &'static str, margin: fn(i64) -> i64, value: fn(&Sample) -> Option<i64>| {
        let first = median(warm[..third].iter().filter_map(value));
        let last = median(warm[warm.len() - third..].iter().filter_map(value));
        let (Some(first), Some(last)) = (first, last) else {
            // SQLite has no sessions. In a short run, the server may be away for a whole third, but not for all samples.
            let is_measured = run.asked.backend == Backend::Sqlite || samples.iter().any(|it| value(it).is_some());
            return run.expect(is_measured, || format!("{name} were never measured"));
        };
        run.number(name, json!({ "first": first, "last": last }));
        run.expect(last <= first + margin(first), || format!("{name} grew from {first} to {last}"));
    };
    compare("memory_kilobytes", |first| first / 10 + 8 * 1024, |sample| Some(sample.kilobytes));
    compare("threads", |_| WORKERS, |sample| Some(sample.threads));
    compare("handles", |_| CONNECTIONS, |sample| Some(sample.handles));
    compare("sessions", |_| WORKERS * 3, |sample| sample.sessions);
    Ok(())
}

fn median(values: impl Iterator<Item = i64>) -> Option<i64> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}
