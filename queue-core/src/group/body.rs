//! The handler of a group, without the type of its entities.

use std::cmp::Ordering;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::{thread, vec};

use crate::entity::Entity;
use crate::erased_entity::{ErasedEntity, opened, unboxed};
use crate::handler::{Group, Handler, HandlerResult, Message, drop_safely};

/// The entities of a group, which the user's code drops one by one: each of them may panic.
pub(crate) struct Entities(pub(super) vec::IntoIter<ErasedEntity>);

impl Entities {
    pub(super) fn new(entities: Vec<ErasedEntity>) -> Self {
        Entities(entities.into_iter())
    }
}

impl Drop for Entities {
    fn drop(&mut self) {
        self.0.by_ref().for_each(drop_safely);
    }
}

/// The code that handles the messages of a group.
pub(crate) trait GroupBody<C>: Send + Sync {
    /// Handles one of them.
    fn handle(&self, entity: &ErasedEntity, message: &mut Message<'_, C>) -> HandlerResult;

    /// Offers all of them to the handler. An error is its panic.
    fn handle_group(
        &self,
        entities: &mut Entities,
        group: &mut Group<'_, C>,
    ) -> thread::Result<Option<Vec<HandlerResult>>>;

    /// Compares two entities in the order in which the group handles them.
    fn compare(&self, one: &ErasedEntity, other: &ErasedEntity) -> Ordering;
}

impl<Q: Entity + Send + 'static, C> GroupBody<C> for Arc<dyn Handler<Q, C>> {
    fn handle(&self, entity: &ErasedEntity, message: &mut Message<'_, C>) -> HandlerResult {
        (**self).handle(opened(entity), message)
    }

    fn handle_group(
        &self,
        entities: &mut Entities,
        group: &mut Group<'_, C>,
    ) -> thread::Result<Option<Vec<HandlerResult>>> {
        let opened: Vec<Q> = entities.0.by_ref().map(unboxed).collect();
        let answer = catch_unwind(AssertUnwindSafe(|| (**self).handle_group(&opened, group)));
        // Whatever it has answered, they may have to be handled one by one.
        entities.0 = opened.into_iter().map(|entity| Box::new(entity) as _).collect::<Vec<_>>().into_iter();
        answer
    }

    fn compare(&self, one: &ErasedEntity, other: &ErasedEntity) -> Ordering {
        opened::<Q>(one).compare_in_group(opened(other))
    }
}
