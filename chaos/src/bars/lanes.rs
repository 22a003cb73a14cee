//! Bar 36: rows that are scheduled by a column, while their workers are killed, frozen and cut off. The limits hold and the
//! order is kept, as the handlers' notes tell; every row succeeds, and so no place is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::attempts::{self, Note};
use crate::bar::{Bar, Needs};
use crate::checker::Invariant;
use crate::injector::Injector;
use crate::lanes;
use crate::options::{Backend, Mode, Terms};
use crate::run::Run;
use crate::schedule::{Fault, Strike};
use crate::session::Dialect;

pub(super) const BAR: Bar = Bar {
    number: 36,
    title: "scheduling by a column under kill -9, cuts and freezes",
    backends: Backend::SINGLE,
    modes: Mode::ALL,
    server: Needs::Empty,
    measures: false,
    smoke_seconds: 10,
    run,
};

const PATIENCE: Duration = Duration::from_secs(90);
const PROCESSES: usize = 2;
const COMPANIES: i64 = 5;
/// The queues, and how many rows of a company they work at the same time.
const QUEUES: [(&str, usize); 3] = [("serials", 1), ("trios", 3), ("stricts", 1)];
/// How many rows each queue gets between two faults.
const ROWS: i64 = 30;

fn run(run: &mut Run) -> Result<()> {
    lanes::found(run.url())?;
    let notes = attempts::open(run.directory.path())?;
    let mut session = run.session()?;
    let recipe = run.recipe().terms(Terms::Lanes);
    let mut injector = Injector::new(run.url(), run.place.server.clone(), recipe, PROCESSES)?;
    let (faults, mut enqueued) = (run.times(8, 200), 0);
    for _ in 0..faults {
        for (queue, _) in QUEUES {
            let now = session.dialect().now_plus(0);
            let row = |id: i64| format!("({id}, {}, {now})", id % COMPANIES);
            let rows: Vec<_> = (enqueued + 1..=enqueued + ROWS).map(row).collect();
            session
                .run(&format!("INSERT INTO {queue} (id, company_id, next_attempt_time) VALUES {}", rows.join(", ")))?;
            attempts::note(&notes, &Note::Enqueued { queue: queue.to_owned(), last: enqueued + ROWS })?;
        }
        enqueued += ROWS;
        thread::sleep(Duration::from_millis(run.random.u64(0..80)));
        let fault = draw(run);
        match &fault {
            Fault::Kill { worker } => {
                let process = injector.ids()[*worker];
                attempts::note(&notes, &Note::Killing { process })?;
            }
            Fault::CutAll => attempts::note(&notes, &Note::Cutting)?,
            _ => {}
        }
        injector.strike(&Strike { at: Duration::ZERO, faults: vec![fault] })?;
        injector.tend()?;
    }
    run.until("everything is worked", PATIENCE, || {
        let left =
            QUEUES.map(|(queue, _)| format!("(SELECT COUNT(*) FROM {queue} WHERE next_attempt_time IS NOT NULL)"));
        Ok(session.count(&format!("SELECT {} AS n", left.join(" + ")))? == 0)
    })?;
    injector.shut_down()?;
    run.number("faults", faults);
    run.number("payments", enqueued * 3);
    if let Some(sql) = &run.asked.spoil {
        session.run(sql)?;
    }
    let notes = attempts::read(run.directory.path())?;
    for (queue, most) in QUEUES {
        let text = session.dialect().text("id");
        let bad =
            format!("SELECT {text} AS line FROM {queue} WHERE status <> 'SUCCESS' OR next_attempt_time IS NOT NULL");
        let rows = session.lines(&bad)?.into_iter().map(|id| format!("{queue} {id}")).collect();
        run.add(Invariant::of("every row succeeds", rows));
        let tries = session.dialect().text("try_count");
        let mut tried = BTreeMap::new();
        let ids = session.lines(&format!("SELECT {text} AS line FROM {queue} ORDER BY id"))?;
        for (id, tries) in ids.iter().zip(session.lines(&format!("SELECT {tries} AS line FROM {queue} ORDER BY id"))?) {
            tried.insert(id.parse::<i64>()?, tries.parse::<usize>().context("no number of tries")?);
        }
        let history = History::of(queue, run.asked.mode, &notes, tried);
        run.add(Invariant::of("no company has more rows at the same time than its limit", history.too_many(most)));
        if most == 1 {
            run.add(Invariant::of("rows of a company begin in the order of their due times", history.overtaken()));
        }
        if queue == "stricts" {
            run.add(Invariant::of("nothing passes a row that has failed and not ended", history.passed()));
        }
    }
    Ok(())
}

