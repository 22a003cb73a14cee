//! The same on a real table, with real workers.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Failure, HandlerResult, Lease, Message, Migrations, Outcome, QueueState, Queueable};

use super::rows::{Answer, Deed, Due, Plan, Row, Run, Said};
use crate::db::{AUTO_KEY, BIGINT, Conn, Database};

diesel::table! {
    tasks (id) {
        id -> BigInt,
        answer -> BigInt,
        deed -> Nullable<BigInt>,
        other -> BigInt,
    }
}

diesel::table! {
    runs (id) {
        id -> BigInt,
        task_id -> BigInt,
        try_number -> Integer,
    }
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
    Grouped, grouped_task_queue(timeout = "30s", group = 8);
    Optimistic, optimistic_task_queue(timeout = "30s", group(8, optimistic));
    Leased, leased_task_queue(lease = "60s");
}

/// How workers work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Transaction,
    Group,
    Optimistic,
    Lease,
}

pub(super) const MODES: [Mode; 4] = [Mode::Transaction, Mode::Group, Mode::Optimistic, Mode::Lease];

/// Further in the future than any test runs.
fn hours() -> TimeDelta {
    TimeDelta::hours(3)
}

/// Answers for a task, logs the run, and applies its deed to another task, in one transaction.
fn work(id: i64, message: &mut Message<'_, Conn>) -> HandlerResult {
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
        apply(connection, other, Deed::of(deed), Plan { answer: Answer::Done, deed: None })?;
    }
    match Answer::of(answer) {
        Answer::Done => Ok(Outcome::Done),
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

/// Applies a deed, and returns how many rows it applied to.
fn apply(connection: &mut Conn, id: i64, deed: Deed, plan: Plan) -> Result<usize, Failure> {
    let row = tasks::table.find(id);
    let queue = Task::queue().filter(tasks::id.eq(id));
    let planned = (
        tasks::answer.eq(plan.answer.number()),
        tasks::deed.eq(plan.deed.map(|(deed, _)| deed.number())),
        tasks::other.eq(plan.deed.map_or(0, |(_, other)| other)),
    );
    let changed = match deed {
        Deed::Enqueue | Deed::EnqueueLater => {
            let there: i64 = row.count().get_result(connection)?;
            match (there, deed) {
                (0, Deed::Enqueue) => diesel::insert_into(tasks::table)
                    .values((tasks::id.eq(id), planned, Task::due_now()))
                    .execute(connection)?,
                (0, _) => diesel::insert_into(tasks::table)
                    .values((tasks::id.eq(id), planned, Task::due_at(Utc::now() + hours())))
                    .execute(connection)?,
                (_, Deed::Enqueue) => diesel::update(row).set((planned, Task::due_now())).execute(connection)?,
                _ => diesel::update(row).set((planned, Task::due_at(Utc::now() + hours()))).execute(connection)?,
            }
        }
        Deed::SetNow => {
            diesel::update(row).set(task_queue::next_attempt_time.eq(queueable::Now)).execute(connection)?
        }
        Deed::SetNever => {
            let there: i64 = row.count().get_result(connection)?;
            let never = task_queue::next_attempt_time.eq(None::<queueable::Instant>);
            diesel::update(row).set(never).execute(connection)?;
            // MySQL counts only the rows whose values change.
            usize::from(there == 1)
        }
        Deed::RetryNow => queue.retry_now(connection)?,
        Deed::Postpone => queue.postpone_until(connection, Utc::now() + hours())?,
        Deed::PostponeIntoThePast => queue.postpone_until(connection, Utc::now() - hours())?,
        Deed::Stop => queue.stop(connection)?,
        Deed::Resume => queue.resume(connection)?,
        Deed::Rerun => queue.rerun(connection)?,
        Deed::Skip => queue.skip(connection)?,
        Deed::Delete => queue.delete(connection)?,
    };
    Ok(changed)
}

/// The table, and a session on it.
pub(super) struct Table {
    database: Database,
    connection: Conn,
    /// The last run that was read.
    read: i64,
}

impl Table {
    pub(super) fn new() -> Self {
        let database = Database::new();
        let mut connection = database.connect();
        connection
            .batch_execute(&format!(
                "CREATE TABLE tasks (id {BIGINT} PRIMARY KEY NOT NULL, answer {BIGINT} NOT NULL, deed {BIGINT}, \
                 other {BIGINT} NOT NULL); \
                 CREATE TABLE runs (id {AUTO_KEY} NOT NULL, task_id {BIGINT} NOT NULL, try_number INTEGER NOT NULL)"
            ))
            .unwrap();
        connection.run_pending_migrations(Migrations::new().entity::<Task>()).unwrap();
        Table { database, connection, read: 0 }
    }

    pub(super) fn apply(&mut self, id: i64, deed: Deed, plan: Plan) -> usize {
        apply(&mut self.connection, id, deed, plan).unwrap_or_else(|failure| panic!("{deed:?} of {id}: {failure:?}"))
    }

    /// Lets one worker process all due rows in this mode. Returns the runs whose effects are committed.
    pub(super) fn run(&mut self, mode: Mode) -> Vec<Run> {
        let pool = self.database.pool(3);
        let poller = match mode {
            Mode::Transaction => {
                Task::poller(pool, |task: &Task, message: &mut Message<'_, Conn>| work(task.id, message))
            }
            Mode::Group => {
                Grouped::poller(pool, |task: &Grouped, message: &mut Message<'_, Conn>| work(task.id, message))
            }
            Mode::Optimistic => {
                Optimistic::poller(pool, |task: &Optimistic, message: &mut Message<'_, Conn>| work(task.id, message))
            }
            Mode::Lease => {
                let handler = (
                    |_: &Leased, _: &Lease| Ok(()),
                    |task: &Leased, _: &(), message: &mut Message<'_, Conn>| work(task.id, message),
                );
                // One row under a lease at a time: a deed to another leased row would take it from its worker.
                Leased::poller(pool, handler).claim_batch(1)
            }
        };
        poller.workers(1).run_until_idle().unwrap();
        let new: Vec<(i64, i64, i32)> =
            runs::table.filter(runs::id.gt(self.read)).order(runs::id).load(&mut self.connection).unwrap();
        self.read = new.last().map_or(self.read, |run| run.0);
        new.into_iter().map(|(_, task, try_number)| (task, try_number)).collect()
    }

    /// Reads all rows.
    pub(super) fn read(&mut self) -> BTreeMap<i64, Row> {
        let found: Vec<(i64, i64, Option<i64>, i64, QueueState)> = tasks::table
            .select((tasks::id, tasks::answer, tasks::deed, tasks::other, Task::queue_state()))
            .load(&mut self.connection)
            .unwrap();
        found.into_iter().map(|(id, answer, deed, other, state)| (id, row(answer, deed, other, &state))).collect()
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
        plan: Plan { answer: Answer::of(answer), deed: deed.map(|deed| (Deed::of(deed), other)) },
    }
}
