//! Bar 27: thousands of rows that the database refuses to update are due before the sound ones.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::bank::NewPayment;
use crate::bar::{Bar, Needs};
use crate::calls::calls;
use crate::latency::{MANY_ROUNDS, judged_rate, median};
use crate::options::{Accounting, Backend, Mode};
use crate::run::{Run, booked};
use crate::session::{Dialect, Session};

pub(super) const BAR: Bar = Bar {
    number: 27,
    title: "thousands of rows cannot be written",
    backends: Backend::SINGLE,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: true,
    smoke_seconds: 12,
    run,
};

const PATIENCE: Duration = Duration::from_secs(120);
/// How many rows are refused, and the share of their rate that the sound ones keep beside so many. A smoke run has the first number
/// only, and too few rounds for its share.
const REFUSED: [(u64, f64); 2] = [(1_000, 0.9), (10_000, 0.5)];
const SMOKE_BOUND: f64 = 0.5;
/// The shortest pause before a refused row is tried again: ten seconds, minus up to a tenth at random.
const FIRST_PAUSE: Duration = Duration::from_secs(9);

/// The means by which the database refuses updates of the kind `refused`.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    Constraint,
    Trigger,
    /// A trigger that leaves the row out and raises no error.
    Silence,
}

fn run(run: &mut Run) -> Result<()> {
    let rounds = run.times(3, 15);
    let all = [Refusal::Constraint, Refusal::Trigger, Refusal::Silence];
    let refusals = match run.asked.mode {
        _ if rounds >= MANY_ROUNDS => &all[..],
        Mode::Transaction => &all[..1],
        Mode::Group => &all[1..2],
        Mode::Lease => &all[2..],
    };
    let recipe = match run.dialect() {
        // The rows are older than the process, and the trigger refuses its marks too, before the handler is called.
        Dialect::Sqlite => run.recipe().accounting(Accounting::Off),
        Dialect::Postgres | Dialect::Mysql => run.recipe(),
    };
    let mut worker = recipe.start()?;
    worker.await_start(PATIENCE)?;
    let smoke = [(REFUSED[0].0, SMOKE_BOUND)];
    let numbers = if rounds < MANY_ROUNDS { &smoke[..] } else { &REFUSED[..] };
    let (mut shares, mut measured) = (serde_json::Map::new(), serde_json::Map::new());
    for &(count, bound) in numbers {
        let mut worst = f64::INFINITY;
        for refusal in refusals {
            let (free, beside) = rates_beside(run, *refusal, rounds, count)?;
            worst = worst.min(beside / free);
            let rates = serde_json::json!({ "free": free.round(), "behind_refused_rows": beside.round() });
            measured.insert(format!("{refusal:?} {count}"), rates);
        }
        shares.insert(count.to_string(), ((worst * 1000.0).round() / 1000.0).into());
        let what = || format!("the sound rows keep {worst:.3} of their rate beside {count}, the bound is {bound}");
        run.expect(worst >= bound, what);
    }
    run.number("shares", shares);
    run.number("rows_per_second", measured);
    worker.shut_down(PATIENCE)?;
    run.check(|expected| expected)
}

/// The rate of the sound rows before and after, and behind so many refused ones.
fn rates_beside(run: &mut Run, refusal: Refusal, rounds: u64, count: u64) -> Result<(f64, f64)> {
    let mut session = run.session()?;
    let mut free = rates(run, rounds)?;
    refuse(&mut *session, refusal)?;
    let last = session.count("SELECT MAX(id) AS n FROM payments")?;
    let begun = Instant::now();
    insert_refused(&mut *session, count)?;
    // A worker that has learnt that nothing older is due finds them with its next full probe. Under a lease the database
    // refuses the claim, before the handler runs.
    if run.asked.mode != Mode::Lease {
        run.until("a refused row is tried", PATIENCE, || Ok(!tries_of(run, &mut *session, last)?.is_empty()))?;
    }
    let beside = rates(run, rounds)?;
    let pauses = begun.elapsed().as_secs() / FIRST_PAUSE.as_secs();
    let tries = tries_of(run, &mut *session, last)?;
    // In this order, because a row that may be written again would be booked.
    session.run("DELETE FROM payments WHERE kind = 'refused'")?;
    allow(&mut *session, refusal)?;
    free.extend(rates(run, rounds)?);

    let most = tries.values().copied().max().unwrap_or_default();
    run.number("refused_rows_tried", tries.len());
    run.number("most_tries_of_a_refused_row", most);
    // A group that is undone repeats the calls of its rows, in smaller groups and one by one. Each of the three other workers
    // may claim the row while the first one learns that it is refused.
    let bound = (1 + pauses) * if run.asked.mode == Mode::Group { 10 } else { 1 } + 3;
    run.expect(most <= bound, || format!("a refused row was tried {most} times ({refusal:?}), the bound is {bound}"));
    Ok((median(&free), judged_rate(&beside)))
}

