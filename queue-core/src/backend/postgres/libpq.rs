//! Diesel's own connection, through libpq.

use diesel::connection::AnsiTransactionManager;
use diesel::pg::PgConnection;
use diesel::result::QueryResult;

use super::pg_session::PgSession;
use crate::backend::connection::QueueConnection;

impl PgSession for PgConnection {
    const SEES_END_OF_TRANSACTION: bool = true;

    fn begin_with(&mut self, begin: &str) -> QueryResult<()> {
        AnsiTransactionManager::begin_transaction_sql(self, begin)
    }

    fn notified_channels(&mut self) -> QueryResult<Vec<String>> {
        let mut channels = Vec::new();
        for notification in self.notifications_iter() {
            let channel = notification?.channel;
            // There may be thousands of equal ones.
            if !channels.contains(&channel) {
                channels.push(channel);
            }
        }
        Ok(channels)
    }
}

impl QueueConnection for PgConnection {}
