//! The kinds of work under test: a pipeline whose finished rows move away, documents that change while they are worked,
//! turns that are taken one at a time, and jobs on a schedule.

use anyhow::Result;
use diesel::prelude::*;
use queueable::{Queueable, Stage};

use crate::session::connect;
use crate::tables::{make_queues, types};

diesel::table! { invoices (id) { id -> BigInt, } }
diesel::table! {
    // The steps done for an invoice. No unique key on it, which would hide a step that was done twice.
    steps (id) { id -> BigInt, invoice_id -> BigInt, step -> Text, }
}
diesel::table! { documents (id) { id -> BigInt, body -> Text, } }
diesel::table! { copies (document_id) { document_id -> BigInt, body -> Text, } }
diesel::table! { turns (id) { id -> BigInt, } }
diesel::table! { taken (id) { id -> BigInt, turn_id -> BigInt, } }
diesel::table! { jobs (id) { id -> BigInt, } }
diesel::table! {
    runs (id) { id -> BigInt, job_id -> BigInt, scheduled -> BigInt, }
}

/// The stage of an invoice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
pub(crate) enum Step {
    Render,
    Send,
    Book,
}

macro_rules! kinds {
    ($(#[$doc:meta])* $module:ident, $mode:tt, $alone:tt) => {
        $(#[$doc])*
        pub(crate) mod $module {
            use super::*;

            #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
            #[diesel(table_name = invoices)]
            #[queue(stage = Step, archive(success = invoices_done, failed = invoices_failed), retry = fixed("20ms"))]
            #[queue $mode]
            pub(crate) struct Invoice {
                pub(crate) id: i64,
            }

            #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
            #[diesel(table_name = documents)]
            #[queue(rerun_on_change(body), retry = fixed("20ms"))]
            #[queue $mode]
            pub(crate) struct Document {
                pub(crate) id: i64,
                pub(crate) body: String,
            }

            #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
            #[diesel(table_name = turns)]
            #[queue(exclusive, retry = fixed("20ms"))]
            #[queue $alone]
            pub(crate) struct Turn {
                pub(crate) id: i64,
            }

            #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
            #[diesel(table_name = jobs)]
            #[queue(periodic(missed = all(1000)), retry = fixed("20ms"))]
            #[queue $mode]
            pub(crate) struct Job {
                pub(crate) id: i64,
            }
        }
    };
}

kinds!(
    /// In transaction mode.
    locked,
    (max_tries = 20),
    (max_tries = 20)
);
kinds!(
    /// In group mode, except for the turns.
    grouped,
    (group = 20, max_tries = 20),
    (max_tries = 20)
);
kinds!(
    /// Under leases of a second.
    leased,
    (lease = "1s", max_tries = 1000),
    (lease = "1s", max_tries = 1000)
);

/// Makes the tables and their queues.
pub(crate) fn found(url: &str) -> Result<()> {
    let mut session = connect(url)?;
    let (key, int, text) = types(session.dialect());
    session.run(&format!(
        "CREATE TABLE invoices (id {int} PRIMARY KEY NOT NULL);
         CREATE TABLE steps (id {key} NOT NULL, invoice_id {int} NOT NULL, step {text});
         CREATE TABLE documents (id {int} PRIMARY KEY NOT NULL, body {text});
         CREATE TABLE copies (document_id {int} PRIMARY KEY NOT NULL, body {text});
         CREATE TABLE turns (id {int} PRIMARY KEY NOT NULL);
         CREATE TABLE taken (id {key} NOT NULL, turn_id {int} NOT NULL);
         CREATE TABLE jobs (id {int} PRIMARY KEY NOT NULL);
         CREATE TABLE runs (id {key} NOT NULL, job_id {int} NOT NULL, scheduled {int} NOT NULL)"
    ))?;
    make_queues!(url, locked::Invoice, locked::Document, locked::Turn, locked::Job)
}
