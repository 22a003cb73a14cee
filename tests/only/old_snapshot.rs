//! An old snapshot, during which PostgreSQL keeps the index entries of all settled rows.

use chrono::{DateTime, TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;
use queue_core::internals::backend::{Sql, Statement};
use queue_core::internals::statement::{Claim, Claimable, probe_due};
use queueable::columns::Instant;

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment};
use crate::suite::keyed::queue;

type Backend = <Conn as Connection>::Backend;

/// How many rows are settled; one more remains due after them. Their order in the table differs from their order by due
/// time, so that each costs a page.
const SETTLED: i64 = 5_000;

/// How many pages a statement reads. Its binds are the time at which its claim begins, and the number of rows, 50.
fn pages(connection: &mut Conn, statement: &impl Statement<Backend>, from: DateTime<Utc>) -> u64 {
    let sql = diesel::debug_query::<Backend, _>(&Sql::new(statement)).to_string();
    let (sql, _) = sql.split_once(" -- binds: ").unwrap();
    let sql = sql.replace("$1", &format!("TIMESTAMPTZ '{}'", from.to_rfc3339())).replace("$2", "50");
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {sql}");
    let plan: Vec<String> = diesel::dsl::sql::<Text>(&explain).load(connection).unwrap();
    let plan = plan.join("\n");
    // Since PostgreSQL 18 the number has decimals.
    let found = plan.contains("actual rows=1 ") || plan.contains("actual rows=1.00 ");
    assert!(found, "one row is found:\n{plan}");
    let (_, read) = plan.split_once("Buffers: shared ").unwrap();
    let numbers = read.lines().next().unwrap().split(['=', ' ']).filter_map(|word| word.parse::<u64>().ok());
    numbers.sum()
}

#[test]
fn a_claim_from_the_mark_does_not_walk_over_what_was_settled_while_an_old_snapshot_is_held() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection
        .batch_execute(&format!(
            "INSERT INTO payments (company_id, amount_cents, next_attempt_time)
             SELECT 1, due, TIMESTAMPTZ '2026-01-01 00:00:00Z' + due * INTERVAL '1 second'
             FROM generate_series(0, {SETTLED}) AS due ORDER BY due % 89, due;
             ANALYZE payments",
        ))
        .unwrap();
    let mut old = bank.connect();
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM companies").unwrap();
    connection
        .batch_execute(&format!(
            "UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL WHERE amount_cents < {SETTLED}"
        ))
        .unwrap();
    let begin = "2026-01-01T00:00:00Z".parse::<DateTime<Utc>>().unwrap();
    let mark = begin + TimeDelta::seconds(SETTLED - 10);
    let look = |floor| probe_due(Claimable::new(queue::<Payment>(), None).not_below(floor));
    let claim = Claim::<Backend>::new::<Payment>;
    let at = Instant::from(mark);
    let plain = [pages(&mut connection, &look(None), mark), pages(&mut connection, &claim(), mark)];
    let marked =
        [pages(&mut connection, &look(Some(at)), mark), pages(&mut connection, &claim().not_below(Some(at)), mark)];
    let some = pages(&mut connection, &claim().some(50, Vec::new()).not_below(Some(at)), mark);
    assert!(plain.iter().all(|pages| *pages > 1_000), "{plain:?}");
    assert!(marked.iter().all(|pages| *pages < 100) && some < 100, "{marked:?} {some}");
}
