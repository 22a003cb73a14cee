//! Which rows an operation applies to: not chosen yet, those of a filter, or explicitly all.

use crate::statement::And;

/// The rows that a domain filter picks.
pub trait Selection {
    /// The filter's type.
    type Filter;

    /// Returns the filter, if there is one.
    fn filter(&self) -> Option<&Self::Filter>;
}

/// A selection that the caller has chosen explicitly: a filter, or all rows.
#[diagnostic::on_unimplemented(
    message = "this call changes rows, and nothing says which",
    label = "needs a filter, or `.all_rows()`",
    note = "add `.filter(..)` with a condition on the table, or say `.all_rows()`"
)]
pub trait Chosen: Selection {}

/// No domain filter yet: enough for reading, too little for changing.
#[derive(Debug, Clone, Copy)]
pub struct AllFilters;

/// All rows, chosen explicitly.
#[derive(Debug, Clone, Copy)]
pub struct EveryRow;

/// The rows that a filter picks.
#[derive(Debug, Clone, Copy)]
pub struct Filtered<E>(pub(crate) E);

/// Stands in for a filter's type if there is no filter.
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
