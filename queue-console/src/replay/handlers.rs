//! The handlers that the application gives its console.

use std::marker::PhantomData;

use diesel::Connection;
use queue_core::internals::by_name::queue_name_of;
use queue_core::{Filtered, HandlerFor, LoadsRows, QueueTable, StoredIn};

use super::attempt::{Handled, Replays};
use crate::console::{Console, Operable};
use crate::database::Database;
use crate::filter::Filter;

/// The handlers, each with the name of its queue.
pub(crate) struct Handlers<C>(Vec<(String, Box<dyn Replays<C>>)>);

impl<C> Default for Handlers<C> {
    fn default() -> Self {
        Handlers(Vec::new())
    }
}

impl<C> Handlers<C> {
    /// Returns the handler of a queue; the last one, if it has several.
    pub(super) fn of(&self, queue: &str) -> Option<&dyn Replays<C>> {
        self.0.iter().rev().find(|(of, _)| of == queue).map(|(_, handler)| &**handler)
    }
}

/// An entity whose attempts the console can replay on a connection: every one that it can operate there.
#[diagnostic::on_unimplemented(
    message = "the console cannot replay attempts of `{Self}` on `{C}`",
    note = "the entity derives `Queryable`, `Selectable` and `Queueable`, and all its fields can be read on this database"
)]
pub trait Replayable<C: Database>: Operable<C> {
    #[doc(hidden)]
    fn replayed(handler: impl HandlerFor<Self, C> + Sync + 'static) -> Result<Replayed<C>, String>;
}

/// A handler without its type, and the name of its queue.
#[doc(hidden)]
pub struct Replayed<C>(String, Box<dyn Replays<C>>);

type TableOf<Q> = <<Q as queueable::Entity>::Queue as QueueTable>::Table;

#[diagnostic::do_not_recommend]
impl<C, Q> Replayable<C> for Q
where
    C: Database + LoadsRows<Q, Filtered<Filter<TableOf<Q>>>>,
    Q: Operable<C> + StoredIn<<C as Connection>::Backend> + 'static,
{
    fn replayed(handler: impl HandlerFor<Self, C> + Sync + 'static) -> Result<Replayed<C>, String> {
        let queue = queue_name_of::<Q, C::Backend>().map_err(|error| error.to_string())?;
        Ok(Replayed(queue, Box::new(Handled { handler, entity: PhantomData })))
    }
}

impl<C: Database> Console<C> {
    /// Adds the handler of an entity, for the command `replay`: the same handler or closure as
    /// [`Poller::serve`](queueable::Poller::serve) takes, in lease mode a lease handler or two closures. It handles the console's own
    /// kind of connection.
    ///
    /// `replay payments 42 --rollback` makes the last attempt of a row again, by the worker's own code, and rolls everything back: for a
    /// debugger, or to see whether a mended handler would now succeed. No other command calls a handler.
    ///
    /// The entity comes first: without an [`entity`](Self::entity) of this type, the console does not run.
    ///
    /// It needs the feature `replay`, which switches on queueable's `testing` in the whole build: the worker's code then asks at some
    /// points of an attempt whether a test has moved its clock. It is not on by default, so that a service in the same build does not.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// # use queueable::{HandlerResult, Message, Outcome, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// use queueable_console::Console;
    ///
    /// fn charge(payment: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    ///     println!("payment {}, try {}", payment.id, message.try_number());
    ///     Ok(Outcome::Done)
    /// }
    ///
    /// fn main() -> queueable_console::Result {
    ///     Console::<SqliteConnection>::new().entity::<Payment>().handler::<Payment>(charge).run()
    /// }
    /// ```
    pub fn handler<Q: Replayable<C>>(self, handler: impl HandlerFor<Q, C> + Sync + 'static) -> Self {
        self.with(|parts| match Q::replayed(handler) {
            Ok(Replayed(queue, handler)) if parts.queues.iter().any(|of| of.facts().queue == queue) => {
                parts.handlers.0.push((queue, handler));
            }
            Ok(_) => {
                let entity = Q::ENTITY;
                parts.broken = Some(format!(
                    "{entity} has a handler and no queue in this console: write `.entity::<{entity}>()` before `.handler::<{entity}>(..)`"
                ));
            }
            Err(error) => parts.broken = Some(error),
        })
    }
}
