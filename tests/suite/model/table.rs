//! The same on a real table, with real workers.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::deserialize::FromSqlRow;
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::{Failure, HandlerResult, Lease, Message, Migrations, Outcome, Poller, QueueState, Queueable, Stage};

use super::rows::{Answer, Deed, Due, Kind, Plan, Row, Run, Said};
use crate::db::{AUTO_KEY, BIGINT, Conn, Database};

diesel::table! {
    tasks (id) {
        id -> BigInt,
        answer -> BigInt,
        deed -> Nullable<BigInt>,
        other -> BigInt,
        version -> BigInt,
    }
}

diesel::table! {
    runs (id) {
        id -> BigInt,
        task_id -> BigInt,
        try_number -> Integer,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, AsExpression, FromSqlRow, Stage)]
#[diesel(sql_type = Text)]
pub(super) enum Step {
    First,
    Second,
}

/// Entities on one queue, in each of the modes.
macro_rules! tasks {
    ($($name:ident, $module:ident($($settings:tt)*);)*) => {$(
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = tasks)]
        #[queue(module = $module, retry = fixed("3h"), max_tries = 3, $($settings)*)]
        pub(super) struct $name {
            id: i64,
        }
    )*};
}

tasks! {
    Task, task_queue(timeout = "30s");
    Grouped, grouped_queue(timeout = "30s", group = 8);
    Optimistic, optimistic_queue(timeout = "30s", group(8, optimistic));
    Leased, leased_queue(lease = "60s");
    Staged, staged_queue(timeout = "30s", stage = Step, version = version);
    StagedGrouped, staged_grouped_queue(timeout = "30s", group = 8, stage = Step, version = version);
    StagedOptimistic, staged_optimistic_queue(timeout = "30s", group(8, optimistic), stage = Step, version = version);
    StagedLeased, staged_leased_queue(lease = "60s", stage = Step, version = version);
    Leaving, leaving_queue(timeout = "30s", on_success = delete);
    LeavingGrouped, leaving_grouped_queue(timeout = "30s", group = 8, on_success = delete);
    LeavingOptimistic, leaving_optimistic_queue(timeout = "30s", group(8, optimistic), on_success = delete);
    LeavingLeased, leaving_leased_queue(lease = "60s", on_success = delete);
    Exclusive, exclusive_queue(timeout = "30s", exclusive);
    ExclusiveLeased, exclusive_leased_queue(lease = "60s", exclusive);
}

/// How workers work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Transaction,
    Group,
    Optimistic,
    Lease,
}

/// The modes in which rows of this kind are processed.
pub(super) fn modes(kind: Kind) -> &'static [Mode] {
    match kind {
        // A group would take several rows.
        Kind::Exclusive => &[Mode::Transaction, Mode::Lease],
        _ => &[Mode::Transaction, Mode::Group, Mode::Optimistic, Mode::Lease],
    }
}

/// Further in the future than any test runs.
fn hours() -> TimeDelta {
    TimeDelta::hours(3)
}

/// Answers for a task, logs the run, and applies its deed to another task, in one transaction. `next` is the outcome of
/// a task in its first stage that goes on to the second.
fn work(kind: Kind, id: i64, next: Outcome, message: &mut Message<'_, Conn>) -> HandlerResult {
    let try_number = i32::try_from(message.try_number()).expect("there are few");
    let connection = message.connection();
    // Read from the table, because a neighbour may have enqueued it with another plan.
    let (answer, deed, other): (i64, Option<i64>, i64) =
        tasks::table.find(id).select((tasks::answer, tasks::deed, tasks::other)).get_result(connection)?;
    diesel::insert_into(runs::table)
        .values((runs::task_id.eq(id), runs::try_number.eq(try_number)))
        .execute(connection)?;
    if let Some(deed) = deed.filter(|_| other != id) {
        diesel::update(tasks::table.find(id)).set(tasks::deed.eq(None::<i64>)).execute(connection)?;
        apply(kind, connection, other, Deed::of(deed), Plan { answer: Answer::Done, deed: None })?;
    }
    match Answer::of(answer) {
        Answer::Done => Ok(Outcome::Done),
        Answer::Advance => Ok(next),
        Answer::Again => Ok(Outcome::again_in(Duration::from_secs(9000))),
        Answer::Skip => Ok(Outcome::Skip),
        Answer::Delete => Ok(Outcome::Delete),
        Answer::Retry => Err(Failure::retry("not yet")),
        Answer::Fatal => Err(Failure::fatal("never")),
        Answer::Meddle => {
            let later = Task::due_in(Duration::from_secs(9000));
            diesel::update(tasks::table.find(id)).set(later).execute(connection)?;
            Ok(Outcome::Done)
        }
    }
}