/// Draws a fault. A freeze is shorter than the lease and the timeout: nothing excuses a worker after it.
fn draw(run: &mut Run) -> Fault {
    let worker = run.random.usize(..PROCESSES);
    match run.random.u8(..10) {
        0..4 => Fault::Kill { worker },
        4..7 => Fault::Freeze { worker, millis: run.random.u64(50..500) },
        _ if run.dialect() == Dialect::Sqlite => Fault::Kill { worker },
        _ => Fault::CutAll,
    }
}

/// The attempts of a queue, as the notes tell.
struct History {
    queue: &'static str,
    mode: Mode,
    attempts: Vec<Attempt>,
    /// The places of the notes of rows, and the last row that was enqueued by then.
    enqueued: Vec<(usize, i64)>,
    cuts: Vec<usize>,
    /// How many tries each row has used.
    tried: BTreeMap<i64, usize>,
}

/// An attempt, by the places of its notes.
struct Attempt {
    row: i64,
    process: u32,
    number: u64,
    began: usize,
    /// Where it ended, or its session may have ended.
    ended: usize,
    how: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Succeeded,
    Failed,
    /// Its process was killed, or its session cut. Its row may be as before.
    Lost,
}

impl History {
    fn of(queue: &'static str, mode: Mode, notes: &[Note], tried: BTreeMap<i64, usize>) -> Self {
        let (mut attempts, mut enqueued, mut cuts): (Vec<Attempt>, _, _) = (Vec::new(), Vec::new(), Vec::new());
        // The process that is being killed, and where that is noted.
        let mut killed: BTreeMap<u32, usize> = BTreeMap::new();
        let end = |of: &mut dyn FnMut(&Attempt) -> bool, attempts: &mut Vec<Attempt>, at, how| {
            for attempt in attempts.iter_mut().filter(|it| it.how == End::Open && of(it)) {
                (attempt.ended, attempt.how) = (at, how);
            }
        };
        for (at, note) in notes.iter().enumerate() {
            match note {
                Note::Began { process, attempt, queue: of, row } if of == queue => {
                    // A process lives on for a moment after the note that it is killed, and may begin an attempt that
                    // has no end.
                    let is_lost = killed.contains_key(process);
                    let (ended, how) = if is_lost { (at + 1, End::Lost) } else { (usize::MAX, End::Open) };
                    attempts.push(Attempt { row: *row, process: *process, number: *attempt, began: at, ended, how });
                }
                Note::Ended { process, attempt, failed } => {
                    let how = if *failed { End::Failed } else { End::Succeeded };
                    for it in attempts.iter_mut().filter(|it| it.process == *process && it.number == *attempt) {
                        if it.how == End::Open || killed.get(process).is_some_and(|killed| *killed < it.began) {
                            (it.ended, it.how) = (at, how);
                        }
                    }
                }
                Note::Enqueued { queue: of, last } if of == queue => {
                    // By now it is gone, and another process may get its number.
                    killed.clear();
                    enqueued.push((at, *last));
                }
                Note::Killing { process } => {
                    killed.insert(*process, at);
                    end(&mut |it| it.process == *process, &mut attempts, at, End::Lost);
                }
                Note::Cutting => {
                    cuts.push(at);
                    // A lease outlives its session, and with it the place.
                    if mode != Mode::Lease {
                        end(&mut |_| true, &mut attempts, at, End::Lost);
                    }
                }
                Note::Began { .. } | Note::Enqueued { .. } => {}
            }
        }
        History { queue, mode, attempts, enqueued, cuts, tried }
    }

