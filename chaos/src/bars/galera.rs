//! Bar 20: a Galera cluster with workers on every node loses a node, again and again.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bar::{Bar, Needs};
use crate::checker::Expected;
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
    // The nodes give each other up when they get no processor time.
    measures: true,
    smoke_seconds: 25,
    run,
};

const PATIENCE: Duration = Duration::from_secs(120);
const EVERY: Duration = Duration::from_secs(10);
/// How long the remaining nodes may need to agree that they are the cluster.
const QUORUM: Duration = Duration::from_secs(15);

/// The state that all nodes must have, as a line for each row.
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
    let (mut quorums_lost, mut differing) = (0, Differing::default());
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
        // Until the cluster gives up the dead node, the others may wait, or refuse statements.
        run.until("a payment is booked on the other nodes", PATIENCE, || {
            if killed.elapsed() > QUORUM && !urls.iter().any(|url| is_primary(url)) {
                restore_quorum(&urls[survivor])?;
                quorums_lost += 1;
            }
            Ok(booked(&mut *session).is_ok_and(|booked| booked > before))
        })?;
        run.recovered_in(killed.elapsed());
        // Before the victim comes back, because it copies everything from one of the others.
        run.await_pending(0, PATIENCE)?;
        let survivors: Vec<_> = (0..nodes).filter(|node| *node != victim).map(|node| urls[node].clone()).collect();
        differing.find(run, &survivors)?;
        enqueue_until_pending(run, &mut *session, 1000)?;
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
    differing.find(run, &urls)?;
    run.number("rows_in_which_nodes_differ", differing.lines.len());
    let nothing = differing.lines.is_empty();
    let (written_off, balances) = if nothing { (0, 0) } else { differing.write_off(&mut *run.session()?)? };
    run.number("payments_written_off", written_off);
    run.number("balances_computed_anew", balances);
    // A kill may leave this many differences. More would have another cause.
    let most = i64::try_from(3 * kills)?;
    run.expect(written_off <= most, || format!("nodes differ in {written_off} payments after {kills} kills"));
    run.check(|expected| Expected { payments: expected.payments.map(|payments| payments - written_off), ..expected })
}

/// Whether a node belongs to a cluster with a quorum.
fn is_primary(url: &str) -> bool {
    let state = "SELECT VARIABLE_VALUE AS line FROM information_schema.GLOBAL_STATUS
        WHERE VARIABLE_NAME = 'WSREP_CLUSTER_STATUS'";
    connect(url).ok().and_then(|mut session| session.lines(state).ok()).is_some_and(|lines| lines == ["Primary"])
}

/// Makes a node the cluster's new beginning, as an operator must if the remaining nodes have given each other up too. That
/// is the database's failure, and the report counts it.
fn restore_quorum(url: &str) -> Result<()> {
    connect(url)?.run("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=true'")?;
    Ok(())
}

/// Enqueues until `wanted` payments are pending. A statement that loses against another node's had no effect, and is sent
/// again.
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

/// Waits until every node reports that it has all changes, and that all nodes are there.
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

/// The rows in which nodes differ, although no work was left: one node has committed what the others have not. That is the
/// database's failure.
#[derive(Default)]
struct Differing {
    lines: BTreeSet<String>,
    payments: BTreeSet<i64>,
    companies: BTreeSet<i64>,
}

impl Differing {
    /// Compares the nodes' rows. A difference that disappears was only a change on its way to another node.
    fn find(&mut self, run: &mut Run, urls: &[String]) -> Result<()> {
        let mut alone = differences(run, urls)?;
        if !alone.is_empty() {
            thread::sleep(Duration::from_secs(1));
            let still = differences(run, urls)?;
            alone.retain(|line| still.contains(line));
        }
        for line in alone {
            self.add(&line).with_context(|| format!("`{line}` names no row"))?;
            if self.lines.insert(line.clone()) {
                run.database_fault(format!("not every node has `{line}`"));
            }
        }
        Ok(())
    }

    /// Adds the row that a line describes.
    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let mut number = || words.next()?.parse().ok();
        match (kind, number()?) {
            ("payment", id) => self.payments.insert(id),
            ("ledger", _) => self.payments.insert(number()?),
            (_, id) => self.companies.insert(id),
        };
        Some(())
    }

    /// Deletes the differing payments on this node, so that the checker can judge all others. Returns how many they are, and
    /// how many companies got a new balance.
    fn write_off(&self, session: &mut dyn Session) -> Result<(i64, i64)> {
        let list = |ids: &BTreeSet<i64>| {
            let ids: Vec<_> = ids.iter().map(i64::to_string).collect();
            if ids.is_empty() { "NULL".to_owned() } else { ids.join(", ") }
        };
        let (payments, companies) = (list(&self.payments), list(&self.companies));
        // On this node only, because the others may have other rows.
        session.run("SET SESSION wsrep_on = OFF")?;
        session.run(&format!(
            "CREATE TEMPORARY TABLE concerned AS SELECT id FROM companies WHERE id IN ({companies})
                OR id IN (SELECT company_id FROM payments WHERE id IN ({payments}));
             DELETE FROM ledger WHERE payment_id IN ({payments});
             DELETE FROM payments WHERE id IN ({payments});
             UPDATE companies SET balance_cents = (SELECT COALESCE(SUM(amount_cents), 0) FROM payments
                WHERE company_id = companies.id AND status = 'SUCCESS') WHERE id IN (SELECT id FROM concerned)"
        ))?;
        Ok((i64::try_from(self.payments.len())?, session.count("SELECT COUNT(*) AS n FROM concerned")?))
    }
}

/// The lines that not every node has.
fn differences(run: &Run, urls: &[String]) -> Result<BTreeSet<String>> {
    let mut states = Vec::new();
    for url in urls {
        let mut lines = Vec::new();
        // A node may leave the cluster for a moment.
        run.until("the node answers", PATIENCE, || match state(url) {
            Ok(found) => {
                lines = found;
                Ok(true)
            }
            Err(_) => Ok(false),
        })?;
        states.push(BTreeSet::from_iter(lines));
    }
    let others = states.iter().skip(1);
    Ok(others.flat_map(|lines| lines.symmetric_difference(&states[0]).cloned()).collect())
}

/// The state of a node, with all earlier commits of the cluster.
fn state(url: &str) -> Result<Vec<String>> {
    let mut session = connect(url)?;
    session.run("SET SESSION wsrep_sync_wait = 15")?;
    let mut lines = Vec::new();
    for sql in STATE {
        lines.extend(session.lines(sql)?);
    }
    Ok(lines)
}
