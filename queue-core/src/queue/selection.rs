//! Which rows an operation concerns: none named yet, those of a filter, or all by name.

use crate::statement::And;

/// Which rows a domain filter picks.
pub trait Selection {
    /// The filter's type.
    type Filter;

    /// The filter, if there is one.
    fn filter(&self) -> Option<&Self::Filter>;
}

/// A selection that somebody has thought about: a filter, or all rows by name.
#[diagnostic::on_unimplemented(
    message = "this call changes rows, and nothing says which",
    note = "add `.filter(..)` with a condition on the table, or say `.all_rows()`"
)]
pub trait Chosen: Selection {}

/// No domain filter was given yet: enough to read, too little to change.
#[derive(Debug, Clone, Copy)]
pub struct AllFilters;

/// All rows, by name.
#[derive(Debug, Clone, Copy)]
pub struct EveryRow;

/// The rows that a filter picks.
#[derive(Debug, Clone, Copy)]
pub struct Filtered<E>(pub(crate) E);

/// Stands where a filter's type is needed and none is given.
pub type NoFilter = And<(), ()>;

impl Selection for AllFilters {
    type Filter = NoFilter;

    fn filter(&self) -> Option<&NoFilter> {
        None
    }
}

impl Selection for EveryRow {
    type Filter = NoFilter;

    fn filter(&self) -> Option<&NoFilter> {
        None
    }
}

impl<E> Selection for Filtered<E> {
    type Filter = E;

    fn filter(&self) -> Option<&E> {
        Some(&self.0)
    }
}

impl Chosen for EveryRow {}

impl<E> Chosen for Filtered<E> {}