/// How many sound rows are booked per second, from their insert to the last booking, in each round.
fn rates(run: &mut Run, rounds: u64) -> Result<Vec<f64>> {
    let rows = if rounds < MANY_ROUNDS { 400 } else { 1000 };
    let mut session = run.session()?;
    let mut rates = Vec::new();
    for _ in 0..rounds {
        let before = booked(&mut *session)?;
        let began = Instant::now();
        run.enqueue(&(0..rows).map(NewPayment::plain).collect::<Vec<_>>())?;
        run.until("the sound rows are booked", PATIENCE, || Ok(booked(&mut *session)? >= before + rows))?;
        rates.push(rows as f64 / began.elapsed().as_secs_f64());
    }
    Ok(rates)
}

/// How many times the handler ran for each refused payment with a greater key.
fn tries_of(run: &Run, session: &mut dyn Session, last: i64) -> Result<BTreeMap<i64, u64>> {
    let id = session.dialect().text("id");
    let refused =
        session.lines(&format!("SELECT {id} AS line FROM payments WHERE kind = 'refused' AND id > {last}"))?;
    let refused = refused.iter().map(|id| Ok(id.parse()?)).collect::<Result<std::collections::BTreeSet<i64>>>()?;
    let mut tries = BTreeMap::new();
    for call in calls(&run.calls())? {
        if refused.contains(&call.payment) {
            *tries.entry(call.payment).or_default() += 1;
        }
    }
    Ok(tries)
}

/// Inserts refused rows that have been due for a minute, a millisecond apart.
fn insert_refused(session: &mut dyn Session, count: u64) -> Result<()> {
    let rows: Vec<_> = (0..count).collect();
    let dialect = session.dialect();
    for some in rows.chunks(1000) {
        let row = |number: &u64| {
            let due = match dialect {
                Dialect::Postgres => {
                    format!("clock_timestamp() + interval '{number} milliseconds' - interval '1 minute'")
                }
                Dialect::Mysql => format!("UTC_TIMESTAMP(6) + INTERVAL {number} * 1000 - 60000000 MICROSECOND"),
                Dialect::Sqlite => {
                    let seconds = *number as f64 / 1000.0 - 60.0;
                    format!("strftime('%Y-%m-%d %H:%M:%f', 'now', '{seconds:.3} seconds')")
                }
            };
            format!("(1, 5, 'refused', {due})")
        };
        let some: Vec<_> = some.iter().map(row).collect();
        let into = "INSERT INTO payments (company_id, amount_cents, kind, next_attempt_time) VALUES";
        session.run(&format!("{into} {}", some.join(", ")))?;
    }
    Ok(())
}

/// The condition that allows a refused row's insert and no update of it.
const AS_ENQUEUED: &str = "kind <> 'refused' OR (status = 'NOT_ATTEMPTED' AND last_attempt_error_message IS NULL)";

fn refuse(session: &mut dyn Session, refusal: Refusal) -> Result<()> {
    let trigger = |body: &str| format!("CREATE TRIGGER refuse BEFORE UPDATE ON payments FOR EACH ROW {body}");
    let sql = match (session.dialect(), refusal) {
        (Dialect::Postgres | Dialect::Mysql, Refusal::Constraint) => {
            format!("ALTER TABLE payments ADD CONSTRAINT refuse CHECK ({AS_ENQUEUED})")
        }
        (Dialect::Postgres, refusal) => {
            let body = match refusal {
                Refusal::Silence => "RETURN NULL",
                Refusal::Constraint | Refusal::Trigger => "RAISE EXCEPTION 'nobody writes this row'",
            };
            format!(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; END $$; {}",
                trigger("WHEN (OLD.kind = 'refused') EXECUTE FUNCTION refuse()")
            )
        }
        // There a trigger cannot leave a row out without an error.
        (Dialect::Mysql, Refusal::Trigger | Refusal::Silence) => trigger(
            "IF OLD.kind = 'refused' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'nobody writes this row'; END IF",
        ),
        // There a constraint cannot be added to a table.
        (Dialect::Sqlite, Refusal::Constraint | Refusal::Trigger) => {
            trigger("WHEN OLD.kind = 'refused' BEGIN SELECT RAISE(ABORT, 'nobody writes this row'); END")
        }
        (Dialect::Sqlite, Refusal::Silence) => trigger("WHEN OLD.kind = 'refused' BEGIN SELECT RAISE(IGNORE); END"),
    };
    Ok(session.run(&sql)?)
}

fn allow(session: &mut dyn Session, refusal: Refusal) -> Result<()> {
    let sql = match (session.dialect(), refusal) {
        (Dialect::Postgres | Dialect::Mysql, Refusal::Constraint) => "ALTER TABLE payments DROP CONSTRAINT refuse",
        (Dialect::Postgres, _) => "DROP TRIGGER refuse ON payments; DROP FUNCTION refuse()",
        (Dialect::Mysql | Dialect::Sqlite, _) => "DROP TRIGGER refuse",
    };
    Ok(session.run(sql)?)
}
