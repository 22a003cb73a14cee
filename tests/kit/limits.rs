//! What a test in a transaction cannot have, the kit says at once.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::testing::TestQueue;
use queueable::{Error, Message, Outcome, Queueable};

use super::shop::{Payment, migrated, payments};
use crate::db::{Conn, NAME};

#[test]
fn ddl_in_a_handler_is_rolled_back_with_the_test_or_named_where_it_commits() {
    // One of its own, because MySQL commits.
    let database = migrated();
    let mut connection = database.connect();
    connection.begin_test_transaction().unwrap();
    let payment = (payments::company_id.eq(1), payments::amount_cents.eq(1), Payment::due_now());
    diesel::insert_into(payments::table).values(payment).execute(&mut connection).unwrap();
    let alters = |_: &Payment, message: &mut Message<'_, Conn>| {
        message.connection().batch_execute("CREATE TABLE reports (id INTEGER)")?;
        Ok(Outcome::Done)
    };
    let drained = Payment::drain(&mut connection, &alters);
    if NAME == "mysql" {
        let error = drained.unwrap_err();
        assert!(matches!(error, Error::Setting { setting: "the transaction of the test", .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("ended by the handler of Payment 1") && said.contains("as DDL does"), "{said}");
    } else {
        assert_eq!(drained.unwrap().succeeded(), 1);
        drop(connection);
        assert!(database.connect().batch_execute("SELECT * FROM reports").is_err());
    }
}
