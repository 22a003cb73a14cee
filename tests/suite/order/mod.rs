//! The order in which due rows are claimed, and the rows that are left alone.

mod ageing;
mod claim_if;
mod claims;
mod exclusive;
mod explain;
mod priority;
mod processes;
mod schema;
mod snapshots;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel_migrations::MigrationHarness;
use queue_core::internals::backend::{SessionLimits, SessionSetup};
use queueable::Migrations;
use queueable::bounds::StoredIn;

use crate::db::Conn;
use crate::suite::bank::Bank;

type Backend = <Conn as diesel::Connection>::Backend;

/// An entity on the bank's payments. On SQLite, which has one writer, the default timeout is one second.
macro_rules! entity {
    ($name:ident, $module:ident, timeout = $timeout:tt, $($settings:tt)*) => {
        #[derive(Debug, Clone, diesel::Queryable, diesel::Selectable, queueable::Queueable)]
        #[diesel(table_name = payments)]
        #[queue(module = $module, retry = fixed("1h"), max_tries = 3, timeout = $timeout, $($settings)*)]
        #[allow(dead_code, reason = "not every test looks at every column")]
        pub(crate) struct $name {
            pub(crate) id: i64,
            pub(crate) company_id: i64,
            pub(crate) amount_cents: i64,
        }
    };
    ($name:ident, $module:ident, $($settings:tt)*) => {
        entity!($name, $module, timeout = "30s", $($settings)*);
    };
}
use entity;

/// What a payment passes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, queueable::Stage)]
pub(crate) enum Step {
    Draw,
    Send,
    Book,
}

/// A bank whose payments are this entity's queue.
fn bank_of<Q>() -> Bank
where
    Q: StoredIn<Backend> + 'static,
{
    let bank = Bank::before_the_queue();
    bank.connect().run_pending_migrations(Migrations::new().entity::<Q>()).unwrap();
    bank
}

fn sql(bank: &Bank, statements: &str) {
    bank.connect().batch_execute(statements).unwrap_or_else(|error| panic!("{statements}: {error}"));
}

/// A session like a worker's.
fn session_of_a_worker(bank: &Bank) -> Conn {
    let timeout = Duration::from_secs(30);
    let limits =
        SessionLimits { lock_timeout: Duration::from_secs(5), timeout, statement_timeout: timeout, attempts: true };
    let mut session = bank.connect();
    session.prepare_session(limits).unwrap();
    session
}

/// The amounts that handlers have seen, in their order.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<i64>>>);

impl Seen {
    fn push(&self, amount: i64) {
        self.0.lock().unwrap().push(amount);
    }

    fn all(&self) -> Vec<i64> {
        self.0.lock().unwrap().clone()
    }
}
