//! What happens to finished rows: they move to an archive, are deleted, or come back.

mod archive;
mod check;
mod delete;
mod redrive;

use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::{Failure, HandlerResult, Lease, Message, Migrations, Outcome, Poller, Queueable, Tally};

use crate::db::{Conn, TEXT};
use crate::suite::bank::{Bank, ledger, payments};

/// Declares an archive of the payments, with the queue's columns and a column that the entity does not know.
macro_rules! archive_tables {
    ($($table:ident)*) => {$(
        diesel::table! {
            $table (id) {
                id -> BigInt,
                company_id -> BigInt,
                amount_cents -> BigInt,
                note -> Nullable<Text>,
                status -> Text,
                try_count -> Integer,
                last_attempt_error_message -> Nullable<Text>,
            }
        }
    )*};
}
archive_tables! { payments_done payments_failed }

/// A payment that leaves its table when it is finished, in each of the modes.
macro_rules! moved {
    ($name:ident, $module:ident $(, $mode:tt = $value:tt)*) => {
        #[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        #[queue(
            module = $module,
            retry = fixed("1h"),
            max_tries = 3,
            timeout = "30s",
            archive(success = payments_done, failed = payments_failed)
            $(, $mode = $value)*
        )]
        pub(crate) struct $name {
            pub(super) id: i64,
            pub(super) amount_cents: i64,
        }
    };
}
moved!(Moved, moved_queue);
moved!(MovedInGroups, moved_in_groups_queue, group = 10);
moved!(MovedUnderLease, moved_under_lease_queue, lease = "60s");
moved!(MovedAndReported, moved_and_reported_queue, report_index = company_id);

/// A bank with the queue, and with a column that only the database knows. `Moved` and the entities of the other modes have the same columns.
pub(super) fn bank() -> Bank {
    bank_with(Migrations::new().entity::<Moved>())
}

fn bank_with(migrations: Migrations<<Conn as Connection>::Backend>) -> Bank {
    let bank = Bank::before_the_queue();
    let mut connection = bank.connect();
    connection.batch_execute(&format!("ALTER TABLE payments ADD COLUMN note {TEXT}")).unwrap();
    connection.run_pending_migrations(migrations).unwrap();
    bank
}

/// Answers for a payment: negative ones fail for good, 13 is retried, 77 is skipped, and all others are booked.
fn judge(id: i64, amount_cents: i64, message: &mut Message<'_, Conn>) -> HandlerResult {
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(id), ledger::amount_cents.eq(amount_cents)))
        .execute(message.connection())?;
    match amount_cents {
        ..0 => Err(Failure::fatal("no such account")),
        13 => Err(Failure::retry("the bank is closed")),
        77 => Ok(Outcome::Skip),
        _ => Ok(Outcome::Done),
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Mode {
    Transaction,
    Group,
    Lease,
}

pub(super) const MODES: [Mode; 3] = [Mode::Transaction, Mode::Group, Mode::Lease];

impl Mode {
    /// Processes the due payments.
    pub(super) fn run(self, bank: &Bank) -> Tally {
        self.poller(bank).run_until_idle().unwrap()
    }

    pub(super) fn poller(self, bank: &Bank) -> Poller<Conn> {
        self.poller_on(bank.pool(1)).workers(1)
    }

    pub(super) fn poller_on(self, pool: Pool<ConnectionManager<Conn>>) -> Poller<Conn> {
        match self {
            Mode::Transaction => Moved::poller(pool, |row: &Moved, message: &mut Message<'_, Conn>| {
                judge(row.id, row.amount_cents, message)
            }),
            Mode::Group => MovedInGroups::poller(pool, |row: &MovedInGroups, message: &mut Message<'_, Conn>| {
                judge(row.id, row.amount_cents, message)
            }),
            Mode::Lease => MovedUnderLease::poller(
                pool,
                (
                    |_: &MovedUnderLease, _: &Lease| Ok(()),
                    |row: &MovedUnderLease, _: &(), message: &mut Message<'_, Conn>| {
                        judge(row.id, row.amount_cents, message)
                    },
                ),
            ),
        }
    }
}

/// Waits for an effect of a running poller.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    let (_nobody, pace) = std::sync::mpsc::channel::<()>();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not in a minute: {what}");
        let _ = pace.recv_timeout(Duration::from_millis(5));
    }
}

/// Returns the ids in the queue's table.
pub(super) fn live(bank: &Bank) -> Vec<i64> {
    payments::table.order(payments::id).select(payments::id).load(&mut bank.connect()).unwrap()
}

/// An archived row: id, amount, note, status, tries, text.
pub(super) type Archived = (i64, i64, Option<String>, String, i32, Option<String>);

macro_rules! archived {
    ($name:ident, $table:ident) => {
        pub(super) fn $name(bank: &Bank) -> Vec<Archived> {
            use $table::columns as c;
            let all = (c::id, c::amount_cents, c::note, c::status, c::try_count, c::last_attempt_error_message);
            $table::table.order(c::id).select(all).load(&mut bank.connect()).unwrap()
        }
    };
}
archived!(done, payments_done);
archived!(failed, payments_failed);

pub(super) fn ids(rows: &[Archived]) -> Vec<i64> {
    rows.iter().map(|row| row.0).collect()
}

pub(super) fn execute(bank: &Bank, sql: &str) {
    bank.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}
