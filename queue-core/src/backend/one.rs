//! A row of one column.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, QueryableByName};
use diesel::row::{NamedRow, Row};

/// The value of type `T` in a row of one column, whose SQL type is `ST`, whatever the column's name.
pub(crate) struct One<ST, T>(pub(crate) T, PhantomData<ST>);

impl<DB: Backend, ST, T: FromSql<ST, DB>> QueryableByName<DB> for One<ST, T> {
    fn build<'a>(row: &impl NamedRow<'a, DB>) -> deserialize::Result<Self> {
        Ok(One(Row::get_value::<ST, T, _>(row, 0)?, PhantomData))
    }
}
