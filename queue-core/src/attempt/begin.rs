//! How an attempt begins: with the row that the end of the last message has locked, with a prefetched row that it locks
//! now, or with the plain claim.

use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use super::plan::Plan;
use crate::backend::{QueueConnection, Session};
use crate::claim::{LaneClaim, LowWaterFloor, PrefetchedRows, ReadRow, claim_one};
use crate::entity::Key;
use crate::statement::{ClaimFloor, Claimed};

impl<K: Key, C: QueueConnection> Plan<'_, K, C> {
    /// Claims a row. The transaction may have begun already, and the row may be locked already; then the handler's
    /// savepoint exists too. The flag tells whether it does.
    pub(super) fn begin_and_claim(&self, session: &mut Session<C>) -> QueryResult<Option<(Claimed<K>, bool)>> {
        let queue = self.served.queue;
        let claim = &self.claim;
        if let (Some(rows), Some(row)) = (claim.prefetched_rows, claim.next.take())
            && session.try_continue_locked()?
        {
            return self.take_up(session, rows, row).map(Some);
        }
        session.begin_message(queue)?;
        if let Some(rows) = claim.prefetched_rows
            && !(session.take_miss() && rows.try_give_way())
            && !claim.floor.is_some_and(LowWaterFloor::probes_below)
            && let Some((lock, row)) = self.next_row(session)
        {
            let is_locked = session.lock_next(&lock, "queueable_handler")?;
            rows.note_answer(is_locked);
            if is_locked {
                return self.take_up(session, rows, row).map(Some);
            }
        }
        let claimed = match (claim.places, claim.prefetched_keys) {
            (Some(places), _) => {
                let one = LaneClaim { limit: 1, locks: true, begins_again: true };
                places.claim(session, one, claim.scope)?.pop()
            }
            (None, Some(prefetched_keys)) => prefetched_keys.claim_some(queue, session, 1, claim.scope)?.pop(),
            (None, None) => claim_one(queue, session, claim.scope)?,
        };
        match (&claimed, claim.prefetched_rows) {
            (None, _) => C::TransactionManager::rollback_transaction(&mut **session)?,
            (Some(row), Some(rows)) => {
                rows.note_begin(&row.key);
                if session.prepared.lock_of(queue.id()).is_some() {
                    rows.replenish(queue, session, claim.scope)?;
                }
            }
            (Some(_), None) => {}
        }
        Ok(claimed.map(|row| (row, false)))
    }

    /// Continues with a prefetched row that is locked now.
    fn take_up(
        &self,
        session: &mut Session<C>,
        rows: &PrefetchedRows<K>,
        row: ReadRow<K>,
    ) -> QueryResult<(Claimed<K>, bool)> {
        let queue = self.served.queue;
        rows.note_begin_taken(&row);
        self.claim.floor.inspect(|floor| floor.note_claim(row.due(), row.due()));
        match self.claim.floor {
            // A prefetched row is not the look below the mark, so the next claim makes it. Prefetching from there would be
            // as slow.
            Some(floor) if floor.probes_below() => floor.pass_on(),
            _ => rows.replenish(queue, session, self.claim.scope)?,
        }
        Ok((row.into_claimed(), true))
    }

    /// Returns the next prefetched row, and the text that locks it.
    pub(super) fn next_row(&self, session: &Session<C>) -> Option<(String, ReadRow<K>)> {
        let queue = self.served.queue;
        let lock = session.prepared.lock_of(queue.id())?;
        let row = self.claim.prefetched_rows?.take(self.claim.scope.except)?;
        Some((format!("{lock}({})", row.lock()), row))
    }
}