/// The outcome of a task that goes on to the next stage, if it is in its first one.
fn next(message: &Message<'_, Conn>) -> Outcome {
    match message.stage() {
        Step::First => Outcome::next(Step::Second),
        Step::Second => Outcome::Done,
    }
}

/// The same for tasks without stages.
fn done(_: &Message<'_, Conn>) -> Outcome {
    Outcome::Done
}

/// Applies a deed, and returns how many rows it applied to.
fn apply(kind: Kind, connection: &mut Conn, id: i64, deed: Deed, plan: Plan) -> Result<usize, Failure> {
    // The operations depend on the keys of the entity.
    macro_rules! operate {
        ($entity:ident) => {{
            let queue = $entity::queue().filter(tasks::id.eq(id));
            match deed {
                Deed::RetryNow => queue.retry_now(connection)?,
                Deed::Postpone => queue.postpone_until(connection, Utc::now() + hours())?,
                Deed::PostponeIntoThePast => queue.postpone_until(connection, Utc::now() - hours())?,
                Deed::Stop => queue.stop(connection)?,
                Deed::Restart => queue.restart(connection)?,
                Deed::Rerun => queue.rerun(connection)?,
                Deed::Skip => queue.skip(connection)?,
                Deed::Delete => queue.delete(connection)?,
                _ => write(connection, id, deed, plan)?,
            }
        }};
    }
    Ok(match kind {
        Kind::Plain => operate!(Task),
        Kind::Staged => operate!(Staged),
        Kind::Leaving => operate!(Leaving),
        Kind::Exclusive => operate!(Exclusive),
    })
}

/// Applies a deed of the application's own: SQL, or a version. The five columns are the same for every kind of work.
fn write(connection: &mut Conn, id: i64, deed: Deed, plan: Plan) -> Result<usize, Failure> {
    let row = tasks::table.find(id);
    let there: Option<i64> = row.select(tasks::version).get_result(connection).optional()?;
    let planned = (
        tasks::answer.eq(plan.answer.number()),
        tasks::deed.eq(plan.deed.map(|(deed, _)| deed.number())),
        tasks::other.eq(plan.deed.map_or(0, |(_, other)| other)),
    );
    let new = (tasks::id.eq(id), tasks::version.eq(0), planned);
    Ok(match (deed, there) {
        (Deed::Enqueue, None) => {
            diesel::insert_into(tasks::table).values((new, Task::due_now())).execute(connection)?
        }
        (Deed::EnqueueLater, None) => {
            diesel::insert_into(tasks::table).values((new, Task::due_at(Utc::now() + hours()))).execute(connection)?
        }
        (_, None) => 0,
        (Deed::Enqueue, _) => diesel::update(row).set((planned, Task::due_now())).execute(connection)?,
        (Deed::EnqueueLater, _) => {
            diesel::update(row).set((planned, Task::due_at(Utc::now() + hours()))).execute(connection)?
        }
        (Deed::SetNow, _) => {
            diesel::update(row).set(task_queue::next_attempt_time.eq(queueable::columns::Now)).execute(connection)?
        }
        (Deed::SetNever, _) => {
            let never = task_queue::next_attempt_time.eq(None::<queueable::columns::Instant>);
            diesel::update(row).set(never).execute(connection)?;
            // MySQL counts only the rows whose values change.
            1
        }
        (Deed::Newer, Some(version)) => usize::from(Staged::enqueue_if_newer(connection, &id, version + 1)?),
        (Deed::SameVersion, Some(version)) => usize::from(Staged::enqueue_if_newer(connection, &id, version)?),
        (operation, _) => unreachable!("{operation:?} is an operation"),
    })
}

/// The table, and a session on it.
pub(super) struct Table {
    kind: Kind,
    connection: Conn,
    /// The workers' sessions, which go from one run to the next.
    pool: Pool<ConnectionManager<Conn>>,
    _database: Database,
    /// The last run that was read.
    read: i64,
}

impl Table {
    pub(super) fn new(kind: Kind) -> Self {
        let database = Database::new();
        let mut connection = database.connect();
        connection
            .batch_execute(&format!(
                "CREATE TABLE tasks (id {BIGINT} PRIMARY KEY NOT NULL, answer {BIGINT} NOT NULL, deed {BIGINT}, \
                 other {BIGINT} NOT NULL, version {BIGINT} NOT NULL); \
                 CREATE TABLE runs (id {AUTO_KEY} NOT NULL, task_id {BIGINT} NOT NULL, try_number INTEGER NOT NULL)"
            ))
            .unwrap();
        let migrations = match kind {
            Kind::Plain => Migrations::new().entity::<Task>(),
            Kind::Staged => Migrations::new().entity::<Staged>(),
            Kind::Leaving => Migrations::new().entity::<Leaving>(),
            Kind::Exclusive => Migrations::new().entity::<Exclusive>(),
        };
        connection.run_pending_migrations(migrations).unwrap();
        Table { kind, connection, pool: database.pool(3), _database: database, read: 0 }
    }

