//! The bank under test: payments to book in a ledger and on a company's balance.

use anyhow::Result;
use diesel::deserialize::{self, FromStaticSqlRow};
use diesel::prelude::*;
use diesel::sql_types::Text;
use queueable::Queueable;

use crate::session::{Dialect, connect};
use crate::tables::{make_queues, types};

/// How many companies there are. Few, so that payments meet on their balances.
pub(crate) const COMPANIES: i64 = 20;
/// How many payments the table has before it becomes a queue. They have the first keys, and no worker may touch them.
pub(crate) const OLD_PAYMENTS: i64 = 200;
/// The error of a handler whose payment is meant to fail.
pub(crate) const PLANNED: &str = "planned failure";

diesel::table! {
    companies (id) {
        id -> BigInt,
        balance_cents -> BigInt,
    }
}

diesel::table! {
    payments (id) {
        id -> BigInt,
        company_id -> BigInt,
        amount_cents -> BigInt,
        // What its handler does: see `handler.rs`.
        kind -> Text,
        // How many tries fail before one succeeds.
        fails -> Integer,
        note -> Text,
    }
}

diesel::table! {
    // A payment's children: inserting one takes a shared lock on the payment's row.
    remarks (id) {
        id -> BigInt,
        payment_id -> BigInt,
        text -> Text,
    }
}

diesel::table! {
    // No unique key on the payment, which would hide a double booking.
    ledger (id) {
        id -> BigInt,
        payment_id -> BigInt,
        amount_cents -> BigInt,
        attempt -> Integer,
    }
}

diesel::table! {
    // What an operator did to a payment, written in the transaction that did it: `stopped` until it is restarted, `skipped`.
    touched (id) {
        id -> BigInt,
        payment_id -> BigInt,
        how -> Text,
    }
}

/// A payment's booking: a row of the ledger, and a change of the company's balance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) payment_id: i64,
    pub(crate) company_id: i64,
    pub(crate) amount_cents: i64,
    pub(crate) attempt: i32,
}

/// The values of a row of the ledger.
type LedgerRow = (
    diesel::dsl::Eq<ledger::payment_id, i64>,
    diesel::dsl::Eq<ledger::amount_cents, i64>,
    diesel::dsl::Eq<ledger::attempt, i32>,
);

impl Entry {
    pub(crate) fn ledger_row(self) -> LedgerRow {
        (
            ledger::payment_id.eq(self.payment_id),
            ledger::amount_cents.eq(self.amount_cents),
            ledger::attempt.eq(self.attempt),
        )
    }
}

macro_rules! entities {
    ($($(#[$doc:meta])* $entity:ident: $mode:tt;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Queryable, Selectable, Identifiable, AsChangeset, Queueable)]
        #[diesel(table_name = payments)]
        #[queue $mode]
        pub(crate) struct $entity {
            pub(crate) id: i64,
            pub(crate) company_id: i64,
            pub(crate) amount_cents: i64,
            pub(crate) kind: String,
            pub(crate) fails: i32,
            #[diesel(deserialize_as = Legible)]
            pub(crate) note: String,
        }
    )*};
}

entities! {
    /// A payment in transaction mode.
    Locked: (timeout = "10s", retry = exponential("50ms", max = "1s"), max_tries = 20);
    /// A payment in group mode, which handles the payments of a company one after the other.
    Grouped: (group = 20, order_in_group = company_id, timeout = "10s", retry = exponential("50ms", max = "1s"), max_tries = 20);
    /// A payment under a lease of two seconds.
    Leased: (lease = "2s", timeout = "10s", retry = exponential("50ms", max = "1s"), max_tries = 1000);
    /// A payment in transaction mode that may take two seconds.
    HastyLocked: (timeout = "2s", retry = exponential("50ms", max = "1s"), max_tries = 20);
    /// A payment in a group that may take two seconds.
    HastyGrouped: (group = 20, order_in_group = company_id, timeout = "2s", retry = exponential("50ms", max = "1s"),
        max_tries = 20);
    /// A payment under a short lease, which the handler's call may outlast.
    HastyLeased: (lease = "300ms", timeout = "10s", retry = exponential("50ms", max = "1s"), max_tries = 1000);
    /// A payment in transaction mode with one try, so that its outcome stays visible.
    OnceLocked: (timeout = "10s", max_tries = 1);
    /// A payment in group mode with one try.
    OnceGrouped: (group = 20, order_in_group = company_id, timeout = "10s", max_tries = 1);
    /// A payment under a lease with one try.
    OnceLeased: (lease = "20s", timeout = "10s", max_tries = 1);
}

/// The note that no entity can read.
pub(crate) const ILLEGIBLE: &str = "illegible";

/// A note as the entities read it.
pub(crate) struct Legible(String);

impl<DB> Queryable<Text, DB> for Legible
where
    DB: diesel::backend::Backend,
    String: FromStaticSqlRow<Text, DB>,
{
    type Row = String;

    fn build(note: String) -> deserialize::Result<Self> {
        if note == ILLEGIBLE { Err("nobody can read this note".into()) } else { Ok(Legible(note)) }
    }
}

impl From<Legible> for String {
    fn from(Legible(note): Legible) -> String {
        note
    }
}

#[derive(Debug, Clone, Insertable)]
#[diesel(table_name = payments)]
pub(crate) struct NewPayment {
    pub(crate) company_id: i64,
    pub(crate) amount_cents: i64,
    pub(crate) kind: String,
    pub(crate) fails: i32,
    pub(crate) note: String,
}

impl NewPayment {
    /// A payment that is booked at the first try. The number decides its company and amount.
    pub(crate) fn plain(number: i64) -> Self {
        NewPayment {
            company_id: number % COMPANIES + 1,
            amount_cents: 1 + number * 7919 % 10_000,
            kind: "plain".to_owned(),
            fails: 0,
            note: String::new(),
        }
    }

    pub(crate) fn fails(self, fails: i32) -> Self {
        NewPayment { fails, ..self }
    }

    pub(crate) fn kind(self, kind: impl Into<String>) -> Self {
        NewPayment { kind: kind.into(), ..self }
    }

    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        NewPayment { note: note.into(), ..self }
    }

    /// The usual mix: nine in ten succeed at once, most others later, and one in a hundred never.
    pub(crate) fn mixed(number: i64) -> Self {
        let payment = NewPayment::plain(number);
        match number % 100 {
            13 => payment.kind("fatal"),
            50..58 => payment.fails(1),
            58 => payment.fails(3),
            // It fails after it was booked, so that there is something to undo.
            59..63 => payment.kind("late").fails(1),
            _ => payment,
        }
    }
}

