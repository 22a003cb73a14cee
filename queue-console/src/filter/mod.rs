//! The language of `--where`: a condition on the rows of an entity's table, in SQL's own words.
//!
//! A text becomes tokens, the tokens a [`Condition`] over columns and typed values, and the condition an expression of
//! Diesel, in which every value is bound. `docs/filter.md` describes the language.

mod column;
mod condition;
mod input;
mod lexer;
mod literal;
#[cfg(feature = "mysql")]
mod mysql;
mod operand;
mod parser;
mod parts;
#[cfg(feature = "postgres")]
mod postgres;
mod refused;
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod time;
mod value;

pub(crate) use self::column::{Column, Columns};
pub(crate) use self::condition::Condition;
pub(crate) use self::parser::parse;
pub(crate) use self::parts::ValueOf;
#[cfg(test)]
#[allow(unused_imports, reason = "the tests of the language mount this file and name it")]
pub(crate) use self::refused::Refused;
pub(crate) use self::sql::{Filter, FilterSql};
pub(crate) use self::time::with_offset;
pub(crate) use self::value::Value;
