//! Rows that pass through stages: the update that settles a row also advances it and queues it again.

use std::sync::{Arc, Mutex};

use diesel::connection::SimpleConnection;
use diesel::deserialize::FromSqlRow;
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queue_core::internals::backend::{Sql, Statement};
use queue_core::internals::statement::{Claim, Claimable, probe_due};
use queueable::__derive::HasStages;
use queueable::bounds::{GroupMode, LeaseMode, TransactionMode};
use queueable::{
    ClaimStyle, Error, Failure, Group, Handler, HandlerResult, Lease, Message, Migrations, Outcome, Poller, QueueState,
    Queueable, Stage, Status, Tally,
};

use crate::db::{self, BIGINT, Conn, Database, NAME};
use crate::suite::keyed::queue;

type Backend = <Conn as diesel::Connection>::Backend;

diesel::table! {
    invoices (id) { id -> BigInt, }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, AsExpression, FromSqlRow, Stage)]
#[diesel(sql_type = Text)]
pub(crate) enum InvoiceStage {
    Render,
    Send,
    #[stage(name = "b'ook")]
    Book,
}

/// An enum that does not belong to the invoices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
enum OtherStage {
    Paint,
}

macro_rules! invoices {
    ($($name:ident($($key:tt)*);)*) => {$(
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = invoices)]
        #[queue(stage = InvoiceStage, retry = fixed("1h"), max_tries = 3, timeout = "30s", $($key)*)]
        pub(crate) struct $name {
            id: i64,
        }
    )*};
}

invoices! {
    Invoice();
    InvoiceInGroup(group(10));
    InvoiceLeased(lease = "60s");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Transaction,
    Group,
    Lease,
    /// As on a database without SKIP LOCKED.
    LeaseByUpdate,
}

const MODES: [Mode; 4] = [Mode::Transaction, Mode::Group, Mode::Lease, Mode::LeaseByUpdate];

/// The row, its stage, and the number of the try.
type Step = (i64, InvoiceStage, u32);

/// Answers for a step.
type Work = fn(Step) -> HandlerResult;

struct Office {
    database: Database,
    steps: Arc<Mutex<Vec<Step>>>,
}

/// A database with one invoice that is due.
pub(crate) fn one_invoice() -> Database {
    Office::with_invoices([1]).database
}

impl Office {
    fn new() -> Self {
        let database = Database::new();
        let mut connection = database.connect();
        connection.batch_execute(&format!("CREATE TABLE invoices (id {BIGINT} PRIMARY KEY NOT NULL)")).unwrap();
        connection.run_pending_migrations(Migrations::new().entity::<Invoice>()).unwrap();
        Office { database, steps: Arc::default() }
    }

    fn with_invoices(ids: impl IntoIterator<Item = i64>) -> Self {
        let office = Office::new();
        let rows: Vec<_> = ids.into_iter().map(|id| (invoices::id.eq(id), Invoice::due_now())).collect();
        diesel::insert_into(invoices::table).values(rows).execute(&mut office.database.connect()).unwrap();
        office
    }

    fn state(&self, id: i64) -> QueueState {
        invoices::table.find(id).select(Invoice::queue_state()).get_result(&mut self.database.connect()).unwrap()
    }

    fn stage(&self, id: i64) -> InvoiceStage {
        invoices::table.find(id).select(invoice_queue::stage).get_result(&mut self.database.connect()).unwrap()
    }

    fn put(&self, id: i64, stage: &str) {
        let mut connection = self.database.connect();
        diesel::update(invoices::table.find(id)).set(invoice_queue::stage.eq(stage)).execute(&mut connection).unwrap();
    }

    fn run(&self, mode: Mode, work: Work) -> Tally {
        self.serve(mode, None, work).workers(1).run_until_idle().unwrap()
    }

    fn run_some(&self, mode: Mode, stages: &[InvoiceStage], work: Work) -> Tally {
        self.serve(mode, Some(stages), work).workers(1).run_until_idle().unwrap()
    }