/// Makes the tables, with payments that are older than the queue, and then the queue.
pub(crate) fn found(url: &str) -> Result<()> {
    create_tables(url, OLD_PAYMENTS)?;
    migrate(url)
}

/// Makes the tables of an application that does not know of queues.
pub(crate) fn create_tables(url: &str, old_payments: i64) -> Result<()> {
    let mut session = connect(url)?;
    let (key, int, text) = types(session.dialect());
    session.run(&format!(
        "CREATE TABLE companies (id {int} PRIMARY KEY NOT NULL, balance_cents {int} NOT NULL DEFAULT 0);
         CREATE TABLE payments (id {key} NOT NULL, company_id {int} NOT NULL, amount_cents {int} NOT NULL, kind {text},
            fails INTEGER NOT NULL DEFAULT 0, note {text});
         CREATE TABLE remarks (id {key} NOT NULL, payment_id {int} NOT NULL, text {text},
            FOREIGN KEY (payment_id) REFERENCES payments (id) ON DELETE CASCADE);
         CREATE TABLE ledger (id {key} NOT NULL, payment_id {int} NOT NULL, amount_cents {int} NOT NULL,
            attempt INTEGER NOT NULL);
         CREATE INDEX ledger_payment ON ledger (payment_id);
         CREATE TABLE touched (id {key} NOT NULL, payment_id {int} NOT NULL, how {text})"
    ))?;
    let ids = |count: i64| (1..=count).map(|id| format!("({id})")).collect::<Vec<_>>().join(", ");
    session.run(&format!("INSERT INTO companies (id) VALUES {}", ids(COMPANIES)))?;
    if old_payments > 0 {
        session.run("INSERT INTO payments (id, company_id, amount_cents, kind) VALUES (1, 1, 5, 'plain')")?;
    }
    let mut there = 1;
    while there < old_payments {
        // Twice as many each time, with explicit keys: MySQL's own would have gaps.
        let more = there.min(old_payments - there);
        session.run(&format!(
            "INSERT INTO payments (id, company_id, amount_cents, kind)
             SELECT id + {there}, company_id, amount_cents, kind FROM payments WHERE id <= {more}"
        ))?;
        there += more;
    }
    if session.dialect() == Dialect::Postgres && old_payments > 0 {
        session.run(&format!("SELECT setval(pg_get_serial_sequence('payments', 'id'), {old_payments})"))?;
    }
    Ok(())
}

/// Makes the payments a queue, which all entities share.
pub(crate) fn migrate(url: &str) -> Result<()> {
    make_queues!(url, Locked)
}
