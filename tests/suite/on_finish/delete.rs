//! A successful row is deleted in the transaction that settles it.

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Failure, Lease, Message, Migrations, Outcome, Poller, Queueable, Status};

use super::{execute, live};
use crate::db::Conn;
use crate::suite::bank::{Bank, payments};

macro_rules! deleted {
    ($name:ident, $module:ident $(, $mode:tt = $value:tt)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        #[queue(module = $module, retry = fixed("1h"), timeout = "30s", on_success = delete $(, $mode = $value)*)]
        struct $name {
            id: i64,
            amount_cents: i64,
        }
    };
}
deleted!(Deleted, deleted_queue);
deleted!(DeletedInGroups, deleted_in_groups_queue, group = 10);
deleted!(DeletedUnderLease, deleted_under_lease_queue, lease = "60s");

/// Books like the bank, and fails negative amounts for good.
fn book(id: i64, amount_cents: i64, message: &mut Message<'_, Conn>) -> queueable::HandlerResult {
    use crate::suite::bank::ledger;
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(id), ledger::amount_cents.eq(amount_cents)))
        .execute(message.connection())?;
    if amount_cents < 0 { Err(Failure::fatal("no such account")) } else { Ok(Outcome::Done) }
}

fn pollers(bank: &Bank) -> [(&'static str, Poller<Conn>); 3] {
    let plain = |row: &Deleted, message: &mut Message<'_, Conn>| book(row.id, row.amount_cents, message);
    let group = |row: &DeletedInGroups, message: &mut Message<'_, Conn>| book(row.id, row.amount_cents, message);
    let lease = (
        |_: &DeletedUnderLease, _: &Lease| Ok(()),
        |row: &DeletedUnderLease, _: &(), message: &mut Message<'_, Conn>| book(row.id, row.amount_cents, message),
    );
    [
        ("transaction", Deleted::poller(bank.pool(1), plain)),
        ("group", DeletedInGroups::poller(bank.pool(1), group)),
        ("lease", DeletedUnderLease::poller(bank.pool(1), lease)),
    ]
}

#[test]
fn a_row_that_succeeds_is_deleted_and_one_that_fails_stays() {
    for place in 0..3 {
        let bank = Bank::before_the_queue();
        bank.connect().run_pending_migrations(Migrations::new().entity::<Deleted>()).unwrap();
        let rows = bank.enqueue([5, -1, 6]);
        let (mode, poller) = pollers(&bank).into_iter().nth(place).unwrap();
        let tally = poller.workers(1).run_until_idle().unwrap();
        assert_eq!((tally.succeeded, tally.failed), (2, 1), "{mode}");
        assert_eq!((live(&bank), bank.booked()), (vec![rows[1]], vec![rows[0], rows[2]]), "{mode}");
        assert_eq!(bank.state(rows[1]).status, Status::Failed, "{mode}");
    }
}

#[test]
fn a_row_that_cannot_be_deleted_has_not_succeeded() {
    for place in 0..3 {
        let bank = Bank::before_the_queue();
        bank.connect().run_pending_migrations(Migrations::new().entity::<Deleted>()).unwrap();
        let rows = bank.enqueue([5, 6]);
        execute(&bank, &crate::db::refuse_removal_of(rows[0]));
        let (mode, poller) = pollers(&bank).into_iter().nth(place).unwrap();
        let tally = poller.workers(1).run_until_idle().unwrap();
        assert_eq!((tally.succeeded, tally.retried), (1, 1), "{mode}");
        assert_eq!((live(&bank), bank.booked()), (vec![rows[0]], vec![rows[1]]), "{mode}");
        let state = bank.state(rows[0]);
        assert_eq!((state.status, state.try_count), (Status::Error, 1), "{mode}");
    }
}
