//! Which faults come when, decided by the seed alone.

use std::fmt;
use std::time::Duration;

use crate::options::{Backend, Mode};
use crate::proxy::Cut;

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9` of a worker process, and its restart.
    Kill { worker: usize },
    /// A worker process is frozen for a while, as by a debugger or when its host migrates.
    Freeze { worker: usize, millis: u64 },
    /// A worker process gets a SIGTERM, and another one starts.
    Restart { worker: usize },
    /// A worker process ends as by `kill -9` when it passes a fail point.
    Break { worker: usize, point: &'static str, pass: u64 },
    /// The server ends every session with the database, the application's too.
    EndSessions,
    /// `kill -9` of the database's server, and its restart after a while.
    KillServer { millis: u64 },
    /// The proxy cuts the next commits: before they arrive, after the server has committed, or while they are on their way.
    CutCommits { cuts: Vec<Cut> },
    /// No bytes pass between the workers and their server for a while.
    Stall { millis: u64 },
    /// The open connections swallow all bytes for a while, and are then reset.
    HalfOpen { millis: u64 },
    /// All connections of the workers are reset.
    CutAll,
}

impl Fault {
    /// The kind under which reports count it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Fault::Kill { .. } => "kill",
            Fault::Freeze { .. } => "freeze",
            Fault::Restart { .. } => "restart",
            Fault::Break { .. } => "fail point",
            Fault::EndSessions => "sessions ended",
            Fault::KillServer { .. } => "server killed",
            Fault::CutCommits { .. } => "commits cut",
            Fault::Stall { .. } => "stall",
            Fault::HalfOpen { .. } => "half-open connections",
            Fault::CutAll => "connections cut",
        }
    }

    fn worker(&self) -> Option<usize> {
        match self {
            Fault::Kill { worker } | Fault::Restart { worker } => Some(*worker),
            Fault::Freeze { worker, .. } | Fault::Break { worker, .. } => Some(*worker),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Kill { worker } | Fault::Restart { worker } => write!(f, "{} of worker {worker}", self.kind()),
            Fault::Freeze { worker, millis } => write!(f, "freeze of worker {worker} for {millis} ms"),
            Fault::Break { worker, point, pass } => write!(f, "worker {worker} ends at pass {pass} of {point}"),
            Fault::EndSessions | Fault::CutAll => f.write_str(self.kind()),
            Fault::KillServer { millis } => write!(f, "server killed for {millis} ms"),
            Fault::CutCommits { cuts } => write!(f, "commits cut: {cuts:?}"),
            Fault::Stall { millis } | Fault::HalfOpen { millis } => write!(f, "{} for {millis} ms", self.kind()),
        }
    }
}

/// The faults of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Strike {
    /// Counted from the beginning of the faults.
    pub(crate) at: Duration,
    pub(crate) faults: Vec<Fault>,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<_> = self.faults.iter().map(Fault::to_string).collect();
        write!(f, "{:7.3} s: {}", self.at.as_secs_f64(), faults.join(", and "))
    }
}

/// The setting for which a schedule is drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) backend: Backend,
    pub(crate) mode: Mode,
    /// How many worker processes there are.
    pub(crate) processes: usize,
    /// How many of them, the first ones, live from the beginning to the end.
    pub(crate) spared: usize,
}

/// The fail points of the modes in which the handler runs in the transaction.
const POINTS: &[&str] = &[
    "claimed",
    "sentinel",
    "releasing",
    "released",
    "recording",
    "recorded",
    "settled",
    "committing",
    "committed",
    "mid-handler",
    "effects",
];
/// The fail points of lease mode.
const LEASE_POINTS: &[&str] = &[
    "lease-claimed",
    "lease-called",
    "lease-locked",
    "lease-applied",
    "lease-expired",
    "heartbeat",
    "heartbeat-sent",
    "sentinel",
    "mid-handler",
    "effects",
    "settled",
    "committing",
    "committed",
    "recording",
    "recorded",
];

/// Draws a schedule. It depends only on the seed and the terms, and a longer schedule begins with the shorter one.
pub(crate) fn schedule(seed: u64, terms: Terms, length: Duration) -> Vec<Strike> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut strikes = Vec::new();
    let mut at = Duration::from_millis(500);
    while at < length {
        let mut faults = vec![draw(&mut random, terms)];
        if random.u8(..100) < 20 {
            // Two faults at once find more than one after the other: a server dies while a worker shuts down.
            let second = draw(&mut random, terms);
            if second.kind() != faults[0].kind() && (second.worker().is_none() || second.worker() != faults[0].worker())
            {
                faults.push(second);
            }
        }
        strikes.push(Strike { at, faults });
        at += Duration::from_millis(random.u64(150..1800));
    }
    strikes
}

fn draw(random: &mut fastrand::Rng, terms: Terms) -> Fault {
    let Terms { backend, mode, processes, spared } = terms;
    let any = random.usize(..processes);
    let worker = random.usize(spared..processes);
    let points = if mode == Mode::Lease { LEASE_POINTS } else { POINTS };
    match random.u8(..100) {
        0..18 => Fault::Kill { worker },
        // In the modes with a transaction, shorter than the timeout: after it the server ends the session of the frozen
        // handler, which uses a try, as promised. In lease mode, longer than the lease.
        18..26 if mode == Mode::Lease => Fault::Freeze { worker: any, millis: random.u64(100..4000) },
        18..26 => Fault::Freeze { worker: any, millis: random.u64(100..2500) },
        26..36 => Fault::Restart { worker },
        // Not at the first passes: the row that comes first after every restart would be blamed for the crashes.
        36..54 => Fault::Break { worker, point: points[random.usize(..points.len())], pass: random.u64(3..40) },
        _ if backend == Backend::Sqlite => Fault::Kill { worker },
        54..64 => Fault::EndSessions,
        64..72 => Fault::KillServer { millis: random.u64(0..1500) },
        72..86 => Fault::CutCommits { cuts: (0..random.u8(4..24)).map(|_| draw_cut(random)).collect() },
        86..91 => Fault::Stall { millis: random.u64(50..2000) },
        91..95 => Fault::HalfOpen { millis: random.u64(50..2000) },
        _ => Fault::CutAll,
    }
}

fn draw_cut(random: &mut fastrand::Rng) -> Cut {
    match random.u8(..3) {
        0 => Cut::Before,
        1 => Cut::After,
        _ => Cut::Late(Duration::from_millis(random.u64(1..60))),
    }
}
