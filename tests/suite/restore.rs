//! A database that was dumped and restored by its own tools is a queue as before, with every kind of work.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{HandlerResult, Lease, Message, Migrations, Outcome, Poller, Queueable, Stage};

use crate::db::{self, BIGINT, Conn, Database, LONG_TEXT, TEXT};

diesel::table! {
    works (id) {
        id -> BigInt,
        title -> Text,
        body -> Nullable<Text>,
    }
}

diesel::table! {
    moves (id) {
        id -> BigInt,
    }
}

diesel::table! {
    moves_done (id) {
        id -> BigInt,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
enum Step {
    First,
    Last,
}

/// Queues on one table, one for each kind of work.
macro_rules! kinds {
    ($($name:ident($($key:tt)*);)*) => {$(
        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(table_name = works)]
        #[queue(retry = fixed("1h"), timeout = "30s", $($key)*)]
        struct $name {
            #[expect(dead_code, reason = "nobody asks for it")]
            id: i64,
        }
    )*};
}

kinds! {
    Plain(prefix = "plain_");
    Together(prefix = "together_", group = 20);
    Leased(prefix = "leased_", lease = "60s");
    Changed(prefix = "changed_", rerun_on_change(title, body), timestamps);
    Repeated(prefix = "repeated_", periodic, rerun_on_change(title));
    Staged(prefix = "staged_", stage = Step);
    Ordered(prefix = "ordered_", order_by = title, timestamps(updated));
    Urgent(prefix = "urgent_", priority);
    Judged(prefix = "judged_", claim_if = "works::title.ne(\"never\")");
    Single(prefix = "single_", exclusive);
    Told(prefix = "told_", wake = notify);
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = moves)]
#[queue(archive(success = moves_done), timeout = "30s")]
struct Move {
    #[expect(dead_code, reason = "nobody asks for it")]
    id: i64,
}

fn done<Q>(_: &Q, _: &mut Message<'_, Conn>) -> HandlerResult {
    Ok(Outcome::Done)
}

fn worked(poller: Poller<Conn>) -> u64 {
    poller.workers(1).run_until_idle().unwrap().succeeded
}

/// Processes each queue, and returns how many of its rows have succeeded.
fn work(database: &Database) -> Vec<(&'static str, u64)> {
    let pool = || database.pool(4);
    let call = (
        |_: &Leased, _: &Lease| Ok(()),
        |_: &Leased, (): &(), _: &mut Message<'_, Conn>| -> HandlerResult { Ok(Outcome::Done) },
    );
    vec![
        ("plain", worked(Plain::poller(pool(), done::<Plain>))),
        ("together", worked(Together::poller(pool(), done::<Together>))),
        ("leased", worked(Leased::poller(pool(), call))),
        ("changed", worked(Changed::poller(pool(), done::<Changed>))),
        ("repeated", worked(Repeated::poller(pool(), done::<Repeated>))),
        ("staged", worked(Staged::poller(pool(), done::<Staged>))),
        ("ordered", worked(Ordered::poller(pool(), done::<Ordered>))),
        ("urgent", worked(Urgent::poller(pool(), done::<Urgent>))),
        ("judged", worked(Judged::poller(pool(), done::<Judged>))),
        ("single", worked(Single::poller(pool(), done::<Single>))),
        ("told", worked(Told::poller(pool(), done::<Told>))),
        ("moves", worked(Move::poller(pool(), done::<Move>))),
    ]
}

/// The names of the queues, each with as many rows as `rows` says.
fn each(work: &[(&'static str, u64)], rows: u64) -> Vec<(&'static str, u64)> {
    work.iter().map(|(name, _)| (*name, rows)).collect()
}

#[test]
fn every_kind_of_work_goes_on_in_a_copy_that_the_databases_own_tools_have_made() {
    if !db::can_copy_rows() {
        return;
    }
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE works (id {BIGINT} PRIMARY KEY NOT NULL, title {TEXT} NOT NULL, body {LONG_TEXT});
             CREATE TABLE moves (id {BIGINT} PRIMARY KEY NOT NULL)"
        ))
        .unwrap();
    let migrations = Migrations::new()
        .entity::<Plain>()
        .entity::<Together>()
        .entity::<Leased>()
        .entity::<Changed>()
        .entity::<Repeated>()
        .entity::<Staged>()
        .entity::<Ordered>()
        .entity::<Urgent>()
        .entity::<Judged>()
        .entity::<Single>()
        .entity::<Told>()
        .entity::<Move>();
    connection.run_pending_migrations(migrations).unwrap();
    let due = (
        (Plain::due_now(), Together::due_now(), Leased::due_now(), Changed::due_now()),
        (Repeated::due_now(), Staged::due_now(), Ordered::due_now(), Urgent::due_now()),
        (Judged::due_now(), Single::due_now(), Told::due_now()),
    );
    let row = (works::id.eq(1), works::title.eq("it's \"one\"; `two`"), works::body.eq("a\nb\\"), due);
    diesel::insert_into(works::table).values(row).execute(&mut connection).unwrap();
    diesel::insert_into(moves::table).values((moves::id.eq(1), Move::due_now())).execute(&mut connection).unwrap();

    let copy = db::dumped_and_restored(&database);
    let found = work(&copy);
    assert_eq!(found, each(&found, 1));
    // The triggers exist: a changed row is due again, and no other row is.
    copy.connect().batch_execute("UPDATE works SET title = 'new'").unwrap();
    let again = work(&copy).into_iter().filter(|(_, rows)| *rows > 0).collect::<Vec<_>>();
    assert_eq!(again, [("changed", 1), ("repeated", 1)]);
    let of_the_first = work(&database);
    assert_eq!(of_the_first, each(&of_the_first, 1), "the first database has its own rows");
}
