//! The server plans statements for their bound numbers, even after it has run them often.

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Text};
use queue_core::internals::claim_some;
use queue_core::internals::statement::Scope;

use crate::db;
use crate::suite::bank::{Bank, Payment};
use crate::suite::keyed::erased;
use diesel::connection::SimpleConnection;

#[derive(QueryableByName)]
struct Kept {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = BigInt)]
    runs: i64,
}

#[test]
fn a_claim_of_many_walks_the_index_however_often_it_is_run() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection
        .batch_execute(
            "INSERT INTO payments (company_id, amount_cents, status, try_count)
                 SELECT 1, 1, 'SUCCESS', 1 FROM generate_series(1, 100000);
             INSERT INTO payments (company_id, amount_cents, next_attempt_time)
                 SELECT 1, 1, TIMESTAMPTZ '2026-01-01' + i * interval '1 ms' FROM generate_series(1, 20000) i;
             ANALYZE payments",
        )
        .unwrap();
    for size in 2..30 {
        let claimed = connection.transaction::<(), _, _>(|connection| {
            assert_eq!(claim_some(erased::<Payment>(), connection, true, size, Scope::ALL)?.len(), size as usize);
            Err(DieselError::RollbackTransaction)
        });
        assert_eq!(claimed, Err(DieselError::RollbackTransaction));
    }
    let kept: Kept = diesel::sql_query(
        "SELECT name, generic_plans + custom_plans AS runs FROM pg_prepared_statements
         WHERE statement LIKE '%ORDER BY%LIMIT $1%SKIP LOCKED'",
    )
    .get_result(&mut connection)
    .unwrap();
    assert_eq!(kept.runs, 28, "one statement for all numbers");
    let plan = db::plan(&mut connection, &format!("EXECUTE {}(50)", kept.name));
    assert!(db::walks_the_index(&plan), "{plan}");
}
