//! The backends under names that a macro can use wherever it is expanded, even for features that are off.

#[cfg(feature = "_mysql")]
pub use diesel::mysql::Mysql;
#[cfg(feature = "_postgres")]
pub use diesel::pg::Pg;
#[cfg(feature = "sqlite")]
pub use diesel::sqlite::Sqlite;

#[cfg(not(feature = "_mysql"))]
pub use self::absent::Mysql;
#[cfg(not(feature = "_postgres"))]
pub use self::absent::Pg;
#[cfg(not(feature = "sqlite"))]
pub use self::absent::Sqlite;

pub use self::absent::IsAbsent;

/// Stands in for a backend whose feature is off: no condition can be written for it, and no code asks for one.
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "hidden, and needed for a backend that is not switched on only"
)]
mod absent {
    pub enum Mysql {}
    pub enum Pg {}
    pub enum Sqlite {}

    /// A backend whose feature is off.
    pub trait IsAbsent {}

    impl IsAbsent for Mysql {}

    impl IsAbsent for Pg {}

    impl IsAbsent for Sqlite {}
}
