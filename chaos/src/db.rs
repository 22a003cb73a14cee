//! The databases, as the suite knows them: private servers, and databases on them.

#[allow(unused, reason = "the suite needs more of it")]
#[path = "../../tests/db/mysql.rs"]
pub(crate) mod mysql;
#[allow(unused, reason = "the suite needs more of it")]
#[path = "../../tests/db/postgres.rs"]
pub(crate) mod postgres;
#[allow(unused, reason = "the suite needs more of it")]
#[path = "../../tests/db/sqlite.rs"]
pub(crate) mod sqlite;
