//! A state machine against a small model in memory: operations, the application's own SQL, and workers in each mode, in
//! random order. Every disagreement is a bug in one of the two.
//!
//! Nothing here depends on a clock: a time is none, past, or hours away. `QUEUEABLE_SEED` repeats a run, and
//! `QUEUEABLE_MODEL_STEPS` makes it longer.

mod rows;
mod table;

use std::env;

use fastrand::Rng;

use self::rows::{Deed, Plan, Rows};
use self::table::{MODES, Table};
use crate::db;

/// How many rows there are at most: so few that every group has neighbours that operate on each other.
const ROWS: i64 = 12;

/// How many steps the quick run takes.
const STEPS: usize = 10_000;

/// The average number of deeds between two runs of the workers.
const DEEDS_PER_RUN: usize = 40;

fn from_environment<T: std::str::FromStr>(name: &str) -> Option<T> {
    env::var(name).ok().and_then(|value| value.parse().ok())
}

#[test]
fn random_operations_own_sql_and_workers_come_to_what_the_model_says() {
    let seed = from_environment("QUEUEABLE_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = from_environment("QUEUEABLE_MODEL_STEPS").unwrap_or(STEPS);
    println!("QUEUEABLE_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let mut table = Table::new();
    let mut rows = Rows::default();
    for step in 0..steps {
        let what = if random.usize(..DEEDS_PER_RUN) == 0 {
            let mode = MODES[random.usize(..MODES.len())];
            let runs = table.run(mode);
            if let Err(why) = rows.run(&runs) {
                let found = table.read();
                panic!(
                    "QUEUEABLE_SEED={seed} on {}, step {step}, {mode:?}: {why}; the runs were {runs:?}, and the rows are \
                     {found:#?}",
                    db::NAME
                );
            }
            format!("{mode:?}, which ran {runs:?}")
        } else {
            let (id, deed) = (random.i64(1..=ROWS), Deed::any(&mut random));
            let plan = Plan::any(&mut random, ROWS);
            let expected = rows.apply(id, deed, plan);
            let changed = table.apply(id, deed, plan);
            let what = format!("{deed:?} of row {id}, planned {plan:?}");
            assert_eq!(changed, expected, "QUEUEABLE_SEED={seed} on {}, step {step}: rows changed by {what}", db::NAME);
            what
        };
        if let Err(why) = rows.compare(&table.read()) {
            panic!("QUEUEABLE_SEED={seed} on {}, step {step}, after {what}: {why}", db::NAME);
        }
    }
}
