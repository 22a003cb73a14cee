//! An entity's queue without its type: what every command asks, by the names of columns.

mod asked;
mod facts;
mod hidden;
mod key;
mod of;

pub(crate) use self::asked::{Asked, Author, Ends, Limiting, Line, Paging, Prepared, Queue, Rows, Scope, Shape, State};
pub(crate) use self::facts::Facts;
pub(crate) use self::of::Of;
