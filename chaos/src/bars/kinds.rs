//! Bar 26: the kinds of work, while their workers are killed: stages, archives, changing content, turns, schedules.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::bar::{Bar, Needs};
use crate::checker::Invariant;
use crate::kinds;
use crate::options::{Backend, Mode, Terms};
use crate::run::Run;
use crate::session::{Dialect, Session};

pub(super) const BAR: Bar = Bar {
    number: 26,
    title: "kinds of work under kill -9",
    backends: Backend::SINGLE,
    modes: Mode::ALL,
    server: Needs::Empty,
    measures: false,
    smoke_seconds: 10,
    run,
};

const PATIENCE: Duration = Duration::from_secs(90);
const DOCUMENTS: i64 = 30;
const JOBS: i64 = 5;

/// The invariants of each kind, as queries for the rows that break them. `$text` casts an expression to text.
const DRAINED: &[(&str, &str)] = &[
    (
        "every invoice is in one archive and no longer in its table",
        "SELECT $text(a.id) AS line FROM (SELECT id FROM invoices UNION ALL SELECT id FROM invoices_done
            UNION ALL SELECT id FROM invoices_failed) AS a GROUP BY a.id HAVING COUNT(*) <> 1
         UNION ALL SELECT $text(id) AS line FROM invoices",
    ),
    (
        "every archived success was rendered, sent and booked once, in this order",
        "SELECT $text(d.id) AS line FROM invoices_done AS d WHERE (SELECT COUNT(*) FROM steps AS r JOIN steps AS s ON
            s.invoice_id = r.invoice_id AND s.step = 'Send' AND s.id > r.id JOIN steps AS b ON b.invoice_id = r.invoice_id
            AND b.step = 'Book' AND b.id > s.id WHERE r.invoice_id = d.id AND r.step = 'Render') <> 1
            OR (SELECT COUNT(*) FROM steps AS r WHERE r.invoice_id = d.id) <> 3
            OR d.status <> 'SUCCESS' OR d.stage <> 'BOOK'",
    ),
    (
        "every archived failure was rendered, and nothing else",
        "SELECT $text(f.id) AS line FROM invoices_failed AS f WHERE (SELECT COUNT(*) FROM steps AS r WHERE
            r.invoice_id = f.id) <> 1 OR f.status <> 'FAILED' OR f.stage <> 'SEND' OR f.id % 50 <> 7",
    ),
    (
        "every document was worked as it is",
        "SELECT $text(d.id) AS line FROM documents AS d LEFT JOIN copies AS c ON c.document_id = d.id
            WHERE c.body IS NULL OR c.body <> d.body OR d.status <> 'SUCCESS' OR d.next_attempt_time IS NOT NULL",
    ),
    (
        "every turn was taken once",
        "SELECT $text(t.id) AS line FROM turns AS t WHERE (SELECT COUNT(*) FROM taken AS k WHERE k.turn_id = t.id) <> 1
            OR t.status <> 'SUCCESS'",
    ),
    (
        "turns were taken in their order",
        "SELECT $text(k.turn_id) AS line FROM taken AS k JOIN taken AS later ON later.id > k.id
            AND later.turn_id < k.turn_id",
    ),
    (
        "no run of a schedule was made twice",
        "SELECT $text(r.job_id) AS line FROM runs AS r GROUP BY r.job_id, r.scheduled HAVING COUNT(*) > 1",
    ),
    (
        "no run of a schedule was left out, and none was off it",
        "SELECT $text(r.job_id) AS line FROM runs AS r GROUP BY r.job_id HAVING
            MAX(r.scheduled) - MIN(r.scheduled) <> (COUNT(*) - 1) * 1000 OR MIN(r.scheduled) = 0",
    ),
    ("every schedule goes on", "SELECT $text(j.id) AS line FROM jobs AS j WHERE j.next_attempt_time IS NULL"),
];

fn run(run: &mut Run) -> Result<()> {
    kinds::found(run.url())?;
    let kills = run.times(6, 300);
    let mut session = run.session()?;
    let now = session.dialect().now_plus(0);
    insert(&mut *session, "documents", "body, next_attempt_time", 1..=DOCUMENTS, &format!("'0', {now}"))?;
    insert(&mut *session, "jobs", "period, next_attempt_time", 1..=JOBS, &format!("1, {now}"))?;
    let recipe = run.recipe().terms(Terms::Kinds);
    let mut pair = [recipe.start()?, recipe.start()?];
    let (mut enqueued, mut changes) = (0, 0_u64);
    for kill in 0..kills {
        insert(&mut *session, "invoices", "next_attempt_time", enqueued + 1..=enqueued + 100, &now)?;
        insert(&mut *session, "turns", "next_attempt_time", enqueued + 1..=enqueued + 20, &now)?;
        enqueued += 100;
        let one = &mut pair[usize::try_from(kill % 2)?];
        one.await_start(PATIENCE)?;
        for _ in 0..run.random.u64(10..60) {
            changes += 1;
            let document = run.random.i64(1..=DOCUMENTS);
            session.run(&format!("UPDATE documents SET body = '{changes}' WHERE id = {document}"))?;
            thread::sleep(Duration::from_millis(run.random.u64(0..5)));
        }
        one.kill()?;
        *one = recipe.start()?;
    }
    run.number("kills", kills);
    run.number("changes", changes);
    run.until("everything is worked but the schedules", PATIENCE, || {
        let left =
            "SELECT (SELECT COUNT(*) FROM invoices) + (SELECT COUNT(*) FROM documents WHERE next_attempt_time IS NOT
            NULL) + (SELECT COUNT(*) FROM turns WHERE next_attempt_time IS NOT NULL) AS n";
        Ok(session.count(left)? == 0)
    })?;
    for worker in &mut pair {
        worker.await_start(PATIENCE)?;
        worker.shut_down(PATIENCE)?;
    }
    run.number("payments", enqueued);
    run.number("runs", session.count("SELECT COUNT(*) AS n FROM runs")?);
    let overlapped = run.directory.path().join("overlap").exists();
    run.expect(!overlapped, || "two turns were taken at once".to_owned());
    if let Some(sql) = &run.asked.spoil {
        session.run(sql)?;
    }
    let left = "SELECT (SELECT COUNT(*) FROM invoices_done) + (SELECT COUNT(*) FROM invoices_failed) AS n";
    let archived = session.count(left)?;
    run.expect(archived == enqueued, || format!("{archived} of {enqueued} invoices are in the archives"));
    for (name, sql) in DRAINED {
        let rows = session.lines(&text_of(session.dialect(), sql))?;
        run.add(Invariant::of(name, rows));
    }
    Ok(())
}

fn insert(
    session: &mut dyn Session,
    table: &str,
    columns: &str,
    ids: impl Iterator<Item = i64>,
    values: &str,
) -> Result<()> {
    let rows: Vec<_> = ids.map(|id| format!("({id}, {values})")).collect();
    Ok(session.run(&format!("INSERT INTO {table} (id, {columns}) VALUES {}", rows.join(", ")))?)
}

fn text_of(dialect: Dialect, sql: &str) -> String {
    let mut written = String::new();
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once("$text(") {
        let (expression, after) = after.split_once(')').unwrap_or((after, ""));
        written.push_str(before);
        written.push_str(&dialect.text(expression));
        rest = after;
    }
    written + rest
}
