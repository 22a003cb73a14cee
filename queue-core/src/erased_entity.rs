//! An entity in a box, for code that is compiled once for all entities.

use std::any::Any;

/// An entity in a box, whose type its runner knows.
pub type ErasedEntity = Box<dyn Any + Send>;

/// Takes an entity of a known type out of its box.
pub(crate) fn unboxed<Q: 'static>(entity: ErasedEntity) -> Q {
    *entity.downcast().unwrap_or_else(|_| unreachable!("a runner reads entities of its own type"))
}

/// Returns the entity in a box, whose type its runner knows.
pub(crate) fn opened<Q: 'static>(entity: &ErasedEntity) -> &Q {
    entity.downcast_ref().expect("a runner reads entities of its own type")
}
