//! Roles of MySQL and MariaDB: what a handler does to its session's role ends with its message.

use std::sync::{Arc, Mutex};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::r2d2::{self, ConnectionManager, CustomizeConnection, Pool};
use diesel::sql_types::Text;
use queueable::{Message, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book};

/// A role of the test's account, until this value is dropped.
struct TestRole<'b>(&'b Bank, String);

impl Drop for TestRole<'_> {
    fn drop(&mut self) {
        let _ = self.0.connect().batch_execute(&format!("DROP ROLE `{}`", self.1));
    }
}

/// As a pool does whose sessions all take a role.
#[derive(Debug)]
struct InRole(String);

impl CustomizeConnection<Conn, r2d2::Error> for InRole {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), r2d2::Error> {
        connection.batch_execute(&format!("SET ROLE `{}`", self.0)).map_err(r2d2::Error::QueryError)
    }
}

/// MySQL gives the role back with quotes and its host, and MariaDB as a bare name.
#[test]
fn a_session_has_its_role_again_after_a_handler_has_left_it() {
    let bank = Bank::new();
    let TestRole(_, role) = &TestRole(&bank, format!("queueable-{}", std::process::id()));
    bank.connect().batch_execute(&format!("CREATE ROLE `{role}`; GRANT `{role}` TO CURRENT_USER")).unwrap();
    bank.enqueue([1, 2, 3]);
    let manager = ConnectionManager::<Conn>::new(bank.database.url());
    let pool =
        Pool::builder().max_size(5).connection_customizer(Box::new(InRole(role.clone()))).build(manager).unwrap();
    let found = Arc::new(Mutex::new(Vec::new()));
    let roles = found.clone();
    let handler = move |payment: &Payment, message: &mut Message<'_, Conn>| {
        let role = diesel::select(sql::<Text>("COALESCE(CURRENT_ROLE(), 'NONE')"))
            .get_result::<String>(message.connection())?;
        roles.lock().unwrap().push(role);
        message.connection().batch_execute("SET ROLE NONE")?;
        book(payment, message)
    };
    let tally = Payment::poller(pool, handler).workers(1).run_until_idle().unwrap();
    let found = found.lock().unwrap();
    assert!(found.len() == 3 && found.iter().all(|found| found.contains(role)), "{found:?}");
    assert_eq!(tally.succeeded, 3);
}
