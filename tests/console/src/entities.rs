//! The application's entities.

use diesel::prelude::*;
use queueable::{Queueable, Stage};

diesel::table! {
    payments (id) {
        id -> BigInt,
        company_id -> BigInt,
        amount_cents -> BigInt,
        customer -> Nullable<Text>,
        api_token -> Nullable<Text>,
    }
}

diesel::table! {
    invoices (site, number) {
        site -> Text,
        number -> Integer,
        total_cents -> BigInt,
    }
}

diesel::table! {
    letters (id) {
        id -> BigInt,
    }
}

/// A payment. Companies take turns.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[queue(lease = "60s", fair_by = company_id, retry = fixed("1h"), max_tries = 3)]
pub(crate) struct Payment {
    #[allow(dead_code, reason = "only a handler reads it")]
    pub(crate) id: i64,
}

/// What happens to an invoice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
pub(crate) enum InvoiceStage {
    Render,
    Send,
}

/// An invoice, with a key of two parts, stages, a priority and an archive.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(primary_key(site, number))]
#[queue(stage = InvoiceStage, priority, timeout = "30s", archive(failed = invoices_failed))]
pub(crate) struct Invoice {
    #[allow(dead_code, reason = "only a handler reads it")]
    pub(crate) site: String,
    #[allow(dead_code, reason = "only a handler reads it")]
    pub(crate) number: i32,
}

/// A letter, which is sent with others, or waits for its stamp. Only a console with handlers knows it.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[queue(group = 10, claim_if = "letters::id.gt(0)", retry = fixed("10m"))]
pub(crate) struct Letter {
    #[allow(dead_code, reason = "only a handler reads it")]
    pub(crate) id: i64,
}
