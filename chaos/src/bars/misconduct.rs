//! Bar 9: handlers that break the rules. A row is never `SUCCESS` without its effects, and if effects remain that the
//! library cannot undo, the row's error text says so.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bank::{NewPayment, OLD_PAYMENTS};
use crate::bar::{Bar, Needs};
use crate::checker::{Expected, Invariant};
use crate::options::{Backend, Mode, Terms};
use crate::run::Run;
use crate::session::Dialect::{self, Mysql, Postgres, Sqlite};

pub(super) const BAR: Bar = Bar {
    number: 9,
    title: "misconduct of handlers",
    backends: Backend::SINGLE,
    modes: Mode::ALL,
    server: Needs::Shared,
    measures: false,
    smoke_seconds: 4,
    run,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// How many well-behaved payments there are for each misbehaving one.
const NEIGHBOURS: usize = 10;

/// The outcome of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fate {
    status: &'static str,
    /// A part of its error text.
    text: &'static str,
    /// How many times it is in the ledger.
    booked: Booked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Booked {
    Never,
    Once,
    /// The handler committed its booking itself. By that it gave the row's lock away, so another worker may have run the row
    /// and booked it again before the failure was recorded.
    AtLeastOnce,
    /// Once if the row succeeded, never if it failed.
    AsItsStatusSays,
    /// At least once if the error text says that the handler committed. If it says that PostgreSQL refused to commit the
    /// group, as often as other attempts committed alone meanwhile, which the text says too.
    UnlessRefused,
}

/// The handler did no harm: its effects are there once.
const GOOD: Fate = Fate { status: "SUCCESS", text: "", booked: Booked::Once };
const SWALLOWED: Fate = undone("the handler ignored the error of one of its statements");
const ENDED: Fate = undone("the handler ended the message's transaction");
const FAILED_AND_ENDED: Fate = undone("committed itself is not undone");
const REFUSED: &str = "the handler tried to commit a transaction that it shares, which was refused; what another attempt has \
                       committed meanwhile is not undone";
const CHANGED: Fate = undone("the handler removed the row or changed its queue columns");

/// The row failed and left nothing behind.
const fn undone(text: &'static str) -> Fate {
    Fate { status: "FAILED", text, booked: Booked::Never }
}

/// The row failed; what its handler committed is still there, and the error text says so.
const fn left(fate: Fate) -> Fate {
    Fate { booked: Booked::AtLeastOnce, ..fate }
}

/// Its message was alone and what the handler committed is still there, or it was in a group and could not commit.
const fn left_or_refused(fate: Fate) -> Fate {
    Fate { booked: Booked::UnlessRefused, ..fate }
}

/// The outcome of each kind.
fn fates(dialect: Dialect, mode: Mode) -> Vec<(&'static str, Fate)> {
    let committed = if dialect == Postgres && mode == Mode::Group { left_or_refused } else { left };
    let mut fates = vec![
        // Only PostgreSQL aborts the transaction with the statement. Elsewhere only the statement has no effect.
        ("swallows", if dialect == Postgres { SWALLOWED } else { GOOD }),
        // The message is refused, or its savepoint is released with the one around it. Both are consistent.
        ("leaves open", Fate { status: "", text: "", booked: Booked::AsItsStatusSays }),
        ("commits", committed(ENDED)),
        ("commits and fails", committed(FAILED_AND_ENDED)),
        ("rolls back", ENDED),
        ("rolls back and fails", FAILED_AND_ENDED),
        ("begins anew", ENDED),
        // On MySQL and MariaDB, DDL commits.
        ("creates a table", if dialect == Mysql { left(FAILED_AND_ENDED) } else { GOOD }),
        ("deletes itself", CHANGED),
        ("edits its status", CHANGED),
        ("edits its tries", CHANGED),
        // Under a lease the fence does not contain the due time, which the heartbeat moves.
        ("edits its due time", if mode == Mode::Lease { GOOD } else { CHANGED }),
        // The library cannot undo another connection's commit. On SQLite the other connection cannot write.
        (
            "writes elsewhere",
            if dialect == Sqlite { undone("locked") } else { left(undone("after it wrote elsewhere")) },
        ),
    ];
    if dialect == Mysql {
        // On PostgreSQL a deadlock aborts the transaction like any error, and SQLite has no deadlocks.
        fates.push(("swallows a deadlock", ENDED));
    }
    fates
}

fn run(run: &mut Run) -> Result<()> {
    let fates = fates(run.dialect(), run.recipe().options.mode);
    let each = run.times(3, 100);
    // One kind at a time: if another handler of the group ended their transaction, it would also commit what this one
    // wrote on its own row, and the outcome would have no single cause.
    let (own_row, others): (Vec<_>, Vec<_>) = fates.iter().partition(|(_, fate)| *fate == CHANGED);
    for kinds in [own_row, others] {
        let mut new = Vec::new();
        for number in 0..i64::try_from(each)? {
            for (kind, _) in &kinds {
                new.push(NewPayment::plain(number).kind(*kind));
                new.extend((0..NEIGHBOURS).map(|_| NewPayment::plain(run.random.i64(0..1000))));
            }
        }
        run.random.shuffle(&mut new);
        run.enqueue(&new)?;
        // One try, so that the outcome stays visible.
        run.drain(&run.recipe().terms(Terms::Once), PATIENCE * u32::try_from(1 + each / 10)?)?;
    }
    let mut wrong = Vec::new();
    let mut found: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
    for (kind, fate) in fates.iter().copied().chain([("plain", GOOD)]) {
        for row in rows(run, kind)? {
            let counted = found.entry(kind.to_owned()).or_default();
            *counted.entry(format!("{}, {} in the ledger", row.status, row.booked)).or_default() += 1;
            if !row.is(fate) {
                wrong.push(format!("{kind}: {row:?} instead of {fate:?}"));
            }
        }
    }
    run.number("rows_of_each_kind", each);
    run.number("fates", serde_json::to_value(&found)?);
    run.add(Invariant::of("misconduct is found out, and what cannot be undone is reported", wrong));
    repair(run)?;
    run.check(|expected| Expected { also_fail: "p.kind <> 'plain'", ..expected })
}

/// The outcome of a row, as the database has it.
#[derive(Debug)]
struct Row {
    #[expect(dead_code, reason = "it is printed")]
    id: i64,
    booked: i64,
    tries: i32,
    status: String,
    text: String,
}

impl Row {
    fn is(&self, fate: Fate) -> bool {
        let booked = match fate.booked {
            Booked::Never => self.booked == 0,
            Booked::Once => self.booked == 1,
            Booked::AtLeastOnce => self.booked >= 1,
            Booked::AsItsStatusSays => match self.status.as_str() {
                "SUCCESS" => self.booked == 1,
                status => status == "FAILED" && self.booked == 0,
            },
            Booked::UnlessRefused if self.text == REFUSED => {
                // Another worker may have run it alone before the failure was recorded.
                return self.tries == 1 && self.status == fate.status;
            }
            Booked::UnlessRefused => self.booked >= 1,
        };
        self.tries == 1
            && (fate.status.is_empty() || self.status == fate.status)
            && self.text.contains(fate.text)
            && booked
    }
}

fn rows(run: &Run, kind: &str) -> Result<Vec<Row>> {
    let mut session = run.session()?;
    let columns = [
        "p.id",
        "(SELECT COUNT(*) FROM ledger WHERE ledger.payment_id = p.id)",
        "p.try_count",
        "p.status",
        "p.last_attempt_error_message",
    ];
    let columns = columns.map(|column| format!("COALESCE({}, '')", session.dialect().text(column)));
    let line = match session.dialect() {
        Mysql => format!("CONCAT_WS('|', {})", columns.join(", ")),
        Postgres | Sqlite => columns.join(" || '|' || "),
    };
    let lines = session
        .lines(&format!("SELECT {line} AS line FROM payments AS p WHERE kind = '{kind}' AND id > {OLD_PAYMENTS}"))?;
    lines.iter().map(|line| parse(line).with_context(|| line.clone())).collect()
}

fn parse(line: &str) -> Option<Row> {
    let mut words = line.splitn(5, '|');
    let (id, booked, tries) = (words.next()?, words.next()?, words.next()?);
    let (status, text) = (words.next()?.to_owned(), words.next()?.to_owned());
    Some(Row { id: id.parse().ok()?, booked: booked.parse().ok()?, tries: tries.parse().ok()?, status, text })
}

/// Undoes, as an operator would who reads the error texts, what was committed without its row. The invariants hold
/// afterwards only if the texts reported every such effect.
fn repair(run: &Run) -> Result<()> {
    let mut session = run.session()?;
    let reported =
        "SELECT id FROM payments WHERE status = 'FAILED' AND (last_attempt_error_message LIKE '%is not undone%'
        OR last_attempt_error_message LIKE '%wrote elsewhere%')";
    session.run(&format!(
        "UPDATE companies SET balance_cents = balance_cents - (SELECT COALESCE(SUM(ledger.amount_cents), 0)
            FROM ledger JOIN payments ON payments.id = ledger.payment_id
            WHERE payments.company_id = companies.id AND payments.id IN ({reported}));
         DELETE FROM ledger WHERE payment_id IN ({reported})"
    ))?;
    Ok(())
}
