//! Bar 20: a Galera cluster with workers on every node loses a node, again and again.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bar::{Bar, Needs};
use crate::galera::Cluster;
use crate::options::{Backend, Mode};
use crate::place::Server;
use crate::run::{Run, booked, pending};
use crate::session::{Session, connect};

pub(super) const BAR: Bar = Bar {
    number: 20,
    title: "a node of a Galera cluster is killed every 10 s",
    backends: &[Backend::Galera],
    modes: &[Mode::Lease],
    server: Needs::Own,
    // Its nodes give each other up when they get no processor.
    measures: true,
    smoke_seconds: 25,
    run,
};

const PATIENCE: Duration = Duration::from_secs(120);
const EVERY: Duration = Duration::from_secs(10);
/// How long the nodes that are left may need to agree that they are the cluster.
const QUORUM: Duration = Duration::from_secs(15);

/// What the nodes must agree on, a line for each row.
const STATE: &[&str] = &[
    "SELECT CONCAT_WS(' ', 'payment', id, status, try_count, COALESCE(next_attempt_time, '-')) AS line
        FROM payments ORDER BY id",
    "SELECT CONCAT_WS(' ', 'ledger', id, payment_id, amount_cents, attempt) AS line FROM ledger ORDER BY id",
    "SELECT CONCAT_WS(' ', 'company', id, balance_cents) AS line FROM companies ORDER BY id",
];

fn run(run: &mut Run) -> Result<()> {
    let kills = run.times(1, 30);
    let server = run.place.server.clone();
    let Server::Galera(cluster) = &*server else { anyhow::bail!("no cluster") };
    let nodes = cluster.nodes.len();
    let urls: Vec<_> = (0..nodes).map(|node| cluster.url(node, run.url())).collect();
    run.number("nodes", nodes);
    await_whole(run, cluster, &urls)?;
    let mut workers = Vec::new();
    for url in &urls {
        workers.push(run.recipe().url(url).start()?);
    }
    for worker in &mut workers {
        worker.await_start(PATIENCE)?;
    }
    let mut slowest_return = Duration::ZERO;
    let mut quorums_lost = 0;
    for _ in 0..kills {
        let begun = Instant::now();
        let victim = run.random.usize(..nodes);
        let survivor = (victim + 1) % nodes;
        run.place.reach_by(urls[survivor].clone());
        let mut session = run.session()?;
        let before = booked(&mut *session)?;
        enqueue_until_pending(run, &mut *session, 1000)?;
        run.until("the workers are at work", PATIENCE, || Ok(booked(&mut *session)? > before))?;
        thread::sleep(Duration::from_millis(run.random.u64(0..300)));
        cluster.nodes[victim].kill();
        let killed = Instant::now();
        let before = booked(&mut *session)?;
        // A node may be asked to wait for the rest of the cluster, or refuse, until the dead one is given up.
        run.until("a payment is booked on the other nodes", PATIENCE, || {
            if killed.elapsed() > QUORUM && !urls.iter().any(|url| is_primary(url)) {
                restore_quorum(&urls[survivor])?;
                quorums_lost += 1;
            }
            Ok(booked(&mut *session).is_ok_and(|booked| booked > before))
        })?;
        run.recovered_in(killed.elapsed());
        let back = Instant::now();
        cluster.nodes[victim].restart();
        await_whole(run, cluster, &urls)?;
        slowest_return = slowest_return.max(back.elapsed());
        if begun.elapsed() < EVERY && kills > 1 {
            thread::sleep(EVERY.saturating_sub(begun.elapsed()));
        }
    }
    run.number("kills", kills);
    run.number("quorums_lost", quorums_lost);
    run.number("slowest_return_of_a_node_ms", u64::try_from(slowest_return.as_millis())?);
    run.await_pending(0, PATIENCE)?;
    for worker in &mut workers {
        worker.shut_down(PATIENCE)?;
    }
    run.drain(&run.recipe(), PATIENCE)?;
    run.check(|expected| expected)?;
    compare(run, &urls)
}

/// Whether a node takes part in a cluster that goes on.
fn is_primary(url: &str) -> bool {
    let state = "SELECT VARIABLE_VALUE AS line FROM information_schema.GLOBAL_STATUS
        WHERE VARIABLE_NAME = 'WSREP_CLUSTER_STATUS'";
    connect(url).ok().and_then(|mut session| session.lines(state).ok()).is_some_and(|lines| lines == ["Primary"])
}

/// Does what an operator has to do when the nodes that are left have given each other up too: the database's fault, that
/// is, and counted.
fn restore_quorum(url: &str) -> Result<()> {
    connect(url)?.run("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=true'")?;
    Ok(())
}

/// Enqueues until so many are pending. A statement that loses against another node's was not done, and is sent again.
fn enqueue_until_pending(run: &mut Run, session: &mut dyn Session, wanted: i64) -> Result<()> {
    let missing = (wanted - pending(session)?).max(1);
    let mut refused = 0;
    while let Err(error) = run.enqueue_mixed(missing) {
        refused += 1;
        if refused == 10 {
            return Err(error).context("the application cannot enqueue");
        }
    }
    Ok(())
}

/// Waits until every node says that all are there and that it has all changes.
fn await_whole(run: &Run, cluster: &Cluster, urls: &[String]) -> Result<()> {
    let whole = format!("Synced {}", cluster.nodes.len());
    let state = "SELECT GROUP_CONCAT(VARIABLE_VALUE ORDER BY VARIABLE_NAME DESC SEPARATOR ' ') AS line
        FROM information_schema.GLOBAL_STATUS
        WHERE VARIABLE_NAME IN ('WSREP_LOCAL_STATE_COMMENT', 'WSREP_CLUSTER_SIZE')";
    run.until("the cluster is whole", PATIENCE, || {
        Ok(urls.iter().all(|url| {
            let lines = connect(url).ok().and_then(|mut session| session.lines(state).ok());
            lines.is_some_and(|lines| lines == [whole.as_str()])
        }))
    })
}

/// Compares what the nodes hold. A difference is the database's fault, and the evidence for whatever else is broken.
fn compare(run: &mut Run, urls: &[String]) -> Result<()> {
    let mut states = Vec::new();
    for url in urls {
        let mut session = connect(url)?;
        session.run("SET SESSION wsrep_sync_wait = 15")?;
        let mut lines = Vec::new();
        for sql in STATE {
            lines.extend(session.lines(sql)?);
        }
        states.push(lines);
    }
    let mut differences = 0;
    for (node, lines) in states.iter().enumerate().skip(1) {
        for (others, own) in [(&states[0], lines), (lines, &states[0])] {
            let others: std::collections::BTreeSet<_> = others.iter().collect();
            let alone: Vec<_> = own.iter().filter(|line| !others.contains(line)).collect();
            differences += alone.len();
            if let Some(first) = alone.first() {
                run.fault(format!("database fault: nodes 0 and {node} differ in {} rows, as `{first}`", alone.len()));
            }
        }
    }
    run.number("rows_in_which_nodes_differ", differences);
    Ok(())
}
