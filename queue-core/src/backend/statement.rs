//! The queue's own statements, and how a connection runs one.
//!
//! Diesel compiles the code that runs a query anew for each type of query, and an entity has some forty of them. So all
//! of the queue's statements run as one type, [`Sql`], which holds any of them behind a reference.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use diesel::Connection;
use diesel::backend::Backend;
use diesel::connection::LoadConnection;
use diesel::deserialize::{self, FromSql, FromSqlRow, QueryableByName};
use diesel::expression::QueryMetadata;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{Error, QueryResult};
use diesel::row::{NamedRow, Row};
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use crate::error::panic_text;

/// One statement: its SQL and the values that it binds.
pub trait Statement<DB: Backend> {
    /// Writes the SQL and the values.
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()>;
}

/// A statement that binds no values is its text.
impl<DB: Backend> Statement<DB> for &str {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(self);
        Ok(())
    }
}

/// A statement as Diesel runs it. `Rows` is the SQL type of its rows, or `()` if it returns none. A session finds the prepared
/// statement by the type `Id`.
pub struct Sql<'a, DB: Backend, Rows = (), Id = ByText> {
    statement: &'a dyn Statement<DB>,
    types: PhantomData<fn() -> (Rows, Id)>,
}

/// A session finds the prepared statement by its text, which is written for every run.
pub struct ByText;

impl<'a, DB: Backend> Sql<'a, DB> {
    /// Makes a statement that returns no rows.
    pub fn new(statement: &'a dyn Statement<DB>) -> Self {
        Sql::typed(statement)
    }
}

impl<'a, DB: Backend, Rows, Id> Sql<'a, DB, Rows, Id> {
    fn typed(statement: &'a dyn Statement<DB>) -> Self {
        Sql { statement, types: PhantomData }
    }
}

impl<DB: Backend, Rows, Id> QueryFragment<DB> for Sql<'_, DB, Rows, Id> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.statement.walk_ast(out)
    }
}

impl<DB: Backend, Rows, Id> Query for Sql<'_, DB, Rows, Id> {
    type SqlType = Rows;
}

impl<DB: Backend, Rows, Id: QueryId> QueryId for Sql<'_, DB, Rows, Id> {
    type QueryId = Id::QueryId;
    const HAS_STATIC_QUERY_ID: bool = Id::HAS_STATIC_QUERY_ID;
}

impl QueryId for ByText {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// Runs a statement, and returns how many rows it has changed.
pub(crate) fn execute<C: Connection>(connection: &mut C, statement: &dyn Statement<C::Backend>) -> QueryResult<usize> {
    connection.execute_returning_count(&Sql::new(statement))
}

/// The same for a statement that runs for every message: a session finds it by the type `Id`.
pub(crate) fn execute_by_id<Id: QueryId, C: Connection>(
    connection: &mut C,
    statement: &dyn Statement<C::Backend>,
) -> QueryResult<usize> {
    connection.execute_returning_count(&Sql::<_, (), Id>::typed(statement))
}

/// A connection that reads rows of the SQL type `Rows` as values of type `U`.
pub trait Loads<Rows, U>: Connection {
    /// Runs a statement and reads its rows. A session finds it by the type `Id`.
    fn load<Id: QueryId>(&mut self, statement: &dyn Statement<Self::Backend>) -> QueryResult<Vec<U>>;
}

impl<C: LoadConnection<Backend: QueryMetadata<Rows>>, Rows, U: FromSqlRow<Rows, C::Backend>> Loads<Rows, U> for C {
    fn load<Id: QueryId>(&mut self, statement: &dyn Statement<C::Backend>) -> QueryResult<Vec<U>> {
        // Loops, because Diesel's and the library's code is compiled anew for each type of row, and adapters double it.
        let mut rows = Vec::new();
        for row in LoadConnection::load(self, Sql::<_, Rows, Id>::typed(statement))? {
            match U::build_from_row(&row?) {
                Ok(row) => rows.push(row),
                Err(error) => return Err(Error::DeserializationError(error)),
            }
        }
        Ok(rows)
    }
}

/// Reads the rows of a statement.
pub(crate) fn load<Rows, U, C: Loads<Rows, U>>(
    connection: &mut C,
    statement: &dyn Statement<C::Backend>,
) -> QueryResult<Vec<U>> {
    connection.load::<ByText>(statement)
}

/// Reads the first row of a statement.
pub(crate) fn load_first<Rows, U, C: Loads<Rows, U>>(
    connection: &mut C,
    statement: &dyn Statement<C::Backend>,
) -> QueryResult<Option<U>> {
    let mut rows = connection.load::<ByText>(statement)?;
    Ok(if rows.is_empty() { None } else { Some(rows.swap_remove(0)) })
}

/// A part of a row that may fail to decode without failing the row.
pub struct Captured<T>(pub(crate) Result<T, Box<dyn std::error::Error + Send + Sync>>);

impl<T> Captured<T> {
    /// Returns the decoded value.
    pub fn ok(self) -> Option<T> {
        self.0.ok()
    }

