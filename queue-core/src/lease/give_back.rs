//! Gives leased rows back as they were before their claim: due, with no try used.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::leased_rows::LeasedRow;
use super::runner::LeaseRunner;
use crate::attempt::in_transaction;
use crate::backend::{QueueConnection, SessionHolder};
use crate::entity::Key;
use crate::error::Error;
use crate::handler::LeaseLost;
use crate::row::failure_text;
use crate::statement::{Change, Next};

/// How many rows one transaction gives back at most. A thousand calls may be in flight when a poller shuts down, and it
/// waits for a second at most.
const TOGETHER: usize = 100;

impl<K: Key, C: QueueConnection> LeaseRunner<K, C> {
    /// Gives a row back. Returns whether the database has answered.
    pub(crate) fn give_back(&self, holder: &mut SessionHolder<C>, held: &Arc<LeasedRow<K>>) -> bool {
        let given = self.write_back(holder, slice::from_ref(held));
        if let Err(error) = &given {
            // The row becomes due when its lease ends.
            self.warn(&format!("a row cannot be given back: {}", failure_text(error, 500)));
            holder.close();
        }
        self.leased_rows.remove(held);
        given.is_ok()
    }

    /// Gives several rows back, if possible with few transactions.
    pub(crate) fn give_back_all(&self, holder: &mut SessionHolder<C>, held: &[Arc<LeasedRow<K>>]) {
        for held in held.chunks(TOGETHER) {
            let together = self.write_back(holder, held).inspect_err(|_| holder.close());
            for held in held {
                match &together {
                    Ok(()) => self.leased_rows.remove(held),
                    // It may be the fault of one of them.
                    Err(_) => drop(self.give_back(holder, held)),
                }
            }
        }
    }

    /// Writes rows back in one transaction. Those that belong to another attempt by now are left alone.
    fn write_back(&self, holder: &mut SessionHolder<C>, held: &[Arc<LeasedRow<K>>]) -> Result<(), Error> {
        let held: Vec<_> = held.iter().filter(|held| held.clock.ended() != Some(LeaseLost::Overtaken)).collect();
        if held.is_empty() {
            return Ok(());
        }
        let _writing = self.turn_to_write();
        let session = holder.session()?;
        in_transaction(&mut **session, |connection| {
            held.iter().try_for_each(|held| {
                let change = Change {
                    status: Some(held.before.status),
                    next: Some(held.due.map_or(Next::In(Duration::ZERO), Next::At)),
                    try_count: Some(held.before.try_count),
                    unless_stopped: true,
                    ..Change::default()
                };
                self.queue.settle(connection, &held.key, held.fence, &change).map(drop)
            })
        })?;
        // The rows may have been due below the low-water mark.
        held.iter().filter_map(|held| held.due).for_each(|due| self.due_rows.low_water.fall(due));
        Ok(())
    }
}