    fn serve(&self, mode: Mode, stages: Option<&[InvoiceStage]>, work: Work) -> Poller<Conn> {
        let steps = self.steps.clone();
        let note = move |step: Step| {
            steps.lock().unwrap().push(step);
            work(step)
        };
        let poller = Poller::new(self.database.pool(3));
        match mode {
            Mode::Transaction => {
                let handler = move |row: &Invoice, message: &mut Message<'_, Conn>| {
                    note((row.id, message.stage(), message.try_number()))
                };
                match stages {
                    Some(stages) => poller.serve_stages::<Invoice>(stages, handler),
                    None => poller.serve::<Invoice>(handler),
                }
            }
            Mode::Group => {
                let handler = move |row: &InvoiceInGroup, message: &mut Message<'_, Conn>| {
                    note((row.id, message.stage(), message.try_number()))
                };
                match stages {
                    Some(stages) => poller.serve_stages::<InvoiceInGroup>(stages, handler),
                    None => poller.serve::<InvoiceInGroup>(handler),
                }
            }
            Mode::Lease | Mode::LeaseByUpdate => {
                let call = |_: &InvoiceLeased, lease: &Lease| Ok(lease.stage::<InvoiceStage>());
                let apply = move |row: &InvoiceLeased, stage: &InvoiceStage, message: &mut Message<'_, Conn>| {
                    assert_eq!(message.stage::<InvoiceStage>(), *stage);
                    note((row.id, *stage, message.try_number()))
                };
                let style = if mode == Mode::Lease { ClaimStyle::Auto } else { ClaimStyle::UpdateThenSelect };
                match stages {
                    Some(stages) => poller.serve_stages::<InvoiceLeased>(stages, (call, apply)),
                    None => poller.serve::<InvoiceLeased>((call, apply)),
                }
                .claim_style(style)
            }
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = std::mem::take(&mut *self.steps.lock().unwrap());
        steps.sort();
        steps
    }
}

/// Passes a row through all its stages.
fn pass((_, stage, _): Step) -> HandlerResult {
    Ok(match stage {
        InvoiceStage::Render => Outcome::next(InvoiceStage::Send),
        InvoiceStage::Send => Outcome::next(InvoiceStage::Book),
        InvoiceStage::Book => Outcome::Done,
    })
}

#[test]
fn a_row_passes_its_stages_one_after_the_other() {
    for mode in MODES {
        let office = Office::with_invoices(1..=6);
        assert_eq!(office.stage(1), InvoiceStage::Render, "the first is where a row begins");
        let tally = office.run(mode, pass);
        assert_eq!((tally.advanced, tally.succeeded, tally.again), (12, 6, 0), "{mode:?}");
        let expected: Vec<_> =
            (1..=6).flat_map(|id| InvoiceStage::ALL.iter().map(move |stage| (id, *stage, 1))).collect();
        assert_eq!(office.steps(), expected, "{mode:?}");
        let state = office.state(6);
        assert_eq!(
            (office.stage(6), state.status, state.next_attempt_time),
            (InvoiceStage::Book, Status::Success, None)
        );
    }
}

#[test]
fn the_next_stage_begins_with_no_try_and_no_failure() {
    for mode in MODES {
        let office = Office::with_invoices(1..=3);
        let fails_at_first = |(_, stage, try_number): Step| match (stage, try_number) {
            (InvoiceStage::Render, 1) => Err(Failure::retry_after(std::time::Duration::ZERO, "no toner")),
            (InvoiceStage::Render, _) => Ok(Outcome::next(InvoiceStage::Send)),
            _ => Ok(Outcome::again_in(std::time::Duration::from_secs(3600))),
        };
        let tally = office.run(mode, fails_at_first);
        assert_eq!((tally.retried, tally.advanced, tally.again), (3, 3, 3), "{mode:?}");
        let steps: Vec<_> = office.steps().into_iter().filter(|step| step.0 == 1).collect();
        assert_eq!(steps, [(1, InvoiceStage::Render, 1), (1, InvoiceStage::Render, 2), (1, InvoiceStage::Send, 1)]);
        let state = office.state(1);
        assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0));
        assert_eq!(state.last_attempt_error_message, None, "{mode:?}");
    }
}

