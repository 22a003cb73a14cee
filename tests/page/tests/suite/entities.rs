//! The application's entities.

use chrono::NaiveDate;
use diesel::prelude::*;
use queueable::{Queueable, Stage};

diesel::table! {
    payments (id) {
        id -> BigInt,
        company_id -> BigInt,
        amount_cents -> BigInt,
        customer -> Nullable<Text>,
        note -> Nullable<Text>,
        paid_on -> Nullable<Date>,
        refunded -> Bool,
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

/// A payment. Companies take turns.
#[expect(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[queue(lease = "60s", fair_by = company_id, retry = fixed("1h"), max_tries = 3)]
pub(crate) struct Payment {
    pub(crate) id: i64,
    pub(crate) company_id: i64,
    pub(crate) amount_cents: i64,
    pub(crate) customer: Option<String>,
    pub(crate) note: Option<String>,
    pub(crate) paid_on: Option<NaiveDate>,
    pub(crate) refunded: bool,
}

/// What happens to an invoice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
pub(crate) enum InvoiceStage {
    Render,
    Send,
}

/// An invoice, with a key of two parts, stages, a priority, an archive, and hours in which it rests.
#[expect(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(primary_key(site, number))]
#[queue(stage = InvoiceStage, priority, archive(failed = invoices_failed), window = "00:00-23:00 UTC")]
pub(crate) struct Invoice {
    pub(crate) site: String,
    pub(crate) number: i32,
}
