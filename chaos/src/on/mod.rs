//! What is written once for a Diesel connection, for each of them.

pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod sqlite;
