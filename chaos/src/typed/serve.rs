//! A worker process: the library as an application uses it, with fail points that the harness has set.

use std::fs::File;
use std::io::{Read, Write, stdin, stdout};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use diesel::r2d2::{self, ConnectionManager, CustomizeConnection, Pool};
use queueable::{CrashAccounting, Error, Poller, PollerHandle, PollerSettings};
use signal_hook::consts::{SIGINT, SIGKILL, SIGSTOP, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::raise;

use super::Conn;
use super::handler::Booking;
use super::{kinds, lanes};
use crate::bank::{
    Grouped, HastyGrouped, HastyLeased, HastyLocked, Leased, Locked, OnceGrouped, OnceLeased, OnceLocked,
};
use crate::options::{Accounting, Action, Break, Mode, Terms, WorkerOptions};
use crate::worker::Said;

/// How many more sessions the pool has than the poller has workers.
pub(crate) const SESSIONS_BESIDE_WORKERS: usize = 4;

/// Works until SIGTERM, which shuts down in good order, or until the harness is gone, which ends the process at once.
pub(crate) fn serve(options: &WorkerOptions) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    end_with_the_harness();
    for each in &options.breaks {
        arm(each.clone())?;
    }
    let pool = pool(options)?;
    let _held = (0..options.held_sessions).map(|_| pool.get()).collect::<Result<Vec<_>, _>>()?;
    let handle = start(options, &pool)?;
    say(&Said::Started)?;
    let _ = signals.forever().next();
    let shutdown = handle.shutdown(Duration::from_millis(options.grace_ms));
    say(&Said::Ended { tally: shutdown.tally, rolled_back: shutdown.rolled_back })
}

/// Starts the poller, and tries again while the database is away.
fn start(options: &WorkerOptions, pool: &Pool<ConnectionManager<Conn>>) -> Result<PollerHandle> {
    let mut last = String::new();
    loop {
        match poller(options, pool)?.start() {
            Ok(handle) => return Ok(handle),
            Err(error @ (Error::Connect(_) | Error::Establish(_) | Error::Database(_))) => {
                let error = error.to_string();
                if error != last {
                    eprintln!("not yet: {error}");
                    last = error;
                }
                thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The application's pool.
fn pool(options: &WorkerOptions) -> Result<Pool<ConnectionManager<Conn>>> {
    Ok(Pool::builder()
        .max_size(u32::try_from(options.workers + SESSIONS_BESIDE_WORKERS)?)
        .min_idle(Some(0))
        .connection_timeout(Duration::from_secs(2))
        .connection_customizer(Box::new(Patient))
        .build_unchecked(ConnectionManager::new(&options.url)))
}

fn poller(options: &WorkerOptions, pool: &Pool<ConnectionManager<Conn>>) -> Result<Poller<Conn>> {
    let calls = File::options().append(true).create(true).open(&options.calls).context("the calls cannot be noted")?;
    let booking = Booking::new(calls, &options.url);
    let directory = options.calls.parent().context("the calls are in no directory")?;
    let poller = if options.own_connections {
        Poller::with_own_connections(ConnectionManager::new(&options.url))
    } else {
        Poller::new(pool.clone())
    };
    let poller = match (options.mode, options.terms) {
        (mode, Terms::Kinds) => kinds::poller(pool.clone(), mode, directory),
        (mode, Terms::Lanes) => lanes::poller(pool.clone(), mode, directory)?,
        (Mode::Transaction, Terms::Usual) => poller.serve::<Locked>(booking),
        (Mode::Transaction, Terms::Hasty) => poller.serve::<HastyLocked>(booking),
        (Mode::Transaction, Terms::Once) => poller.serve::<OnceLocked>(booking),
        (Mode::Group, Terms::Usual) => poller.serve::<Grouped>(booking),
        (Mode::Group, Terms::Hasty) => poller.serve::<HastyGrouped>(booking),
        (Mode::Group, Terms::Once) => poller.serve::<OnceGrouped>(booking),
        (Mode::Lease, Terms::Usual) => poller.serve::<Leased>(booking),
        (Mode::Lease, Terms::Hasty) => poller.serve::<HastyLeased>(booking),
        (Mode::Lease, Terms::Once) => poller.serve::<OnceLeased>(booking),
    };
    let mut settings = PollerSettings::default();
    settings.error_text_limit = options.error_text_limit;
    settings.network_timeout = Duration::from_millis(options.network_timeout_ms);
    settings.lock_timeout = settings.lock_timeout.min(settings.network_timeout / 2);
    Ok(poller
        .settings(settings)
        .workers(options.workers)
        .poll_interval(Duration::from_millis(options.poll_interval_ms))
        .crash_accounting(match options.accounting {
            Accounting::On => CrashAccounting::On,
            Accounting::Strict => CrashAccounting::Strict,
            Accounting::Off => CrashAccounting::Off,
        }))
}

/// Lets a pool's connections wait for others, before the pool tests them.
#[derive(Debug)]
struct Patient;

impl CustomizeConnection<Conn, r2d2::Error> for Patient {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), r2d2::Error> {
        super::be_patient(connection).map_err(r2d2::Error::QueryError)
    }
}

/// Sets the action of a fail point. Before the first action, the process prints that it has reached the point.
fn arm(each: Break) -> Result<()> {
    let passes = AtomicU64::new(0);
    let point = each.point.clone();
    let act = move || {
        let pass = passes.fetch_add(1, Ordering::Relaxed) + 1;
        if !each.is_at(pass) {
            return;
        }
        if pass == each.pass {
            let _ = say(&Said::Reached { point: each.point.clone() });
        }
        let _ = match each.action {
            Action::Kill => raise(SIGKILL),
            Action::Stop => raise(SIGSTOP),
            Action::Wait => wait(Duration::from_secs(1)),
            Action::Moment => wait(Duration::from_millis(400)),
        };
    };
    fail::cfg_callback(point, act).map_err(anyhow::Error::msg)
}

fn wait(time: Duration) -> std::io::Result<()> {
    thread::sleep(time);
    Ok(())
}

fn say(said: &Said) -> Result<()> {
    let line = serde_json::to_string(said)? + "\n";
    Ok(stdout().lock().write_all(line.as_bytes())?)
}

/// The harness holds the other end of the input, which closes even if the harness is killed. A frozen process cannot read
/// its input, so the system is also asked to kill it when its parent ends.
fn end_with_the_harness() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    thread::spawn(|| {
        let _ = stdin().lock().read_to_end(&mut Vec::new());
        process::exit(3);
    });
}
