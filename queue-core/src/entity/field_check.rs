//! The derive's check that each field can be read from its column, on one of the databases that are switched on.
//!
//! No bound can ask for one of several backends. So the derive's code calls the method `check` of a [`Probe`] behind
//! eight references. The compiler tries the impls for most references first, and takes the first that applies:
//!
//! 1. No database is switched on, so nothing is known.
//! 2. The entity can be read. It may be read by an impl of the user's, whatever its fields are.
//! 3. The field can be read.
//! 4. What is left is a mistake, and the call a compile error.

use std::marker::PhantomData;

use diesel::Selectable;
use diesel::backend::Backend;
use diesel::deserialize::FromSqlRow;
use diesel::dsl::SqlTypeOf;
use diesel::expression::{AsExpression, Expression, TypedExpressionType};
use diesel::sql_types::SqlType;

use super::selection::SelectableEntity;
use crate::backend::backends::{IsAbsent, Mysql, Pg, Sqlite};

/// Asks `What` of the entity `E`, the type `T` as which one of its fields is read, and the column's SQL type `S`. The
/// question [`OfEntity`] has the tuples of all fields and columns instead.
#[doc(hidden)]
pub struct Probe<What, E, T, S, A = Pg, B = Mysql, C = Sqlite> {
    subject: PhantomData<(What, E, T, S)>,
    databases: PhantomData<(A, B, C)>,
}

impl<What, E, T, S> Probe<What, E, T, S> {
    /// Makes one.
    #[expect(clippy::new_without_default, reason = "only the derive makes one")]
    pub const fn new() -> Self {
        Probe { subject: PhantomData, databases: PhantomData }
    }
}

/// Does the field fit its column?
#[doc(hidden)]
pub enum OfField {}

/// Does the key's field fit its column? If it cannot even be compared with it, [`KeyColumn`](super::column::KeyColumn) says so.
#[doc(hidden)]
pub enum OfKey {}

/// Is the entity `Queryable`? If one of its fields does not fit, the entity is not accused too.
#[doc(hidden)]
pub enum OfEntity {}

/// A type that can be read from a column. It has no impl: it exists for its error message.
#[diagnostic::on_unimplemented(
    message = "a field of type `{Self}` cannot be read from its column of type `{S}`",
    label = "does not fit the column, `{S}`",
    note = "compare it with the column's type in `table!`; https://docs.diesel.rs/2.3.x/diesel/sql_types/index.html has the Rust types \
            of each SQL type, and a `Nullable` column takes an `Option`",
    note = "a type of your own derives `FromSqlRow` and implements `FromSql`, or the field has `#[diesel(deserialize_as = ..)]`",
    note = "a borrowed field is read as an owned one: `String` or `Cow<'a, str>` in place of `&'a str`",
    note = "it has to fit on one of the databases that queueable's features switch on"
)]
#[doc(hidden)]
pub trait FitsColumn<S> {}

/// An entity that is `Queryable`. It has no impl: it exists for its error message.
#[diagnostic::on_unimplemented(
    message = "the queue cannot read `{Self}`, because it is not `Queryable`",
    label = "this entity is not `Queryable`",
    note = "add `#[derive(Queryable)]` beside `#[derive(Selectable, Queueable)]`"
)]
#[doc(hidden)]
pub trait QueryableEntity {}

/// An entity that Diesel can read from one kind of database.
#[doc(hidden)]
pub trait Readable<DB> {}

impl<E, DB> Readable<DB> for E
where
    DB: Backend,
    E: Selectable<DB, SelectExpression: Expression> + FromSqlRow<SqlTypeOf<E::SelectExpression>, DB>,
{
}

/// A type as which Diesel can read a column of one kind of database.
#[doc(hidden)]
pub trait Fits<S, DB> {}

impl<T: FromSqlRow<S, DB>, S, DB: Backend> Fits<S, DB> for T {}

/// A question about one field.
#[doc(hidden)]
pub trait AboutField {}

impl AboutField for OfField {}

impl AboutField for OfKey {}

/// An answer without fault.
#[doc(hidden)]
pub trait NoFault {
    /// Finds nothing wrong.
    fn check(&self) {}
}

// No database is switched on.
impl<What, E, T, S, A: IsAbsent, B: IsAbsent, C: IsAbsent> NoFault for &&&&&&&Probe<What, E, T, S, A, B, C> {}

// One of the databases reads the entity.
impl<What, E: Readable<A>, T, S, A, B, C> NoFault for &&&&&&Probe<What, E, T, S, A, B, C> {}

impl<What, E: Readable<B>, T, S, A, B, C> NoFault for &&&&&Probe<What, E, T, S, A, B, C> {}

impl<What, E: Readable<C>, T, S, A, B, C> NoFault for &&&&Probe<What, E, T, S, A, B, C> {}

// One of the databases reads the field.
impl<What: AboutField, E, T: Fits<S, A>, S, A, B, C> NoFault for &&&Probe<What, E, T, S, A, B, C> {}

impl<What: AboutField, E, T: Fits<S, B>, S, A, B, C> NoFault for &&Probe<What, E, T, S, A, B, C> {}

impl<What: AboutField, E, T: Fits<S, C>, S, A, B, C> NoFault for &Probe<What, E, T, S, A, B, C> {}

impl<E, T, S, A, B, C> Probe<OfField, E, T, S, A, B, C> {
    /// Does not compile.
    pub fn check(&self)
    where
        T: FitsColumn<S>,
    {
    }
}

impl<E, T, S, A, B, C> Probe<OfKey, E, T, S, A, B, C>
where
    S: SqlType + TypedExpressionType,
    T: AsExpression<S>,
{
    /// Does not compile.
    pub fn check(&self)
    where
        T: FitsColumn<S>,
    {
    }
}

// Another check has said what is wrong.
impl<E, T, S, A, B, C> NoFault for Probe<OfKey, E, T, S, A, B, C> {}

impl<E, T, S, A, B, C> NoFault for Probe<OfEntity, E, T, S, A, B, C> {}

/// An entity that a database does not read, although it reads the fields.
#[doc(hidden)]
pub trait NotQueryable<E> {
    /// Does not compile.
    fn check(&self)
    where
        E: QueryableEntity,
    {
    }
}

impl<E: SelectableEntity<A>, T: Fits<S, A>, S, A, B, C> NotQueryable<E> for &Probe<OfEntity, E, T, S, A, B, C> {}

impl<E: SelectableEntity<B>, T: Fits<S, B>, S, A, B, C> NotQueryable<E> for &&Probe<OfEntity, E, T, S, A, B, C> {}

impl<E: SelectableEntity<C>, T: Fits<S, C>, S, A, B, C> NotQueryable<E> for &&&Probe<OfEntity, E, T, S, A, B, C> {}
