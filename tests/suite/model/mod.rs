//! A state machine against a small model in memory: operations, the application's own SQL, and workers in each mode, in
//! random order, for several kinds of work. Every disagreement is a bug in one of the two.
//!
//! Nothing here depends on a clock: a time is none, past, or hours away. `QUEUEABLE_SEED` repeats a run, and
//! `QUEUEABLE_MODEL_STEPS` sets its length.

mod rows;
mod table;

use std::env;

use fastrand::Rng;

use self::rows::{Deed, KINDS, Kind, Plan, Rows};
use self::table::{Table, modes};
use crate::db;
use crate::suite::thorough::times;

/// How many rows there are at most: so few that every group has neighbours that operate on each other.
const ROWS: i64 = 12;

/// How many steps a run takes, with all kinds of work together: usually, and every night.
const STEPS: [usize; 2] = [2_000, 10_000];

/// The average number of deeds between two runs of the workers.
const DEEDS_PER_RUN: usize = 40;

fn from_environment<T: std::str::FromStr>(name: &str) -> Option<T> {
    env::var(name).ok().and_then(|value| value.parse().ok())
}

#[test]
fn random_operations_own_sql_and_workers_come_to_what_the_model_says() {
    let seed = from_environment("QUEUEABLE_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = from_environment("QUEUEABLE_MODEL_STEPS").unwrap_or(times(STEPS[0], STEPS[1]));
    println!("QUEUEABLE_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    KINDS.into_iter().for_each(|kind| walk(kind, seed, &mut random, steps / KINDS.len()));
}

/// Takes steps with one kind of work.
fn walk(kind: Kind, seed: u64, random: &mut Rng, steps: usize) {
    let mut table = Table::new(kind);
    let mut rows = Rows::default();
    for step in 0..steps {
        let place = || format!("QUEUEABLE_SEED={seed} on {}, {kind:?}, step {step}", db::NAME);
        let what = if random.usize(..DEEDS_PER_RUN) == 0 {
            let modes = modes(kind);
            let mode = modes[random.usize(..modes.len())];
            let runs = table.run(mode);
            if let Err(why) = rows.run(kind, &runs) {
                let found = table.read();
                panic!("{}, {mode:?}: {why}; the runs were {runs:?}, and the rows are {found:#?}", place());
            }
            format!("{mode:?}, which ran {runs:?}")
        } else {
            let (id, deed) = (random.i64(1..=ROWS), Deed::any(random, kind));
            let plan = Plan::any(random, kind, ROWS);
            let expected = rows.apply(id, deed, plan);
            let changed = table.apply(id, deed, plan);
            let what = format!("{deed:?} of row {id}, planned {plan:?}");
            assert_eq!(changed, expected, "{}: rows changed by {what}", place());
            what
        };
        if let Err(why) = rows.compare(&table.read()) {
            panic!("{}, after {what}: {why}", place());
        }
    }
}
