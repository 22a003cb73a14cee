//! Bar 16: one row in a hundred is unreadable for its entity. It does not disturb the others.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bank::{ILLEGIBLE, NewPayment};
use crate::bar::{Bar, Needs};
use crate::calls::calls;
use crate::checker::Expected;
use crate::options::{Backend, Mode};
use crate::run::{Run, booked};

pub(super) const BAR: Bar = Bar {
    number: 16,
    title: "one undecodable row in a hundred",
    backends: Backend::SINGLE,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 3,
    run,
};

const PATIENCE: Duration = Duration::from_secs(30);

fn run(run: &mut Run) -> Result<()> {
    let rounds = run.times(4, 100);
    let mut session = run.session()?;
    let text = session.dialect().text("last_attempt_error_message");
    let mut worker = run.recipe().start()?;
    worker.await_start(PATIENCE)?;
    let mut slowest = Duration::ZERO;
    for _ in 0..rounds {
        let place = run.random.usize(..100);
        let mut new: Vec<_> = (0..100).map(NewPayment::plain).collect();
        new[place] = new[place].clone().note(ILLEGIBLE);
        let (before, began) = (booked(&mut *session)?, Instant::now());
        run.enqueue(&new)?;
        run.until("99 of a hundred are booked", PATIENCE, || Ok(booked(&mut *session)? >= before + 99))?;
        slowest = slowest.max(began.elapsed());
        let of_the_row = format!("note = '{ILLEGIBLE}' AND status = 'ERROR' AND next_attempt_time IS NOT NULL");
        let failed = format!("SELECT COUNT(*) AS n FROM payments WHERE {of_the_row} AND try_count > 0");
        run.until("the row has failed", PATIENCE, || Ok(session.count(&failed)? == 1))?;
        let text = session.lines(&format!("SELECT {text} AS line FROM payments WHERE note = '{ILLEGIBLE}'"))?;
        let text = text.first().context("the row is gone")?;
        run.expect(text.contains("cannot be decoded") && text.contains("nobody can read this note"), || text.clone());
        // An operator corrects it, and it is booked like the others.
        session.run(&format!("UPDATE payments SET note = 'corrected' WHERE note = '{ILLEGIBLE}'"))?;
        run.await_pending(0, PATIENCE)?;
    }
    worker.shut_down(PATIENCE)?;
    let made = calls(&run.calls())?;
    let called: BTreeSet<_> = made.iter().map(|call| call.payment).collect();
    run.expect(made.len() == called.len(), || format!("{} calls for {} payments", made.len(), called.len()));
    run.number("rounds", rounds);
    run.number("undecodable_rows", rounds);
    run.number("slowest_99_ms", u64::try_from(slowest.as_millis())?);
    let again =
        "SELECT COUNT(*) AS n FROM payments WHERE status = 'SUCCESS' AND try_count <> 1 AND note <> 'corrected'";
    let again = session.count(again)?;
    run.expect(again == 0, || format!("{again} of the others needed more than one try"));
    run.check(|expected| Expected { exact_tries: false, ..expected })
}
