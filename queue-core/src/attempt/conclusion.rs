//! The result of an attempt whose transaction was gone.

use crate::row::Settlement;

/// The result of an attempt whose transaction was gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conclusion {
    /// The row's new state is committed.
    Settled(Settlement),
    /// Nothing was recorded; the row is due again, now or a little later.
    Interrupted,
    /// Another session has changed the row meanwhile, so there was nothing to write.
    Overtaken,
    /// The database refuses to write this on this row. `is_noted`: the row is due later, and gives the reason if the
    /// database allows that.
    Refused { is_noted: bool },
    /// Nothing is written on the row although the database reports no error: a trigger keeps it as it is.
    Kept,
}
