//! The queue's own statements, and how a connection runs one.
//!
//! Diesel compiles the code that runs a query anew for each type of query, and an entity has some forty of them. So all
//! of the queue's statements run as one type, [`Sql`], which holds any of them behind a reference.

use std::marker::PhantomData;

use diesel::Connection;
use diesel::backend::Backend;
use diesel::connection::LoadConnection;
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{Error, QueryResult};

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
