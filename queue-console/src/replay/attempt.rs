//! One attempt of a worker, by a handler whose type nobody else knows.

use std::marker::PhantomData;
use std::time::Duration;

use queue_core::internals::testing::{Turned, Workbench};
use queue_core::{Filtered, HandlerFor, LoadsRows, QueueTable};
use queueable::testing::AttemptEnd;
use queueable::{Error, Event, Queueable};

use crate::database::Database;
use crate::filter::{Condition, Filter};

/// How long the row's lock may keep the replay waiting. MySQL counts whole seconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a worker comes back to the row: a group that is undone is handled again, one by one.
const TURNS: usize = 4;

/// What replays attempts of one queue.
pub(super) trait Replays<C>: Send + Sync {
    /// Makes the row due as it was before its last attempt, and locks it. Returns whether it could: a row that a worker holds stays
    /// as it is.
    fn prepare(&self, connection: &mut C, key: &Condition, tries: i32) -> Result<bool, Error>;

    /// Takes a worker's turns on the row, inside the open transaction.
    fn attempt(&self, connection: &mut C, key: &Condition) -> Result<Turned, Error>;
}

/// The handler of an entity.
pub(super) struct Handled<Q, H> {
    pub(super) handler: H,
    pub(super) entity: PhantomData<fn() -> Q>,
}

type TableOf<Q> = <<Q as queueable::Entity>::Queue as QueueTable>::Table;

impl<C, Q, H> Replays<C> for Handled<Q, H>
where
    C: Database + LoadsRows<Q, Filtered<Filter<TableOf<Q>>>>,
    Q: Queueable + 'static,
    H: HandlerFor<Q, C> + Sync,
{
    fn prepare(&self, connection: &mut C, key: &Condition, tries: i32) -> Result<bool, Error> {
        let row = Q::queue().filter(key.on(<Q::Queue as QueueTable>::TABLE)).wait(PATIENCE);
        match row.attempt_again(connection, tries) {
            Err(Error::Held(_)) => Ok(false),
            made => Ok(made? == 1),
        }
    }

    fn attempt(&self, connection: &mut C, key: &Condition) -> Result<Turned, Error> {
        let keys = || Q::queue().filter(key.on(<Q::Queue as QueueTable>::TABLE));
        let keys = keys().keys(connection)?;
        let mut bench = Workbench::new(connection);
        let served = bench.serve::<Q>(&self.handler)?;
        let mut all = Turned::default();
        for _ in 0..TURNS {
            bench.only::<Q>(served, keys.iter().cloned());
            let turned = bench.turn(served)?;
            let is_over = turned.is_idle || turned.is_trouble || turned.events.iter().any(is_end);
            all.is_trouble = turned.is_trouble;
            all.events.extend(turned.events);
            all.next = turned.next;
            all.enqueued.extend(turned.enqueued);
            if is_over {
                break;
            }
        }
        Ok(all)
    }
}

/// Whether the attempt has an end that stays.
fn is_end(event: &Event) -> bool {
    AttemptEnd::of(event).is_some() && !matches!(event, Event::Interrupted(_))
}
