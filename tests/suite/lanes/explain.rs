//! No statement about lanes walks over the backlog of a lane: the index of lanes serves all of them.

use diesel::connection::SimpleConnection;
use queue_core::internals::backend::{Sql, Statement};
use queue_core::internals::statement::{Claim, Claimable, FromLane, Pick, ahead_due, leased_in, next_lanes};
use queue_core::internals::{BoundValue, Lane, LaneValue};

use super::{Backend, job, jobs, jobs_of};
use crate::db::{self, Conn, Database, TIME};
use crate::suite::keyed::queue;

job!(Serial, serial_queue, serial_by = company_id);
job!(Strict, strict_queue, serial_by(company_id, strict));
job!(Ranked, ranked_queue, at_most(3, by = company_id), order_by = rank);

/// Twenty thousand due jobs of company 7, and one each of a thousand others, half of them later.
fn a_backlog(of: Database) -> Database {
    let digits = "WITH d (i) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
         UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
    of.connect()
        .batch_execute(&format!(
            "INSERT INTO jobs (company_id, next_attempt_time) {digits}
             SELECT 7, CAST('2026-01-01 00:00:00.000' AS {TIME}) FROM d a CROSS JOIN d b CROSS JOIN d c CROSS JOIN d e, (SELECT 1 UNION ALL SELECT 2) f;
             INSERT INTO jobs (company_id, next_attempt_time) {digits}
             SELECT 1000 + a.i + 10 * b.i + 100 * c.i, CAST(CASE WHEN a.i < 5 THEN '2026-01-01 00:00:00.000' ELSE '2100-01-01 00:00:00.000' END AS {TIME})
             FROM d a CROSS JOIN d b CROSS JOIN d c;
             {}",
            db::ANALYZE.replace("payments", "jobs"),
        ))
        .unwrap();
    of
}

fn plan_of(connection: &mut Conn, statement: &impl Statement<Backend>) -> String {
    let sql = diesel::debug_query::<Backend, _>(&Sql::new(statement)).to_string();
    let (sql, binds) = sql.split_once(" -- binds: ").expect("the binds stand behind the statement");
    let binds: Vec<_> = binds.trim_matches(['[', ']']).split(", ").collect();
    let mut plain = sql.to_owned();
    for (i, bind) in binds.iter().enumerate() {
        plain = plain.replace(&format!("${}", i + 1), bind).replacen('?', bind, 1);
    }
    db::plan(connection, &plain)
}

/// Tells whether a plan reads the rows from the index of lanes, and sorts none.
fn walks_in_lanes(plan: &str) -> bool {
    plan.contains("queueable_lane_jobs_")
        && !["Sort", "filesort", "temporary", "TEMP B-TREE", "Seq Scan", "type ALL"].iter().any(|no| plan.contains(no))
}

fn from_seven(pick: Pick) -> FromLane {
    FromLane { lane: Lane::Value(seven()), place: None, pick }
}

fn seven() -> LaneValue {
    LaneValue { identity: "7".into(), bound: BoundValue::Integer(7) }
}

#[test]
fn the_statements_about_lanes_walk_the_index_of_lanes() {
    let database = a_backlog(jobs_of::<Serial>());
    let mut connection = database.connect();
    let in_seven = || Claim::<Backend>::new::<Serial>().some(1, Vec::new()).in_lane(from_seven(Pick::Any));
    let first_of_seven = Claim::<Backend>::new::<Serial>().some(1, Vec::new()).in_lane(from_seven(Pick::First));
    let plans = [
        (
            "the next lane",
            plan_of(&mut connection, &next_lanes(Claimable::new(queue::<Serial>(), None), Some(seven()), 1)),
        ),
        ("a claim in a lane", plan_of(&mut connection, &in_seven())),
        ("a claim of the first row in a lane", plan_of(&mut connection, &first_of_seven)),
        ("a look into a lane", plan_of(&mut connection, &in_seven().locked(false))),
        (
            "the leased rows of a lane",
            plan_of(
                &mut connection,
                &leased_in(queue::<Serial>(), Lane::Value(seven()), None, 1, Some(super::Duration::from_secs(60))),
            ),
        ),
    ];
    for (what, plan) in plans {
        assert!(walks_in_lanes(&plan), "{what}: {plan}");
    }
}

#[test]
fn what_holds_a_lane_back_is_found_by_its_index() {
    let database = a_backlog(jobs_of::<Strict>());
    let an_error_of_seven = "UPDATE jobs SET status = 'ERROR' WHERE id = 500";
    database.connect().batch_execute(an_error_of_seven).unwrap();
    let plan = plan_of(&mut database.connect(), &ahead_due(queue::<Strict>(), Lane::Value(seven())));
    assert!(plan.contains("queueable_strict_jobs_"), "{plan}");
    let claim = Claim::<Backend>::new::<Strict>().some(1, Vec::new()).in_lane(from_seven(Pick::Ahead));
    let plan = plan_of(&mut database.connect(), &claim);
    assert!(plan.contains("queueable_strict_jobs_"), "{plan}");
    assert!(!["Seq Scan", "SCAN jobs", "type ALL"].iter().any(|no| plan.contains(no)), "{plan}");
}

#[test]
fn the_next_lanes_are_found_by_jumps() {
    let database = a_backlog(jobs_of::<Serial>());
    let plan = plan_of(
        &mut database.connect(),
        &next_lanes(
            Claimable::new(queue::<Serial>(), None),
            Some(LaneValue { identity: "1".into(), bound: BoundValue::Integer(1) }),
            32,
        ),
    );
    assert!(plan.contains("queueable_lane_jobs_"), "{plan}");
    assert!(!["Seq Scan", "SCAN jobs", "type ALL"].iter().any(|no| plan.contains(no)), "{plan}");
    assert!(crate::db::NAME != "mysql" || plan.contains("Using index for group-by"), "{plan}");
}

#[test]
fn a_claim_in_an_order_walks_the_index_of_lanes() {
    let database = a_backlog(jobs_of::<Ranked>());
    let mut connection = database.connect();
    let claim = Claim::<Backend>::new::<Ranked>().some(1, Vec::new()).in_lane(from_seven(Pick::Any));
    let plan = plan_of(&mut connection, &claim);
    assert!(walks_in_lanes(&plan), "{plan}");
}