    /// Returns a reference to the decoded value.
    pub(crate) fn read(&self) -> Option<&T> {
        self.0.as_ref().ok()
    }

    /// Decodes. The user's conversions run here, and a panic in them is an error too.
    pub(crate) fn new(decode: impl FnOnce() -> deserialize::Result<T>) -> Self {
        Captured(
            catch_unwind(AssertUnwindSafe(decode))
                .unwrap_or_else(|panic| Err(format!("its decoding panicked: {}", panic_text(panic)).into())),
        )
    }
}

/// A key that may fail to decode without failing its row.
pub(crate) type CapturedKey<K> = Captured<(K,)>;

/// A text as the database has it. If it is not UTF-8, which only SQLite stores, the invalid parts are replaced.
#[derive(Debug, Clone, PartialEq, Eq, FromSqlRow)]
pub struct DatabaseText(pub(crate) String);

impl<DB: Backend> FromSql<Text, DB> for DatabaseText
where
    Vec<u8>: FromSql<Binary, DB>,
{
    fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
        let bytes = <Vec<u8> as FromSql<Binary, DB>>::from_sql(bytes)?;
        Ok(Self(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// A row of the audit as it is loaded: its time in microseconds since 1970 and as a text, and its number; who, why, the queue, the
/// action and the filter; and the number of rows.
pub(crate) type AuditRow =
    ((Option<i64>, DatabaseText, i64), (DatabaseText, DatabaseText, DatabaseText, DatabaseText, DatabaseText), i64);

/// The SQL type of an [`AuditRow`].
pub(crate) type AuditType = ((Nullable<BigInt>, Text, BigInt), (Text, Text, Text, Text, Text), BigInt);

/// Loads a [`Captured`] part from one backend's rows.
///
/// One impl per backend, because one for all would overlap with an impl of `Queryable` that another crate might write
/// for a backend of its own.
macro_rules! captured_on {
    ($backend:ty) => {
        const _: () = {
            use diesel::deserialize::{FromSqlRow, Result, StaticallySizedRow};
            use diesel::row::Row;
            use $crate::backend::statement::Captured;

            impl<T: FromSqlRow<(A, B, C, D), $backend>, A, B, C, D> FromSqlRow<(A, B, C, D), $backend> for Captured<T> {
                fn build_from_row<'a>(row: &impl Row<'a, $backend>) -> Result<Self> {
                    Ok(Self::new(|| T::build_from_row(row)))
                }
            }

            impl<T: FromSqlRow<(A,), $backend>, A> FromSqlRow<(A,), $backend> for Captured<T> {
                fn build_from_row<'a>(row: &impl Row<'a, $backend>) -> Result<Self> {
                    Ok(Self::new(|| T::build_from_row(row)))
                }
            }

            impl<T: StaticallySizedRow<(A,), $backend>, A> StaticallySizedRow<(A,), $backend> for Captured<T> {
                const FIELD_COUNT: usize = T::FIELD_COUNT;
            }
        };
    };
}

pub(crate) use captured_on;

/// The value of type `T` in a row of one column, whose SQL type is `ST`, whatever the column's name.
pub(crate) struct One<ST, T>(pub(crate) T, PhantomData<ST>);

impl<DB: Backend, ST, T: FromSql<ST, DB>> QueryableByName<DB> for One<ST, T> {
    fn build<'a>(row: &impl NamedRow<'a, DB>) -> deserialize::Result<Self> {
        Ok(One(Row::get_value::<ST, T, _>(row, 0)?, PhantomData))
    }
}
