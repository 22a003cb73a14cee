//! What is typed by its connection, on MySQL and MariaDB.

pub(crate) type Conn = diesel::MysqlConnection;

pub(crate) const DIALECT: crate::session::Dialect = crate::session::Dialect::Mysql;

#[path = "../typed/mod.rs"]
pub(crate) mod typed;
