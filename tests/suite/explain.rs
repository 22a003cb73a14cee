//! The index serves the claim: it finds 1,000 pending rows among 100,000 finished ones without a scan and a sort.

use diesel::connection::SimpleConnection;
use queue_core::internals::backend::{Sql, Statement};
use queue_core::internals::statement::{Claim, Claimable, probe_due};

use crate::db::{self, Conn};
use crate::suite::bank::{Bank, Payment};
use crate::suite::keyed::queue;

type Backend = <Conn as diesel::Connection>::Backend;

/// A hundred thousand finished payments and a thousand pending ones, half of them due, with fresh statistics.
fn a_long_history() -> Bank {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection
        .batch_execute(&format!(
            "INSERT INTO payments (company_id, amount_cents, status, next_attempt_time, try_count)
             WITH d (i) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
                 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)
             SELECT 1, 1, 'SUCCESS', NULL, 1 FROM d a CROSS JOIN d b CROSS JOIN d c CROSS JOIN d e CROSS JOIN d f;
             INSERT INTO payments (company_id, amount_cents, next_attempt_time)
             SELECT 1, id, '2026-01-01 00:00:00.000' FROM payments WHERE id <= 500;
             INSERT INTO payments (company_id, amount_cents, next_attempt_time)
             SELECT 1, id, '2100-01-01 00:00:00.000' FROM payments WHERE id <= 500;
             {}",
            db::ANALYZE,
        ))
        .unwrap();
    bank
}

fn plan_of(connection: &mut Conn, statement: &impl Statement<Backend>) -> String {
    let sql = diesel::debug_query::<Backend, _>(&Sql::new(statement)).to_string();
    let (sql, binds) = sql.split_once(" -- binds: ").expect("the binds stand behind the statement");
    // The server plans a statement with the number of rows that it is run with.
    let number = binds.trim_matches(['[', ']']);
    assert!(number.chars().all(|c| c.is_ascii_digit()), "the statement is planned as it is run: {binds}");
    db::plan(connection, &sql.replace("$1", number).replace('?', number))
}

#[test]
fn claim_and_look_walk_the_queues_index() {
    let bank = a_long_history();
    let mut connection = bank.connect();
    for (name, plan) in [
        ("claim", plan_of(&mut connection, &Claim::<Backend>::new::<Payment>())),
        ("claim of many", plan_of(&mut connection, &Claim::<Backend>::new::<Payment>().some(50, Vec::new()))),
        ("look", plan_of(&mut connection, &probe_due(Claimable::new(queue::<Payment>(), None)))),
    ] {
        assert!(plan.contains("queueable_payments_3d307857d9304fe5"), "{name}:\n{plan}");
        assert!(db::walks_the_index(&plan), "{name}:\n{plan}");
    }
}
