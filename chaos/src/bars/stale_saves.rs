//! Bar 10: while payments are worked, ten threads of the application load them and later save all columns of the struct
//! unchanged.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::bar::{Bar, Needs};
use crate::calls::calls;
use crate::on;
use crate::options::{Backend, Mode};
use crate::run::{Run, pending};
use crate::session::Dialect;

pub(super) const BAR: Bar = Bar {
    number: 10,
    title: "ten application threads that save stale rows",
    backends: Backend::SINGLE,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 4,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
const THREADS: u64 = 10;
/// How many payments are enqueued at a time.
const BATCH: i64 = 300;

/// The savers' counts.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Saved {
    pub(crate) saves: u64,
    /// Saves after the payment's booking of a struct that was loaded before it.
    pub(crate) stale: u64,
}

fn run(run: &mut Run) -> Result<()> {
    let wanted = run.times(150, 20_000);
    let recipe = run.recipe();
    let mut worker = recipe.start()?;
    worker.await_start(PATIENCE)?;
    let stop = AtomicBool::new(false);
    let url = run.url().to_owned();
    let seeds: Vec<_> = (0..THREADS).map(|_| run.random.u64(..)).collect();
    let stale_so_far = AtomicU64::new(0);
    let saved = thread::scope(|scope| -> Result<Saved> {
        let savers: Vec<_> = seeds
            .into_iter()
            .map(|seed| {
                scope.spawn({
                    let (url, stop, stale) = (&url, &stop, &stale_so_far);
                    move || save(url, seed, stop, stale)
                })
            })
            .collect();
        let worked = work(run, wanted, &stale_so_far);
        stop.store(true, Ordering::Relaxed);
        let mut all = Saved::default();
        for saver in savers {
            let one = saver.join().ok().context("a saver panicked")??;
            all = Saved { saves: all.saves + one.saves, stale: all.stale + one.stale };
        }
        worked.map(|()| all)
    })?;
    run.await_pending(0, PATIENCE)?;
    worker.shut_down(PATIENCE)?;
    run.number("saves", saved.saves);
    run.number("stale_saves", saved.stale);
    run.expect(saved.stale >= wanted, || format!("{} saves were stale", saved.stale));
    // A row that ran again after its success may have failed then. Its calls show that, where nothing else repeats a call.
    let made = calls(&run.calls())?.len();
    run.number("calls", made);
    let tries = run.session()?.count(
        "SELECT CAST(COALESCE(SUM(try_count), 0) AS $int) AS n FROM payments"
            .replace("$int", if run.dialect() == Dialect::Mysql { "SIGNED" } else { "BIGINT" })
            .as_str(),
    )?;
    run.expect(run.asked.mode != Mode::Transaction || i64::try_from(made) == Ok(tries), || {
        format!("{made} calls were made in {tries} tries")
    });
    run.check(|expected| expected)
}

/// Keeps the workers busy until this many saves were stale.
fn work(run: &mut Run, wanted: u64, stale: &AtomicU64) -> Result<()> {
    let mut session = run.session()?;
    let deadline = Instant::now() + PATIENCE * u32::try_from(1 + wanted / 1000)?;
    while stale.load(Ordering::Relaxed) < wanted {
        ensure!(Instant::now() < deadline, "only {stale:?} saves were stale");
        if pending(&mut *session)? < BATCH {
            run.enqueue_mixed(BATCH)?;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn save(url: &str, seed: u64, stop: &AtomicBool, stale: &AtomicU64) -> Result<Saved> {
    match Dialect::of(url) {
        Dialect::Postgres => on::postgres::typed::saver::save_stale(url, seed, stop, stale),
        Dialect::Mysql => on::mysql::typed::saver::save_stale(url, seed, stop, stale),
        Dialect::Sqlite => on::sqlite::typed::saver::save_stale(url, seed, stop, stale),
    }
}
