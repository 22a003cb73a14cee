//! A claim and a probe that take longer than the handler's timeout, which does not apply to them.

use std::time::Duration;

use diesel::prelude::*;
use diesel::sql_types::Bool;
use diesel_migrations::MigrationHarness;
use queueable::{Message, Migrations, Outcome, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, payments};

/// A payment whose claim takes longer than its handler may, as beside an old snapshot.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = slow_queue, timeout = "5s", claim_if = "slowly()")]
struct Slow {
    id: i64,
}

fn slowly() -> diesel::expression::SqlLiteral<Bool> {
    diesel::dsl::sql("(SELECT true FROM pg_sleep(5.5))")
}

#[test]
fn a_claim_may_take_longer_than_a_handler() {
    let bank = Bank::before_the_queue();
    bank.connect().run_pending_migrations(Migrations::new().entity::<Slow>()).unwrap();
    bank.enqueue([1, 2]);
    let handler = |slow: &Slow, _: &mut Message<'_, Conn>| {
        assert!(slow.id > 0);
        Ok(Outcome::Done)
    };
    let tally = Slow::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.interrupted), (2, 0));
}

/// The server ends the handler's statement or its session, and so undoes the attempt.
#[test]
fn a_handler_is_held_to_its_timeout_all_the_same() {
    #[derive(Debug, Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = late_queue, timeout = "100ms", max_tries = 1)]
    struct Late {
        id: i64,
    }
    let bank = Bank::new();
    let ids = bank.enqueue([1]);
    let handler = |late: &Late, message: &mut Message<'_, Conn>| {
        diesel::update(payments::table.find(late.id))
            .set(payments::amount_cents.eq(2))
            .execute(message.connection())?;
        diesel::sql_query("SELECT pg_sleep(600)").execute(message.connection())?;
        Ok(Outcome::Done)
    };
    let started = std::time::Instant::now();
    let tally = Late::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert!(started.elapsed() < Duration::from_secs(300));
    assert_eq!((tally.succeeded, tally.failed), (0, 1));
    assert_eq!(payments::table.find(ids[0]).select(payments::amount_cents).get_result(&mut bank.connect()), Ok(1_i64));
}
