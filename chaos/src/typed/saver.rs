//! An application that does not know of queues: it saves payments as it has loaded them some time ago.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use diesel::prelude::*;

use super::application::connect;
use crate::bank::{Locked, ledger, locked_queue, payments};
use crate::bars::stale_saves::Saved;

/// Loads payments that are to be worked soon, and saves them a little later as they were, again and again.
pub(crate) fn save_stale(url: &str, seed: u64, stop: &AtomicBool, stale: &AtomicU64) -> Result<Saved> {
    let connection = &mut connect(url)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut saved = Saved::default();
    while !stop.load(Ordering::Relaxed) {
        let loaded: Vec<Locked> = payments::table
            .filter(locked_queue::next_attempt_time.is_not_null())
            .order(locked_queue::next_attempt_time)
            .offset(random.i64(0..40))
            .limit(10)
            .select(Locked::as_select())
            .load(connection)?;
        thread::sleep(Duration::from_millis(random.u64(..60)));
        for payment in &loaded {
            let booked: i64 = ledger::table.filter(ledger::payment_id.eq(payment.id)).count().get_result(connection)?;
            diesel::update(payments::table.find(payment.id)).set(payment).execute(connection)?;
            saved.saves += 1;
            if booked > 0 {
                saved.stale += 1;
                stale.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(saved)
}