#[test]
fn different_ends_in_one_group_are_each_rows_own() {
    for mode in MODES {
        let office = Office::with_invoices(1..=8);
        let tally = office.run(mode, |(id, stage, _)| match (id % 4, stage) {
            (0, InvoiceStage::Render) => Ok(Outcome::next(InvoiceStage::Book)),
            (1, InvoiceStage::Render) => Err(Failure::fatal("torn")),
            (2, InvoiceStage::Render) => Ok(Outcome::Skip),
            _ => Ok(Outcome::Done),
        });
        assert_eq!((tally.advanced, tally.succeeded, tally.failed, tally.skipped), (2, 4, 2, 2), "{mode:?}");
        assert_eq!((office.stage(4), office.state(4).status), (InvoiceStage::Book, Status::Success));
        assert_eq!((office.stage(3), office.state(3).status), (InvoiceStage::Render, Status::Success));
        assert_eq!((office.stage(5), office.state(5).status), (InvoiceStage::Render, Status::Failed));
    }
}

#[test]
fn a_poller_may_serve_some_stages_and_leaves_the_others() {
    for mode in MODES {
        let office = Office::with_invoices(1..=4);
        let tally = office.run_some(mode, &[InvoiceStage::Render], pass);
        assert_eq!((tally.advanced, tally.succeeded), (4, 0), "{mode:?}");
        assert_eq!(office.steps(), [1, 2, 3, 4].map(|id| (id, InvoiceStage::Render, 1)));
        // They are due in stages that this poller does not serve, so it is idle.
        let tally = office.run_some(mode, &[InvoiceStage::Render], pass);
        assert_eq!(tally, Tally::default(), "{mode:?}");
        let tally = office.run_some(mode, &[InvoiceStage::Book, InvoiceStage::Send], pass);
        assert_eq!((tally.advanced, tally.succeeded), (4, 4), "{mode:?}");
    }
}

/// Returns how the server would run a statement.
pub(crate) fn plan_of(connection: &mut Conn, statement: &impl Statement<Backend>) -> String {
    db::plan(connection, &with_binds(statement))
}

/// Returns the text of a statement, with its binds as literals.
pub(crate) fn with_binds(statement: &impl Statement<Backend>) -> String {
    let sql = diesel::debug_query::<Backend, _>(&Sql::new(statement)).to_string();
    let (mut sql, binds) = sql.split_once(" -- binds: ").map(|(sql, binds)| (sql.to_owned(), binds)).unwrap();
    for (number, bind) in (1..).zip(binds.trim_matches(['[', ']']).split(", ")) {
        let literal = bind.replace('"', "'");
        sql =
            sql.replacen(if NAME == "postgres" { format!("${number}") } else { "?".to_owned() }.as_str(), &literal, 1);
    }
    sql
}

#[test]
fn a_poller_of_one_stage_passes_over_no_row_of_the_others() {
    let office = Office::with_invoices(1..=3_000);
    let mut connection = office.database.connect();
    let analyze = db::ANALYZE.replace("payments", "invoices");
    connection.batch_execute(&format!("UPDATE invoices SET stage = 'SEND' WHERE id > 2995; {analyze}")).unwrap();
    let stages: Option<&[&'static str]> = Some(&["SEND"]);
    let claim = || Claim::<Backend>::new::<Invoice>().in_stages(stages);
    for (name, plan) in [
        ("claim", plan_of(&mut connection, &claim())),
        ("claim of many", plan_of(&mut connection, &claim().some(50, Vec::new()))),
        ("glance", plan_of(&mut connection, &claim().some(50, Vec::new()).locked(false))),
        ("look", plan_of(&mut connection, &probe_due(Claimable::new(queue::<Invoice>(), stages)))),
    ] {
        assert!(plan.contains("queueable_stage_invoices_"), "{name}:\n{plan}");
        let passes = ["Sort", "filesort", "temporary", "TEMP B-TREE", "Seq Scan", "type ALL"];
        assert!(!passes.iter().any(|no| plan.contains(no)), "{name}:\n{plan}");
    }
}

#[test]
fn a_poller_of_some_stages_works_all_of_their_rows_beside_many_of_another() {
    for mode in MODES {
        let office = Office::with_invoices(1..=300);
        for id in 1..=30 {
            office.put(id, if id % 3 == 0 { "SEND" } else { "b'ook" });
        }
        let served = [InvoiceStage::Send, InvoiceStage::Book];
        let tally = office.run_some(mode, &served, |_| Ok(Outcome::Done));
        assert_eq!((tally.succeeded, tally.interrupted), (30, 0), "{mode:?}: {tally:?}");
        assert!(office.steps().iter().all(|(id, ..)| *id <= 30), "{mode:?}");
    }
}

#[test]
fn a_stage_that_the_entity_does_not_have_is_its_rows_failure_and_undoes_the_work() {
    for mode in MODES {
        let office = Office::with_invoices(1..=3);
        let tally =
            office.run(mode, |(id, ..)| Ok(if id == 2 { Outcome::next(OtherStage::Paint) } else { Outcome::Done }));
        assert_eq!((tally.retried, tally.succeeded), (1, 2), "{mode:?}");
        let state = office.state(2);
        assert_eq!((state.status, office.stage(2)), (Status::Error, InvoiceStage::Render));
        assert_eq!(
            state.last_attempt_error_message.as_deref(),
            Some("the handler named the next stage `PAINT`, but the entity has the stages RENDER, SEND, b'ook")
        );
    }
}

#[test]
fn a_handler_that_asks_for_a_stage_of_another_enum_fails() {
    let office = Office::with_invoices([1]);
    let handler = |_: &Invoice, message: &mut Message<'_, Conn>| match message.stage() {
        OtherStage::Paint => Ok(Outcome::Done),
    };
    assert_eq!(Invoice::poller(office.database.pool(3), handler).workers(1).run_until_idle().unwrap().retried, 1);
    let text = office.state(1).last_attempt_error_message.unwrap();
    assert_eq!(text, "the handler panicked: the row's stage `RENDER` is none of [\"PAINT\"]");
}

