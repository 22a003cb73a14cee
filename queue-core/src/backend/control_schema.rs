//! The control table: its name, its columns, and what a connection does about it.

use diesel::result::QueryResult;

use super::target::Step;

/// The name of the control table. It has no schema: a session finds it where it finds a new table of its own.
pub(crate) const CONTROL_TABLE: &str = "queueable_control";

/// The columns of the control table.
pub(crate) const CONTROL_COLUMNS: [&str; 6] =
    ["queue", "scope", "paused_at", "paused_until", "paused_by", "pause_reason"];

/// The DDL of the control table.
pub trait ControlSchema {
    /// Returns the step of a migration that creates the control table.
    fn control_step() -> Step
    where
        Self: Sized;

    /// Creates the control table, unless it exists.
    ///
    /// # Errors
    ///
    /// If another table has its name.
    fn add_control(&mut self) -> QueryResult<()>;

    /// Drops the control table, if it exists.
    fn remove_control(&mut self) -> QueryResult<()>;

    /// Tells whether there is a control table that this session can see, without a read of it.
    fn has_control(&mut self) -> QueryResult<bool>;
}
