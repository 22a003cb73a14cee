//! A session that only reports waits for nobody for long.

use std::time::Duration;

use diesel::prelude::*;
use queue_core::internals::by_name::{is_timeout, limit_session};
use queueable::Error;

use super::pages::{insert, tickets, tickets_of};
use crate::db::Conn;

#[test]
fn a_limited_session_waits_for_no_lock_and_knows_that_from_a_long_statement() {
    let (database, mut connection) = tickets_of();
    insert(&mut connection, &[("FAILED", "NULL", "NULL", "'no route'")]);
    limit_session(&mut connection, Duration::from_secs(600), Duration::from_millis(100)).unwrap();
    let change =
        |connection: &mut Conn| diesel::update(tickets::table).set(tickets::company_id.eq(8)).execute(connection);
    database
        .connect()
        .transaction(|holder| {
            change(holder)?;
            // Without the limit this would wait for the holder, which waits for this.
            let error = change(&mut connection).unwrap_err();
            assert!(!is_timeout::<Conn>(&Error::Database(error)));
            diesel::QueryResult::Ok(())
        })
        .unwrap();
    assert_eq!(change(&mut connection), Ok(1));
}
