//! Operations on a queue's rows, picked by domain filters.

use std::marker::PhantomData;

/// The rows of a queue that an operation concerns.
pub struct Queue<Q, F> {
    filter: F,
    entity: PhantomData<fn() -> Q>,
}

/// No filter was given yet.
#[derive(Debug, Clone, Copy)]
pub struct AllFilters;

impl<Q> Queue<Q, AllFilters> {
    pub(crate) fn new() -> Self {
        Queue { filter: AllFilters, entity: PhantomData }
    }
}
