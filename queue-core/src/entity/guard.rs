//! The guard: a condition on the domain's columns that is part of the claim.

use std::any::{Any, TypeId};
use std::fmt;
use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::expression::NonAggregate;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::sql_types::BoolOrNullableBool;
use diesel::{AppearsOnTable, Expression};

use crate::error::refused;

/// A condition in the SQL of one backend.
pub struct Guard<DB: Backend>(Result<Box<dyn QueryFragment<DB>>, NotOnThisDatabase>);

struct NotOnThisDatabase;

impl<DB: Backend> QueryFragment<DB> for Guard<DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        match &self.0 {
            Ok(condition) => condition.walk_ast(out),
            Err(NotOnThisDatabase) => {
                Err(refused("the condition in `when` cannot be written in this database's SQL".to_owned()))
            }
        }
    }
}

impl<DB: Backend> fmt::Debug for Guard<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// A condition on its way to be a [`Guard`], asked whether the backend `DB` can write it. The derive's code asks by a
/// method call: the impl for the value wins where the condition can be written, that for its reference elsewhere.
#[doc(hidden)]
pub struct GuardFor<DB, E>(Option<E>, PhantomData<fn() -> DB>);

impl<DB, E> GuardFor<DB, E> {
    pub fn new(condition: E) -> Self {
        GuardFor(Some(condition), PhantomData)
    }
}

#[doc(hidden)]
pub trait WritableGuard<DB: Backend> {
    fn take_guard(&mut self) -> Guard<DB>;
}

impl<DB: Backend, E: QueryFragment<DB> + 'static> WritableGuard<DB> for GuardFor<DB, E> {
    fn take_guard(&mut self) -> Guard<DB> {
        Guard(self.0.take().map(|condition| Box::new(condition) as _).ok_or(NotOnThisDatabase))
    }
}

#[doc(hidden)]
pub trait UnwritableGuard<DB: Backend> {
    fn take_guard(&mut self) -> Guard<DB>;
}

impl<DB: Backend, E> UnwritableGuard<DB> for &mut GuardFor<DB, E> {
    fn take_guard(&mut self) -> Guard<DB> {
        Guard(Err(NotOnThisDatabase))
    }
}

/// Takes a guard for the backend that the generic code around it calls `DB`.
#[doc(hidden)]
pub fn same_backend<DB: Backend + 'static, X: Backend + 'static>(
    guard: impl FnOnce() -> Guard<X>,
) -> Option<Guard<DB>> {
    if TypeId::of::<DB>() != TypeId::of::<X>() {
        return None;
    }
    let guard: Box<dyn Any> = Box::new(guard());
    guard.downcast().ok().map(|guard| *guard)
}

/// Holds when a guard is a condition on the table, whatever the database.
#[doc(hidden)]
pub fn assert_condition<T, E>(_condition: &E)
where
    E: Expression + AppearsOnTable<T> + NonAggregate + 'static,
    E::SqlType: BoolOrNullableBool,
{
}

/// The backends by names that the macros below can say wherever they are expanded.
#[doc(hidden)]
pub mod backends {
    #[cfg(feature = "mysql")]
    pub use diesel::mysql::Mysql;
    #[cfg(feature = "postgres")]
    pub use diesel::pg::Pg;
    #[cfg(feature = "sqlite")]
    pub use diesel::sqlite::Sqlite;
}

/// Writes a condition as the guard of the backend `$db`, if that is this one.
#[cfg(feature = "postgres")]
#[doc(hidden)]
#[macro_export]
macro_rules! guard_on_postgres {
    ($db:ty, $condition:expr) => {
        $crate::same_backend::<$db, $crate::backends::Pg>(|| {
            #[allow(unused_imports)]
            use $crate::{UnwritableGuard as _, WritableGuard as _};
            (&mut $crate::GuardFor::<$crate::backends::Pg, _>::new($condition)).take_guard()
        })
    };
}

/// Nothing, where this backend is not switched on.
#[cfg(not(feature = "postgres"))]
#[doc(hidden)]
#[macro_export]
macro_rules! guard_on_postgres {
    ($db:ty, $condition:expr) => {
        ::core::option::Option::None
    };
}

/// Writes a condition as the guard of the backend `$db`, if that is this one.
#[cfg(feature = "mysql")]
#[doc(hidden)]
#[macro_export]
macro_rules! guard_on_mysql {
    ($db:ty, $condition:expr) => {
        $crate::same_backend::<$db, $crate::backends::Mysql>(|| {
            #[allow(unused_imports)]
            use $crate::{UnwritableGuard as _, WritableGuard as _};
            (&mut $crate::GuardFor::<$crate::backends::Mysql, _>::new($condition)).take_guard()
        })
    };
}

/// Nothing, where this backend is not switched on.
#[cfg(not(feature = "mysql"))]
#[doc(hidden)]
#[macro_export]
macro_rules! guard_on_mysql {
    ($db:ty, $condition:expr) => {
        ::core::option::Option::None
    };
}

/// Writes a condition as the guard of the backend `$db`, if that is this one.
#[cfg(feature = "sqlite")]
#[doc(hidden)]
#[macro_export]
macro_rules! guard_on_sqlite {
    ($db:ty, $condition:expr) => {
        $crate::same_backend::<$db, $crate::backends::Sqlite>(|| {
            #[allow(unused_imports)]
            use $crate::{UnwritableGuard as _, WritableGuard as _};
            (&mut $crate::GuardFor::<$crate::backends::Sqlite, _>::new($condition)).take_guard()
        })
    };
}

/// Nothing, where this backend is not switched on.
#[cfg(not(feature = "sqlite"))]
#[doc(hidden)]
#[macro_export]
macro_rules! guard_on_sqlite {
    ($db:ty, $condition:expr) => {
        ::core::option::Option::None
    };
}
