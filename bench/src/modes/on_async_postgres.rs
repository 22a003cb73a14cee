//! The async handler on PostgreSQL through diesel-async.

use std::sync::Arc;

use anyhow::Result;
use contestant::{Handler as Does, Meter, Work};
use diesel::ExpressionMethods;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use queueable::{Async, AsyncPgSession, Message, Outcome, Poller, PollerHandle};

use crate::table::{Single, ledger};

/// Starts the poller of an application that has tokio and no libpq.
pub(super) fn start(
    pool: Pool<ConnectionManager<AsyncPgSession>>,
    work: &Work,
    meter: &Arc<Meter>,
) -> Result<PollerHandle> {
    let (meter, does) = (meter.clone(), work.handler);
    let book = async move |payment: &Single, message: &mut Message<'_, AsyncPgConnection>| {
        meter.handled(payment.number);
        if does == Does::Ledger {
            let row = (ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(payment.amount_cents));
            diesel::insert_into(ledger::table).values(row).execute(message.connection()).await?;
        }
        Ok(Outcome::Done)
    };
    Ok(Poller::new(pool).workers(work.workers).serve::<Single>(Async(book)).start()?)
}
