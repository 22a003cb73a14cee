//! The application's own code: its tables, as `diesel print-schema` writes them, and their structs.
//!
//! Only `#[derive(Queueable)]` and its attribute refer to the queue.

use diesel::prelude::*;
use queueable::Queueable;
use serde::Serialize;

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
    }
}

diesel::table! {
    ledger (payment_id) {
        payment_id -> BigInt,
        amount_cents -> BigInt,
    }
}

diesel::table! {
    imports (id) {
        id -> Integer,
        file -> Text,
        payments -> BigInt,
    }
}

/// A payment, and with the derive a message of the queue: the table's rows are the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Queryable, Selectable, Identifiable, Queueable)]
#[diesel(table_name = payments)]
// SQLite allows a handler one second by default, because it has one writer; the others allow thirty.
#[queue(retry = fixed("1s"), max_tries = 5, timeout = "30s")]
pub(crate) struct Payment {
    pub(crate) id: i64,
    pub(crate) company_id: i64,
    pub(crate) amount_cents: i64,
}

/// A payment of the input file.
#[derive(Debug, Clone, PartialEq, Eq, Insertable)]
#[diesel(table_name = payments)]
pub(crate) struct NewPayment {
    pub(crate) company_id: i64,
    pub(crate) amount_cents: i64,
}

/// The file that the job has enqueued.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = imports)]
pub(crate) struct Import {
    pub(crate) file: String,
    pub(crate) payments: i64,
}

/// The payments that were in the table before it became a queue, as `migrations/*/*_old_payments` inserts them.
pub(crate) fn old_payments() -> impl Iterator<Item = Payment> {
    (1..=LAST_OLD_PAYMENT).map(|id| Payment { id, company_id: 3301 + id % 97, amount_cents: 100 * id })
}

/// The id of the last of the [`old_payments`]; what was enqueued has a higher one.
pub(crate) const LAST_OLD_PAYMENT: i64 = 1000;