    /// The attempts of a company, in their order.
    fn of_company(&self, company: i64) -> Vec<&Attempt> {
        self.attempts.iter().filter(|attempt| attempt.row % COMPANIES == company).collect()
    }

    fn too_many(&self, most: usize) -> Vec<String> {
        let mut broken = Vec::new();
        for company in 0..COMPANIES {
            let attempts = self.of_company(company);
            for one in &attempts {
                let together = attempts.iter().filter(|it| it.began <= one.began && one.began < it.ended);
                let rows: Vec<_> = together.map(|it| it.row).collect();
                if rows.len() > most {
                    broken.push(format!("{} {rows:?}", self.queue));
                }
            }
        }
        broken
    }

    /// The rows that began while one that had been due longer waited for its first attempt.
    fn overtaken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for company in 0..COMPANIES {
            let attempts = self.of_company(company);
            let mut begun = BTreeSet::new();
            for (at, attempt) in attempts.iter().enumerate() {
                // What was enqueued before the attempt before it ended could be seen by its claim.
                let claimed_after = attempts[..at].iter().rev().find(|it| it.row != attempt.row).map(|it| it.ended);
                let seen = self.enqueued.iter().rev().find(|(at, _)| Some(*at) < claimed_after).map_or(0, |it| it.1);
                let first = (1..attempt.row.min(seen + 1)).filter(|row| row % COMPANIES == company);
                for row in first.filter(|row| !begun.contains(row)) {
                    if !self.may_be_overtaken(row, &attempts, attempt.began) {
                        broken.push(format!("{} {} overtook {row}", self.queue, attempt.row));
                    }
                }
                begun.insert(attempt.row);
            }
        }
        broken
    }

    /// Whether a row that waits for its first attempt has been claimed before, by a worker that was lost before its
    /// handler began. Only the first row of a company can have been.
    fn may_be_overtaken(&self, row: i64, attempts: &[&Attempt], before: usize) -> bool {
        if self.mode == Mode::Lease {
            // Its lease had to end, after which it is due later than the others. That has used a try, which no handler
            // has noted.
            return self
                .tried
                .get(&row)
                .is_some_and(|tries| *tries > attempts.iter().filter(|it| it.row == row).count());
        }
        // The worker whose session was cut puts the row off for a moment, because an interruption may be the row's fault.
        // Nobody writes on a row whose worker was killed, so that excuses nothing.
        let first_at = |cut: usize| {
            let mut rows = (1..row).filter(|other| other % COMPANIES == row % COMPANIES);
            rows.all(|other| attempts.iter().any(|it| it.row == other && it.began < cut))
        };
        self.cuts.iter().any(|&cut| cut < before && first_at(cut))
    }

    /// The rows that began in a strict lane between the failure of another one and its end.
    fn passed(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for company in 0..COMPANIES {
            let attempts = self.of_company(company);
            for (at, pair) in attempts.windows(2).enumerate() {
                let [unfinished, next] = pair else { continue };
                let is_last = attempts[at + 1..].iter().all(|it| it.row != unfinished.row);
                // An attempt that was cut off is no failure: the row may have been put off for a moment.
                let was_cut = unfinished.how == End::Lost && self.cuts.contains(&unfinished.ended);
                // A success that was cut off before its commit is none: its row is worked again.
                let was_undone = unfinished.how == End::Succeeded
                    && self.mode != Mode::Lease
                    && self.cuts.iter().any(|cut| (unfinished.ended..next.began).contains(cut));
                if !is_last && next.row != unfinished.row && !was_cut && !was_undone {
                    broken.push(format!("{} {} passed {}", self.queue, next.row, unfinished.row));
                }
            }
        }
        broken
    }
}
