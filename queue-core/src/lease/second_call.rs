//! The call of a handler; and a second call of the same row while the first one runs, as after a lost lease, if a test of the
//! application's wants to see that.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::leased_rows::LeasedRow;
use super::runner::LeaseRunner;
use crate::backend::{QueueConnection, SessionHolder};
use crate::entity::Key;
use crate::handler::{Answer, Failure, Lease, drop_safely};
use crate::statement::Claimed;
use crate::sync::ErasedEntity;
use crate::sync::in_test::{offer_second_call, wants_second_call};

impl<K: Key, C: QueueConnection> LeaseRunner<'_, K, C> {
    /// Calls the handler. A second call has its own copy of the entity, and its answer is lost.
    pub(super) fn call(
        &self,
        holder: &mut SessionHolder<C>,
        held: &LeasedRow<K>,
        entity: &ErasedEntity,
        lease: &Lease,
    ) -> Result<Answer, Failure> {
        let handler = &*self.handler;
        if !wants_second_call() {
            return handler.call(entity, lease);
        }
        let read = self.served.queue.retake(holder.session()?, &held.key, held.fence)?;
        let Some(Claimed { message: Ok((copy, state)), .. }) = read else { return handler.call(entity, lease) };
        let (clock, details, idempotency_key) =
            (lease.clock.clone(), lease.details.clone(), lease.idempotency_key.clone());
        let second =
            Lease { clock, state, details, try_number: lease.try_number, idempotency_key, timeout: lease.timeout };
        thread::scope(|scope| {
            // Withdrawn before the thread is waited for.
            let (_offered, begins, ends) = offer_second_call();
            scope.spawn(move || {
                if begins.recv().is_ok() {
                    drop_safely(catch_unwind(AssertUnwindSafe(|| drop(handler.call(&copy, &second)))));
                    // Nobody waits any more if the first call has panicked.
                    let _ = ends.send(());
                }
            });
            handler.call(entity, lease)
        })
    }
}
