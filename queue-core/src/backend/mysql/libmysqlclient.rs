//! Diesel's own connection, through libmysqlclient or libmariadb.

use diesel::connection::AnsiTransactionManager;
use diesel::mysql::MysqlConnection;
use diesel::result::QueryResult;

use super::mysql_session::MysqlSession;
use crate::backend::connection::QueueConnection;

impl MysqlSession for MysqlConnection {
    fn begin_with(&mut self, begin: &str) -> QueryResult<()> {
        AnsiTransactionManager::begin_transaction_sql(self, begin)
    }
}

impl QueueConnection for MysqlConnection {}
