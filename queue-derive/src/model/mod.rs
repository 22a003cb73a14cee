//! Model: the struct as Diesel reads it, and what the `#[queue(..)]` attributes say about it.

mod model;
mod optional_columns;
mod types;

pub(crate) use self::model::{Field, KeyColumn, Model};
pub(crate) use self::optional_columns::{OptionalColumn, named_columns, plain};