/// Handles whole groups.
struct AtOnce;

impl Handler<InvoiceInGroup, Conn> for AtOnce {
    fn handle(&self, _: &InvoiceInGroup, message: &mut Message<'_, Conn>) -> HandlerResult {
        pass((0, message.stage(), 1))
    }

    fn handle_group(&self, rows: &[InvoiceInGroup], group: &mut Group<'_, Conn>) -> Option<Vec<HandlerResult>> {
        Some((0..rows.len()).map(|row| pass((0, group.stage(row), 1))).collect())
    }
}

#[test]
fn a_handler_of_groups_sees_the_stage_of_each_row() {
    let office = Office::with_invoices(1..=10);
    (1..=5).for_each(|id| office.put(id, "b'ook"));
    let tally = InvoiceInGroup::poller(office.database.pool(3), AtOnce).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.advanced, tally.succeeded), (10, 10));
}

#[test]
fn a_row_in_an_unknown_stage_is_never_claimed_and_refused_at_start_with_the_mend() {
    for mode in MODES {
        let office = Office::with_invoices(1..=7);
        office.put(2, "PRI'NT");
        // Upper and lower case count, and so do blanks.
        office.put(3, "render");
        office.put(4, "SEND ");
        office.put(5, "SEND");
        office.put(6, "archived");
        office.put(7, "render");
        // The rows are not pending, so they do no harm.
        let stopped = invoice_queue::next_attempt_time.eq(None::<queueable::columns::Instant>);
        diesel::update(invoices::table.filter(invoices::id.ge(6)))
            .set(stopped)
            .execute(&mut office.database.connect())
            .unwrap();
        let findings = match office.serve(mode, None, pass).workers(1).start() {
            Err(Error::Unsafe(findings)) => findings,
            other => panic!("{mode:?}: {other:?}"),
        };
        let problems: Vec<_> = findings.iter().map(|finding| finding.problem.as_str()).collect();
        assert_eq!(problems.len(), 3, "{problems:?}");
        let print = findings.iter().find(|finding| finding.problem.contains("`PRI'NT`")).unwrap();
        assert!(print.problem.contains("RENDER, SEND, b'ook"), "{}", print.problem);
        assert!(findings.iter().any(|finding| finding.problem.contains("`render`")), "{problems:?}");
        for finding in &findings {
            office.database.connect().batch_execute(&finding.mend).unwrap();
        }
        let tally = office.run(mode, pass);
        // The mends have left alone the row that was in a stage of the entity's, and those that are not pending.
        assert_eq!((tally.advanced, tally.succeeded), (9, 5), "{mode:?}");
        let stage = invoices::table.find(7).select(invoice_queue::stage);
        assert_eq!(stage.get_result::<String>(&mut office.database.connect()).unwrap(), "render", "{mode:?}");
    }
}

