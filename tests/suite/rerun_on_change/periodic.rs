//! A row with a schedule whose content changes: it is processed once more, and the schedule goes on.

use chrono::{TimeDelta, Utc};
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::columns::Instant;
use queueable::{Message, Migrations, Outcome, QueueState, Queueable, Status};

use super::{Library, documents};
use crate::db::Conn;

/// A second queue on the documents: each is read aloud every day, and when it has changed.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = documents)]
#[queue(prefix = "daily_", periodic, rerun_on_change(body), version = note, timeout = "30s")]
struct Daily {
    id: i64,
    body: Option<String>,
}

type Schedule = (QueueState, Option<Instant>, i64);

fn schedule(library: &Library) -> Schedule {
    documents::table
        .select((Daily::queue_state(), daily_queue::scheduled_time, daily_queue::change_count))
        .get_result(&mut library.connect())
        .unwrap()
}

/// Reads the due documents, and changes the row itself `times` times. Returns the number of attempts.
fn run(library: &Library, times: i64) -> u64 {
    let handler = move |daily: &Daily, message: &mut Message<'_, Conn>| {
        let row = documents::table.find(daily.id);
        let changed: i64 = row.select(daily_queue::change_count).get_result(message.connection())?;
        if changed < times {
            diesel::update(row)
                .set(documents::body.eq(format!("{} and more", daily.body.as_deref().unwrap_or_default())))
                .execute(message.connection())?;
        }
        Ok(Outcome::Done)
    };
    Daily::poller(library.pool(1), handler).workers(1).run_until_idle().unwrap().succeeded
}

/// Makes a document that is to be read every day, for the first time in an hour. Returns that time.
fn before_the_first_run(library: &Library) -> Instant {
    library.connect().run_pending_migrations(Migrations::new().entity::<Daily>()).unwrap();
    library.write("INSERT INTO documents (id, title, body) VALUES (1, 'one', 'one')");
    diesel::update(documents::table)
        .set((Daily::due_at(Utc::now() + TimeDelta::hours(1)), daily_queue::period.eq(86_400)))
        .execute(&mut library.connect())
        .unwrap();
    Instant::from(schedule(library).0.next_attempt_time.unwrap())
}

#[test]
fn what_is_due_at_once_before_the_first_run_does_not_move_the_schedule() {
    let news: [fn(&Library); 2] = [
        |library| library.write("UPDATE documents SET body = 'two'"),
        |library| assert!(Daily::enqueue_if_newer(&mut library.connect(), &1, "b").unwrap()),
    ];
    for enqueue in news {
        let library = Library::new();
        let first = before_the_first_run(&library);
        enqueue(&library);
        let (state, scheduled, _) = schedule(&library);
        assert!(state.next_attempt_time.is_some_and(|next| Instant::from(next) < first));
        assert_eq!(scheduled, Some(first));
        assert_eq!(run(&library, 0), 1);
        assert_eq!(schedule(&library).0.next_attempt_time.map(Instant::from), Some(first));
    }
}

#[test]
fn new_content_is_worked_at_once_and_does_not_move_the_schedule() {
    let library = Library::new();
    library.connect().run_pending_migrations(Migrations::new().entity::<Daily>()).unwrap();
    library.write("INSERT INTO documents (title, body) VALUES ('one', 'one')");
    let first = Utc::now() - TimeDelta::hours(1);
    diesel::update(documents::table)
        .set((Daily::due_at(first), daily_queue::period.eq(86_400)))
        .execute(&mut library.connect())
        .unwrap();
    assert_eq!(run(&library, 0), 1);
    let (state, next, _) = schedule(&library);
    assert!(state.next_attempt_time.unwrap() > Utc::now() + TimeDelta::hours(22));
    library.write("UPDATE documents SET body = 'two'");
    let (state, kept, count) = schedule(&library);
    assert!(state.next_attempt_time.unwrap() < Utc::now() + TimeDelta::hours(1));
    assert_eq!((kept, count), (next, 1));
    // The row changes once more while it is processed.
    assert_eq!(run(&library, 2), 2);
    let (state, kept, count) = schedule(&library);
    assert_eq!((state.next_attempt_time.map(Instant::from), kept, count), (next, next, 2));
}

#[test]
fn a_schedule_that_is_stopped_stays_so() {
    let library = Library::new();
    before_the_first_run(&library);
    diesel::update(documents::table).set(Daily::due_now()).execute(&mut library.connect()).unwrap();
    assert_eq!(run(&library, 0), 1);
    assert_eq!(Daily::queue().all_rows().stop(&mut library.connect()).unwrap(), 1);
    let before = schedule(&library);
    assert_eq!((before.0.status, before.0.next_attempt_time), (Status::Success, None));
    library.write("UPDATE documents SET body = 'two'");
    assert_eq!(schedule(&library), (before.0, before.1, 1));
    assert_eq!(Daily::queue().all_rows().restart(&mut library.connect()).unwrap(), 1);
    assert_eq!(run(&library, 0), 1);
}
