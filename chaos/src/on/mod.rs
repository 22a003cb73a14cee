//! The code that is typed by its connection, mounted once for each kind of connection.

pub(crate) mod async_postgres;
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod sqlite;
