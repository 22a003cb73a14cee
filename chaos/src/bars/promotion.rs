//! Bar 6: a primary is lost with commits that its standby never heard of, and the standby takes its place.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bar::{Bar, Needs};
use crate::checker::Expected;
use crate::db::postgres;
use crate::options::{Backend, Mode};
use crate::place::{Server, host_and_port};
use crate::proxy::Proxy;
use crate::run::{Run, Scale, booked};
use crate::session::{Session, connect};

pub(super) const BAR: Bar = Bar {
    number: 6,
    title: "PostgreSQL primary lost with unreplicated commits, standby promoted",
    backends: &[Backend::Postgres],
    modes: Mode::ALL,
    server: Needs::Own,
    measures: false,
    smoke_seconds: 12,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// How soon the workers must have moved: in a smoke run, on a busy machine, and for a release.
const BOUNDS: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(10)];

/// How many payments a server has as booked, by their effects and by their states.
#[derive(Debug, Clone, Copy)]
struct Booked {
    effects: i64,
    states: i64,
}

fn run(run: &mut Run) -> Result<()> {
    let promotions = run.times(1, 10);
    let mut lost = Booked { effects: 0, states: 0 };
    let mut slowest = Duration::ZERO;
    for _ in 0..promotions {
        let (lost_now, moved_in) = promote(run)?;
        lost.effects += lost_now.effects;
        lost.states += lost_now.states;
        slowest = slowest.max(moved_in);
        run.recovered_in(moved_in);
    }
    run.number("promotions", promotions);
    run.number("effects_lost_with_the_primaries", lost.effects);
    run.number("states_lost_with_the_primaries", lost.states);
    run.number("slowest_move_ms", u64::try_from(slowest.as_millis())?);
    run.expect(lost.effects > 0, || "no commit was lost: the run shows nothing".to_owned());
    run.expect(lost.effects == lost.states, || format!("effects and states were not lost together: {lost:?}"));
    let bound = BOUNDS[usize::from(run.asked.scale != Scale::Smoke)];
    run.expect(slowest <= bound, || format!("the workers took {slowest:?} to move"));
    Ok(())
}

/// Loses the primary once. Returns what was lost with it, and how long the workers took to move.
fn promote(run: &mut Run) -> Result<(Booked, Duration)> {
    let primary = run.url().to_owned();
    let replication = Proxy::start(&primary)?;
    let standby = postgres::start_standby(replication.port());
    let server = host_and_port(&primary).context("the address names no server")?;
    let other = format!("127.0.0.1:{}", standby.port());
    let on_standby = primary.replacen(server, &other, 1);
    let mut there = connect(&on_standby)?;
    await_replay(run, &mut *there)?;

    let both = on_standby.replacen(&other, &format!("{server},{other}"), 1);
    let recipe = run.recipe().url(both + "?target_session_attrs=read-write");
    let mut pair = [recipe.start()?, recipe.start()?];
    for worker in &mut pair {
        worker.await_start(PATIENCE)?;
    }
    run.enqueue_mixed(3000)?;
    let mut here = run.session()?;
    let before = booked(&mut *here)?;
    run.until("the workers are at work", PATIENCE, || Ok(booked(&mut *here)? > before + 100))?;

    replication.refuse(true);
    replication.cut_all();
    let cut = booked(&mut *here)?;
    run.until("commits are made that the standby does not hear of", PATIENCE, || Ok(booked(&mut *here)? > cut + 20))?;
    thread::sleep(Duration::from_millis(run.random.u64(0..100)));
    run.place.server.kill();

    await_replay(run, &mut *there)?;
    let left = what_is_booked(&mut *there)?;
    there.lines("SELECT pg_promote(true, 60)::TEXT AS line")?;
    let promoted = Instant::now();
    let old = run.place.move_to(Server::Postgres(standby), on_standby);
    run.until("a payment is booked on the new primary", PATIENCE, || {
        Ok(what_is_booked(&mut *there)?.effects > left.effects)
    })?;
    let moved_in = promoted.elapsed();
    run.await_pending(0, PATIENCE)?;
    for worker in &mut pair {
        worker.shut_down(PATIENCE)?;
    }
    run.drain(&run.recipe(), PATIENCE)?;
    // The standby may lack inserts of the application too.
    run.check(|expected| Expected { payments: None, ..expected })?;

    old.restart();
    let had = what_is_booked(&mut *connect(&primary)?)?;
    Ok((Booked { effects: had.effects - left.effects, states: had.states - left.states }, moved_in))
}

fn what_is_booked(session: &mut dyn Session) -> Result<Booked> {
    let states = session.count("SELECT COUNT(*) AS n FROM payments WHERE status = 'SUCCESS'")?;
    Ok(Booked { effects: booked(session)?, states })
}

/// Waits until the standby has replayed what it received.
fn await_replay(run: &Run, standby: &mut dyn Session) -> Result<()> {
    let behind = "SELECT COUNT(*) AS n FROM pg_last_wal_receive_lsn() AS heard
        WHERE heard IS NULL OR heard > pg_last_wal_replay_lsn()";
    run.until("the standby shows what it has heard", PATIENCE, || Ok(standby.count(behind)? == 0))
}
