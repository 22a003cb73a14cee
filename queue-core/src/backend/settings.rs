//! What a handler may set on the session that it is lent, and how that is put back.

use diesel::result::QueryResult;

/// The settings of a session: which there are, and how they are read and put back.
pub trait SessionSettings {
    /// The settings as they were when the session was prepared. The default knows none, and puts none back.
    type Settings: Default + Send + 'static;

    /// Whether a return to a savepoint undoes what was set after it.
    const SETTINGS_ROLL_BACK: bool;

    /// Reads the settings, outside of any transaction.
    fn read_settings(&mut self) -> QueryResult<Self::Settings>;

    /// Puts the settings back, in a transaction or outside. `false`: some cannot be, so the session is of no further use.
    fn put_settings_back(&mut self, settings: &Self::Settings) -> QueryResult<bool>;

    /// Whether anything is set otherwise.
    fn has_other_settings(&mut self, settings: &Self::Settings) -> QueryResult<bool>;

    /// Runs the statement that ends a handler's savepoint, puts the settings back, before or after it, and runs the statement
    /// that may follow.
    /// `false`: some of the settings could not be put back.
    fn end_handler(
        &mut self,
        end: &'static str,
        then: Option<&'static str>,
        settings: &Self::Settings,
    ) -> QueryResult<bool>;
}
