//! The times that the queue keeps for statistics, by the database's clock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use chrono::{DateTime, Utc};
use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::bounds::HandlerFor;
use queueable::bounds::QueueOn;
use queueable::columns::Instant;
use queueable::{Failure, HandlerResult, Lease, Message, Migrations, Outcome, Queueable, Status};

use crate::db::{AUTO_KEY, Conn, Database, TEXT, TRIGGERS};

diesel::table! {
    tasks (id) {
        id -> BigInt,
        name -> Text,
    }
}

macro_rules! task {
    ($name:ident, $module:ident, $timestamps:meta $(, $settings:meta)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = tasks)]
        #[queue(module = $module, retry = fixed("1h"), timeout = "30s", $timestamps)]
        $(#[queue($settings)])*
        struct $name {
            #[allow(dead_code, reason = "some tests ask for the name alone")]
            id: i64,
            name: String,
        }
    };
}

task!(Task, task_queue, timestamps);
task!(GroupedTask, grouped_task_queue, timestamps, group = 10);
task!(LeasedTask, leased_task_queue, timestamps, lease = "60s");
task!(Timed, timed_queue, timestamps(end));

/// The four times of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Times {
    created: Option<DateTime<Utc>>,
    updated: Option<DateTime<Utc>>,
    begin: Option<DateTime<Utc>>,
    end: Option<DateTime<Utc>>,
}

struct Tasks {
    database: Database,
}

impl Tasks {
    /// A table with one row from before the queue.
    fn new() -> Self {
        let database = Database::new();
        let mut connection = database.connect();
        connection
            .batch_execute(&format!(
                "CREATE TABLE tasks (id {AUTO_KEY} NOT NULL, name {TEXT} NOT NULL); INSERT INTO tasks (name) VALUES ('old')"
            ))
            .unwrap();
        connection.run_pending_migrations(Migrations::new().entity::<Task>()).unwrap();
        Tasks { database }
    }

    /// Inserts due rows and returns the keys of all rows but the old one.
    fn enqueue<const N: usize>(&self, names: [&str; N]) -> Vec<i64> {
        let mut connection = self.database.connect();
        for name in names {
            let values = (tasks::name.eq(name), Task::due_now());
            diesel::insert_into(tasks::table).values(values).execute(&mut connection).unwrap();
        }
        tasks::table.filter(tasks::id.gt(1)).select(tasks::id).order(tasks::id).load(&mut connection).unwrap()
    }

    fn run<Q: QueueOn<Conn>>(&self, handler: impl HandlerFor<Q, Conn> + 'static) {
        Q::poller(self.database.pool(3), handler).workers(1).run_until_idle().unwrap();
    }

    fn times(&self, id: i64) -> Times {
        let times: (Option<Instant>, Option<Instant>, Option<Instant>, Option<Instant>) = tasks::table
            .find(id)
            .select((task_queue::created_time, task_queue::updated_time, task_queue::begin_time, task_queue::end_time))
            .get_result(&mut self.database.connect())
            .unwrap();
        let (created, updated, begin, end) = times;
        Times {
            created: created.map(Into::into),
            updated: updated.map(Into::into),
            begin: begin.map(Into::into),
            end: end.map(Into::into),
        }
    }

    fn now(&self) -> DateTime<Utc> {
        let now: Option<Instant> =
            diesel::select(queueable::columns::Now).get_result(&mut self.database.connect()).unwrap();
        now.unwrap().into()
    }
}

fn answer(task: &str) -> HandlerResult {
    match task {
        "fails" => Err(Failure::retry("no route")),
        "is void" => Err(Failure::fatal("void")),
        _ => Ok(Outcome::Done),
    }
}

#[test]
fn rows_from_before_have_no_times_and_what_is_inserted_by_whomever_has_one() {
    let tasks = Tasks::new();
    let before = tasks.now();
    tasks.database.connect().batch_execute("INSERT INTO tasks (name) VALUES ('new')").unwrap();
    assert_eq!(tasks.times(1).created, None);
    let Times { created, updated, begin, end } = tasks.times(2);
    assert!(created.unwrap() >= before && created.unwrap() <= tasks.now());
    assert_eq!((updated, begin, end), (None, None, None));
}

/// Returns when the work on each row began, by the database's clock.
type Begun = Mutex<HashMap<i64, DateTime<Utc>>>;

/// The database's time while the handler of each row ran.
#[derive(Clone)]
struct Seen(Arc<(Tasks, Begun)>);

impl Seen {
    fn work(&self, id: i64, task: &str) -> HandlerResult {
        let now = self.0.0.now();
        self.0.1.lock().unwrap().insert(id, now);
        answer(task)
    }
}

