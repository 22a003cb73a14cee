//! The settings that a handler may change on the session that it is lent, and how they are restored.

use diesel::Connection;
use diesel::result::QueryResult;

/// The settings of a session: how they are read and restored.
pub trait SessionSettings<DB = <Self as Connection>::Backend>: Connection {
    /// The settings as they were when the session was prepared. The default knows none, and restores none.
    type Settings: Default + Send + 'static;

    /// Whether a rollback to a savepoint undoes settings that were made after it.
    const SETTINGS_ROLL_BACK: bool;

    /// Reads the settings, outside any transaction.
    fn read_settings(&mut self) -> QueryResult<Self::Settings>;

    /// Restores the settings, inside a transaction or outside. `false`: some cannot be restored, so the session must
    /// not be used again.
    fn put_settings_back(&mut self, settings: &Self::Settings) -> QueryResult<bool>;

    /// Tells whether any setting has changed.
    fn has_other_settings(&mut self, settings: &Self::Settings) -> QueryResult<bool>;

    /// Runs the statement that ends a handler's savepoint, restores the settings before or after it, and runs the
    /// statement that may follow. `false`: some of the settings could not be restored.
    fn end_handler(
        &mut self,
        end: &'static str,
        then: Option<&'static str>,
        settings: &Self::Settings,
    ) -> QueryResult<bool>;
}
