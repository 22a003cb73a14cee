//! The ordered index serves the claim: no scan of the finished rows, and no sort of the due ones.

use diesel::prelude::*;
use queue_core::internals::backend::Sql;
use queue_core::internals::statement::{Claim, Claimable, due_among_first, head, probe_due, take};
use queueable::bounds::StoredIn;

use super::{Backend, Step, bank_of, entity, sql};
use crate::db;
use crate::suite::bank::{Bank, payments};
use crate::suite::keyed::queue;
use crate::suite::stages::{plan_of, with_binds};

entity!(Urgent, urgent_queue, priority(age = "1h"));
entity!(ByAmount, by_amount_queue, order_by = amount_cents);
entity!(Largest, largest_queue, order_by(amount_cents.desc(), company_id));
entity!(Alone, alone_queue, exclusive);
entity!(AloneByAmount, alone_by_amount_queue, exclusive, order_by = amount_cents);
entity!(AloneInSteps, alone_in_steps_queue, exclusive, stage = Step);
entity!(LargestInSteps, largest_in_steps_queue, exclusive, order_by(amount_cents.desc(), company_id), stage = Step);

/// Ten thousand finished payments, all of which come before the thousand that are pending, half of them due.
fn a_history<Q>() -> Bank
where
    Q: StoredIn<Backend> + 'static,
{
    a_history_that_is::<Q>(db::ANALYZE)
}

fn a_history_that_is<Q>(analyzed: &str) -> Bank
where
    Q: StoredIn<Backend> + 'static,
{
    let bank = bank_of::<Q>();
    sql(
        &bank,
        &format!(
            "INSERT INTO payments (company_id, amount_cents, status, next_attempt_time, try_count)
             WITH d (i) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
                 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)
             SELECT 1, 1, 'SUCCESS', NULL, 1 FROM d a CROSS JOIN d b CROSS JOIN d c CROSS JOIN d e;
             INSERT INTO payments (company_id, amount_cents, next_attempt_time)
             SELECT 1, 1000 + id, '2026-01-01 00:00:00.000' FROM payments WHERE id <= 500;
             INSERT INTO payments (company_id, amount_cents, next_attempt_time)
             SELECT 1, 1000 + id, '2100-01-01 00:00:00.000' FROM payments WHERE id <= 500;
             {analyzed}"
        ),
    );
    bank
}

/// Tells whether a plan reads the rows from the ordered index, and sorts none.
fn walks_in_order(plan: &str) -> bool {
    plan.contains("queueable_order_payments_")
        && !["Sort", "filesort", "temporary", "TEMP B-TREE", "Seq Scan", "type ALL"].iter().any(|no| plan.contains(no))
}

#[test]
fn claims_in_order_walk_the_ordered_index() {
    let bank = a_history::<Urgent>();
    let mut connection = bank.connect();
    for (name, plan) in [
        ("claim", plan_of(&mut connection, &Claim::<Backend>::new::<Urgent>())),
        ("claim of many", plan_of(&mut connection, &Claim::<Backend>::new::<Urgent>().some(50, Vec::new()))),
        ("glance", plan_of(&mut connection, &Claim::<Backend>::new::<Urgent>().some(50, Vec::new()).locked(false))),
    ] {
        assert!(walks_in_order(&plan), "{name}:\n{plan}");
    }
    let bank = a_history::<ByAmount>();
    let plan = plan_of(&mut bank.connect(), &Claim::<Backend>::new::<ByAmount>());
    assert!(walks_in_order(&plan), "{plan}");
    let bank = a_history::<Largest>();
    let plan = plan_of(&mut bank.connect(), &Claim::<Backend>::new::<Largest>());
    assert!(walks_in_order(&plan), "{plan}");
}

/// A million rows may come first by the order and not be due yet.
#[test]
fn a_claim_among_few_due_rows_walks_the_index_of_due_times_and_sorts_them() {
    // Also before the server has counted the rows.
    for analyze in [db::ANALYZE, ""] {
        let bank = a_history_that_is::<ByAmount>(analyze);
        let mut connection = bank.connect();
        let few = || Claim::<Backend>::new::<ByAmount>().some(1, Vec::new()).of_few(true);
        for (name, plan) in
            [("claim", plan_of(&mut connection, &few())), ("glance", plan_of(&mut connection, &few().locked(false)))]
        {
            assert!(plan.contains("queueable_payments_3d307857d9304fe5"), "{name}:\n{plan}");
            assert!(
                !["queueable_order_payments_", "Seq Scan", "type ALL"].iter().any(|no| plan.contains(no)),
                "{name}:\n{plan}"
            );
        }
    }
}

