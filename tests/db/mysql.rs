//! The tests' database: MySQL and MariaDB through libmysqlclient or libmariadb.

#[path = "mariadb.rs"]
mod mariadb;

pub(crate) use self::mariadb::*;

/// The connection that the tests of this root use.
pub(crate) type Conn = diesel::mysql::MysqlConnection;
