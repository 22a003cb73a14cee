//! What is typed by its connection, on MySQL and MariaDB.

pub(crate) type Conn = diesel::MysqlConnection;

#[path = "../typed/mod.rs"]
pub(crate) mod typed;