    pub(super) fn apply(&mut self, id: i64, deed: Deed, plan: Plan) -> usize {
        apply(self.kind, &mut self.connection, id, deed, plan)
            .unwrap_or_else(|failure| panic!("{deed:?} of {id}: {failure:?}"))
    }

    /// Lets one worker process all due rows in this mode. Returns the runs whose effects are committed.
    pub(super) fn run(&mut self, mode: Mode) -> Vec<Run> {
        self.poller(mode).workers(1).run_until_idle().unwrap();
        let new: Vec<(i64, i64, i32)> =
            runs::table.filter(runs::id.gt(self.read)).order(runs::id).load(&mut self.connection).unwrap();
        self.read = new.last().map_or(self.read, |run| run.0);
        new.into_iter().map(|(_, task, try_number)| (task, try_number)).collect()
    }

    fn poller(&self, mode: Mode) -> Poller<Conn> {
        let (kind, pool) = (self.kind, self.pool.clone());
        macro_rules! locked {
            ($entity:ident, $next:ident) => {
                $entity::poller(pool, move |task: &$entity, message: &mut Message<'_, Conn>| {
                    work(kind, task.id, $next(message), message)
                })
            };
        }
        macro_rules! leased {
            ($entity:ident, $next:ident) => {{
                let call = |_: &$entity, _: &Lease| Ok(());
                let apply = move |task: &$entity, _: &(), message: &mut Message<'_, Conn>| {
                    work(kind, task.id, $next(message), message)
                };
                // One row under a lease at a time: a deed to another leased row would take it from its worker.
                $entity::poller(pool, (call, apply)).claim_batch(1)
            }};
        }
        match (kind, mode) {
            (Kind::Plain, Mode::Transaction) => locked!(Task, done),
            (Kind::Plain, Mode::Group) => locked!(Grouped, done),
            (Kind::Plain, Mode::Optimistic) => locked!(Optimistic, done),
            (Kind::Plain, Mode::Lease) => leased!(Leased, done),
            (Kind::Staged, Mode::Transaction) => locked!(Staged, next),
            (Kind::Staged, Mode::Group) => locked!(StagedGrouped, next),
            (Kind::Staged, Mode::Optimistic) => locked!(StagedOptimistic, next),
            (Kind::Staged, Mode::Lease) => leased!(StagedLeased, next),
            (Kind::Leaving, Mode::Transaction) => locked!(Leaving, done),
            (Kind::Leaving, Mode::Group) => locked!(LeavingGrouped, done),
            (Kind::Leaving, Mode::Optimistic) => locked!(LeavingOptimistic, done),
            (Kind::Leaving, Mode::Lease) => leased!(LeavingLeased, done),
            (Kind::Exclusive, Mode::Lease) => leased!(ExclusiveLeased, done),
            (Kind::Exclusive, _) => locked!(Exclusive, done),
        }
    }

    /// Reads all rows.
    pub(super) fn read(&mut self) -> BTreeMap<i64, Row> {
        let found: Vec<(i64, i64, Option<i64>, i64, QueueState)> = tasks::table
            .select((tasks::id, tasks::answer, tasks::deed, tasks::other, Task::queue_state()))
            .load(&mut self.connection)
            .unwrap();
        let advanced: Vec<i64> = match self.kind {
            Kind::Staged => tasks::table
                .filter(staged_queue::stage.eq(Step::Second))
                .select(tasks::id)
                .load(&mut self.connection)
                .unwrap(),
            _ => Vec::new(),
        };
        let row = |id, answer, deed, other, state| Row {
            is_advanced: advanced.contains(&id),
            ..row(answer, deed, other, &state)
        };
        found.into_iter().map(|(id, answer, deed, other, state)| (id, row(id, answer, deed, other, state))).collect()
    }
}

fn row(answer: i64, deed: Option<i64>, other: i64, state: &QueueState) -> Row {
    Row {
        status: state.status,
        due: match state.next_attempt_time {
            None => Due::Never,
            Some(time) if time > Utc::now() + TimeDelta::hours(1) => Due::Later,
            Some(_) => Due::Now,
        },
        tries: state.try_count,
        said: match state.last_attempt_error_message.as_deref() {
            None => Said::Nothing,
            Some("queueable: stopped") => Said::Stopped,
            Some(_) => Said::Failure,
        },
        is_advanced: false,
        plan: Plan { answer: Answer::of(answer), deed: deed.map(|deed| (Deed::of(deed), other)) },
    }
}
