//! The code that is typed by its connection, mounted once for each database.

pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod sqlite;