#[test]
fn a_default_that_is_not_the_first_stage_is_refused_at_start_with_the_mend() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(&format!("CREATE TABLE invoices (id {BIGINT} PRIMARY KEY NOT NULL)")).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<BookedFirst>()).unwrap();
    let office = Office { database, steps: Arc::default() };
    let run = || office.serve(Mode::Transaction, None, pass).workers(1).run_until_idle();
    let Err(Error::Unsafe(findings)) = run() else { panic!("it started") };
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].problem, "the column stage has the default `b'ook`, which is not the first stage");
    for statement in findings[0].mend.split("; ") {
        connection.batch_execute(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let row = (invoices::id.eq(1), Invoice::due_now());
    diesel::insert_into(invoices::table).values(row).execute(&mut connection).unwrap();
    assert_eq!(run().unwrap().succeeded, 1);
    assert_eq!(office.steps().len(), 3, "from the first stage on");
}

/// The invoices with an earlier version of their stages.
#[derive(Debug, Clone, Queryable, Selectable, Queueable)]
#[diesel(table_name = invoices)]
#[queue(module = booked_first_queue, stage = EarlierStage)]
struct BookedFirst {
    #[expect(dead_code, reason = "only its migration is of interest")]
    id: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
enum EarlierStage {
    #[stage(name = "b'ook")]
    Book,
}

#[test]
fn a_row_that_gets_an_unknown_stage_while_a_poller_runs_is_left_alone() {
    for mode in MODES {
        let office = Office::with_invoices(1..=2);
        // The first row's handler gives the second one an unknown stage.
        match mode {
            Mode::Transaction => {
                let handler = move |row: &Invoice, message: &mut Message<'_, Conn>| {
                    astray(row.id, message)?;
                    Ok(Outcome::Done)
                };
                let poller = Invoice::poller(office.database.pool(3), handler);
                assert_eq!(poller.workers(1).run_until_idle().unwrap().succeeded, 1);
            }
            Mode::Group => {
                let handler = move |row: &InvoiceInGroup, message: &mut Message<'_, Conn>| {
                    astray(row.id, message)?;
                    Ok(Outcome::Done)
                };
                let poller = InvoiceInGroup::poller(office.database.pool(3), handler);
                assert_eq!(poller.workers(1).run_until_idle().unwrap().succeeded, 1);
            }
            Mode::Lease | Mode::LeaseByUpdate => {
                let call = |_: &InvoiceLeased, _: &Lease| Ok(());
                let apply = move |row: &InvoiceLeased, (): &(), message: &mut Message<'_, Conn>| {
                    astray(row.id, message)?;
                    Ok(Outcome::Done)
                };
                let style = if mode == Mode::Lease { ClaimStyle::Auto } else { ClaimStyle::UpdateThenSelect };
                let poller = InvoiceLeased::poller(office.database.pool(3), (call, apply)).claim_style(style);
                assert_eq!(poller.workers(1).run_until_idle().unwrap().succeeded, 1);
            }
        }
        let state = office.state(2);
        assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0), "{mode:?}");
        assert!(state.next_attempt_time.is_some());
    }
}

/// Gives the other row an unknown stage.
fn astray(id: i64, message: &mut Message<'_, Conn>) -> QueryResult<()> {
    assert_eq!(id, 1, "the other row was claimed");
    diesel::update(invoices::table.find(2)).set(invoice_queue::stage.eq("astray")).execute(message.connection())?;
    Ok(())
}

#[test]
fn a_poller_that_serves_no_stage_is_refused() {
    let office = Office::new();
    let error = office.serve(Mode::Transaction, Some(&[]), pass).start().unwrap_err();
    assert!(error.to_string().contains("at least one stage"), "{error}");
}

#[test]
fn the_modes_are_what_they_are_said_to_be() {
    fn mode_of<Q: Queueable<Mode = M>, M>()
    where
        Q::Queue: HasStages<InvoiceStage>,
    {
    }
    mode_of::<Invoice, TransactionMode>();
    mode_of::<InvoiceInGroup, GroupMode>();
    mode_of::<InvoiceLeased, LeaseMode>();
}
