use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{HandlerResult, Message, Outcome, Poller, Queueable, Stage};

diesel::table! { payments (id) { id -> BigInt, } }

#[derive(Clone, Copy, Stage)]
enum NoDebug {
    Charge,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(stage = NoDebug)]
struct Charged {
    id: i64,
}

#[derive(Debug, Clone, Copy)]
enum NoStage {
    Charge,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(stage = NoStage)]
struct Booked {
    id: i64,
}

#[derive(Debug, Clone, Copy, Stage)]
enum Right {
    Charge,
}

#[derive(Queryable, Selectable, Queueable)]
#[queue(stage = Right)]
struct Payment {
    id: i64,
}

fn book(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    Ok(Outcome::Done)
}

fn main() {
    let pool = Pool::new(ConnectionManager::<SqliteConnection>::new(":memory:")).unwrap();
    let poller = Poller::new(pool).serve_stages::<Payment>(&[Right::Charge], book);
    let _ = poller.serve_stages::<Payment>(&[NoDebug::Charge], book);
}