#[test]
fn the_look_at_the_first_rows_walks_the_ordered_index() {
    let bank = a_history::<ByAmount>();
    let plan = plan_of(&mut bank.connect(), &due_among_first(queue::<ByAmount>(), 300));
    assert!(walks_in_order(&plan.replacen("type ALL key None", "", 1)), "{plan}");
}

#[test]
fn aged_claims_and_probes_walk_the_index_of_due_times() {
    let bank = a_history::<Urgent>();
    let mut connection = bank.connect();
    let age = std::time::Duration::from_secs(3600);
    for (name, plan) in [
        ("aged claim", plan_of(&mut connection, &Claim::<Backend>::new::<Urgent>().some(1, Vec::new()).aged(age))),
        ("look", plan_of(&mut connection, &probe_due(Claimable::new(queue::<Urgent>(), None)))),
    ] {
        assert!(plan.contains("queueable_payments_3d307857d9304fe5"), "{name}:\n{plan}");
        assert!(db::walks_the_index(&plan), "{name}:\n{plan}");
    }
}

#[test]
fn the_first_pending_row_is_found_without_a_scan() {
    let bank = a_history::<Alone>();
    let mut connection = bank.connect();
    for (name, plan) in [
        ("head", plan_of(&mut connection, &head(Claimable::new(queue::<Alone>(), None)))),
        // MySQL shows the one row of the subquery as a table.
        (
            "look",
            plan_of(&mut connection, &probe_due(Claimable::new(queue::<Alone>(), None))).replacen("type ALL", "", 1),
        ),
    ] {
        assert!(walks_in_order(&plan), "{name}:\n{plan}");
    }
    let bank = a_history::<AloneByAmount>();
    let plan = plan_of(&mut bank.connect(), &head(Claimable::new(queue::<AloneByAmount>(), None)));
    assert!(walks_in_order(&plan), "{plan}");
}

/// The others are more than a thousand, half of them due, and the statistics say that all rows are in their stage.
#[test]
fn the_first_pending_row_of_some_stages_is_found_beside_many_of_another() {
    fn is_found<Q: StoredIn<Backend> + 'static>() {
        let bank = a_history::<Q>();
        sql(&bank, "UPDATE payments SET stage = 'SEND' WHERE amount_cents BETWEEN 1490 AND 1495");
        sql(&bank, "UPDATE payments SET stage = 'BOOK' WHERE amount_cents = 1250");
        let mut connection = bank.connect();
        for stages in [&["SEND"][..], &["BOOK"], &["DRAW"], &["SEND", "BOOK"]] {
            let due = || Claimable::new(queue::<Q>(), Some(stages));
            for (name, sql) in [("head", with_binds(&head(due()))), ("look", with_binds(&probe_due(due())))] {
                let (plan, name) = (db::plan(&mut connection, &sql), format!("{name} of {stages:?}"));
                assert_eq!(plan.matches("queueable_stage_payments_").count(), stages.len(), "{name}:\n{plan}");
                assert!(
                    !["queueable_order_payments_", "Seq Scan"].iter().any(|no| plan.contains(no)),
                    "{name}:\n{plan}"
                );
                let read = db::rows_read(&mut connection, &sql);
                assert!(read.is_none_or(|read| (1.0..40.0).contains(&read)), "{name} reads {read:?} rows:\n{plan}");
                // Of one stage, the index has the order too. MySQL shows the one row of the look's subquery as a table.
                let plan = plan.replace("queueable_stage_", "queueable_order_").replacen("type ALL", "", 1);
                assert!(stages.len() > 1 || walks_in_order(&plan), "{name}:\n{plan}");
            }
        }
    }
    is_found::<AloneInSteps>();
    is_found::<LargestInSteps>();
}

/// The statement has binds, so the test runs it instead. MySQL's update names the index, and would fail without it.
#[test]
fn a_take_in_order_takes_the_first_rows() {
    let bank = a_history::<ByAmount>();
    let (began, token) = (chrono::Utc::now(), chrono::Utc::now() + chrono::TimeDelta::seconds(60));
    let take = take(Claim::new::<ByAmount>().some(3, Vec::new()), began.into(), token.into());
    assert_eq!(bank.connect().execute_returning_count(&Sql::new(&take)).unwrap(), 3);
    let taken = payments::table
        .filter(by_amount_queue::status.eq(queueable::Status::InProgress))
        .order(payments::amount_cents)
        .select(payments::amount_cents);
    assert_eq!(taken.load::<i64>(&mut bank.connect()).unwrap(), [1001, 1002, 1003]);
}