/// Shows that each attempt has written its times, whatever the mode.
fn leaves_its_times<Q: QueueOn<Conn>, H: HandlerFor<Q, Conn> + 'static>(handler: impl FnOnce(Seen) -> H) {
    let seen = Seen(Arc::new((Tasks::new(), Mutex::default())));
    let (tasks, during) = &*seen.0;
    let ids = tasks.enqueue(["runs", "fails", "is void"]);
    let before = tasks.now();
    tasks.run::<Q>(handler(seen.clone()));
    let after = tasks.now();
    for id in ids {
        let Times { created, updated, begin, end } = tasks.times(id);
        let order = [created, Some(before), begin, Some(during.lock().unwrap()[&id]), end, Some(after)];
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}");
        assert!(updated >= order[3] && updated <= Some(after));
    }
}

#[test]
fn an_attempt_in_a_transaction_leaves_when_it_began_and_ended() {
    leaves_its_times::<Task, _>(|seen| move |task: &Task, _: &mut Message<'_, Conn>| seen.work(task.id, &task.name));
}

#[test]
fn an_attempt_in_a_group_leaves_when_it_was_claimed_and_ended() {
    leaves_its_times::<GroupedTask, _>(|seen| {
        move |task: &GroupedTask, _: &mut Message<'_, Conn>| seen.work(task.id, &task.name)
    });
}

#[test]
fn an_attempt_under_a_lease_leaves_when_it_began_and_ended() {
    leaves_its_times::<LeasedTask, _>(|seen| {
        (
            move |task: &LeasedTask, _: &Lease| seen.work(task.id, &task.name).map(|_| ()),
            |_: &LeasedTask, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
        )
    });
}

#[test]
fn operations_are_writes_of_the_queue_and_the_applications_are_not() {
    let tasks = Tasks::new();
    let ids = tasks.enqueue(["one"]);
    let mut connection = tasks.database.connect();
    connection.batch_execute("UPDATE tasks SET name = 'other'").unwrap();
    assert_eq!(tasks.times(ids[0]).updated, None);
    let before = tasks.now();
    assert_eq!(Task::queue().all_rows().stop(&mut connection).unwrap(), 1);
    assert!(tasks.times(ids[0]).updated.unwrap() >= before);
    assert_eq!((tasks.times(ids[0]).begin, tasks.times(ids[0]).end), (None, None));
}

#[test]
fn an_attempt_of_a_lost_worker_is_not_measured() {
    let tasks = Tasks::new();
    let ids = tasks.enqueue(["one"]);
    // The times are those of an earlier attempt.
    let lost = "UPDATE tasks SET status = 'IN_PROGRESS', try_count = 20, begin_time = '2001-02-03 04:05:06.000', \
                end_time = '2001-02-03 04:05:07.000' WHERE id = 2";
    tasks.database.connect().batch_execute(lost).unwrap();
    tasks.run::<LeasedTask>((
        |_: &LeasedTask, _: &Lease| Ok(()),
        |_: &LeasedTask, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    ));
    let status =
        tasks::table.find(ids[0]).select(task_queue::status).get_result::<String>(&mut tasks.database.connect());
    assert_eq!(status.as_deref(), Ok(Status::Failed.as_str()));
    assert_eq!((tasks.times(ids[0]).begin, tasks.times(ids[0]).end), (None, None));
}

#[test]
fn one_of_the_times_may_be_asked_for_alone() {
    let tasks = Tasks::new();
    let ids = tasks.enqueue(["one"]);
    tasks.run::<Timed>(|task: &Timed, _: &mut Message<'_, Conn>| answer(&task.name));
    let times = tasks.times(ids[0]);
    assert_eq!((times.updated, times.begin, times.end.is_some()), (None, None, true));
}

#[test]
fn a_poller_does_not_start_where_inserts_leave_no_time() {
    let tasks = Tasks::new();
    let mut connection = tasks.database.connect();
    // One of these two removes the default, depending on the database.
    let _ = connection.batch_execute("ALTER TABLE tasks ALTER COLUMN created_time DROP DEFAULT");
    for trigger in sql::<Text>(&TRIGGERS.replace("$table", "tasks")).load::<String>(&mut connection).unwrap() {
        connection.batch_execute(&format!("DROP TRIGGER {trigger}")).unwrap();
    }
    let done = |_: &Task, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let poller = || Task::poller(tasks.database.pool(3), done).workers(1);
    let refused = poller().run_until_idle();
    let Err(queueable::Error::Unsafe(findings)) = refused else { panic!("{refused:?}") };
    assert!(findings[0].problem.contains("created_time"), "{findings:?}");
    connection.batch_execute(&findings[0].mend).unwrap();
    poller().run_until_idle().unwrap();
    let ids = tasks.enqueue(["one"]);
    assert!(tasks.times(ids[0]).created.is_some());
}
