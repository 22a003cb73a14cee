//! The SQL modes with which an application's sessions begin.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::r2d2::{self, ConnectionManager, CustomizeConnection, Pool};
use diesel::sql_types::{BigInt, Bool, Text};
use diesel_migrations::MigrationHarness;
use queueable::{Message, Migrations, Outcome, Queueable};

use crate::db::{Conn, Database};
use crate::suite::bank::{Bank, Payment, book};

/// As a server does on which this is the mode of all sessions.
#[derive(Debug)]
struct InMode(&'static str);

impl CustomizeConnection<Conn, r2d2::Error> for InMode {
    fn on_acquire(&self, connection: &mut Conn) -> Result<(), r2d2::Error> {
        let set = format!("SET SESSION sql_mode = '{}'", self.0);
        connection.batch_execute(&set).map_err(r2d2::Error::QueryError)
    }
}

fn pool(database: &Database, mode: &'static str) -> Pool<ConnectionManager<Conn>> {
    let manager = ConnectionManager::<Conn>::new(database.url());
    Pool::builder().max_size(3).connection_customizer(Box::new(InMode(mode))).build(manager).unwrap()
}

const OF_PAYMENTS: &str =
    "FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'payments'";

#[test]
fn an_index_is_recognized_where_a_backslash_is_a_character() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let pool = pool(&bank.database, "NO_BACKSLASH_ESCAPES");
    assert_eq!(Payment::poller(pool.clone(), book).workers(1).run_until_idle().unwrap().succeeded, 1);
    // A copy of the table may have the index under another name.
    let connection = &mut pool.get().unwrap();
    let own = sql::<Text>("SELECT INDEX_NAME ").sql(OF_PAYMENTS).sql(" AND INDEX_NAME LIKE 'queueable%'");
    let own: String = own.get_result(connection).unwrap();
    let renamed = format!("ALTER TABLE payments RENAME INDEX {own} TO other; DELETE FROM __diesel_schema_migrations");
    connection.batch_execute(&renamed).unwrap();
    let count = || sql::<BigInt>("SELECT COUNT(DISTINCT INDEX_NAME) ").sql(OF_PAYMENTS);
    let before: i64 = count().get_result(connection).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
    assert_eq!(count().get_result(connection), Ok(before));
    queueable::assert_schema!(connection, Payment);
}

diesel::table! {
    tours (id) { id -> BigInt, }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = tours)]
#[queue(archive(success = tours_done))]
#[expect(dead_code, reason = "it is decoded, not read")]
struct Tour {
    id: i64,
}

#[test]
fn the_traditional_mode_refuses_no_zero_date_that_the_row_has() {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute("CREATE TABLE tours (id BIGINT PRIMARY KEY, seen DATETIME NOT NULL)").unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Tour>()).unwrap();
    connection
        .batch_execute(
            "SET SESSION sql_mode = ''; \
             INSERT INTO tours (id, seen, next_attempt_time) VALUES (1, '0000-00-00', '2026-01-01')",
        )
        .unwrap();
    let done = |_: &Tour, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let tally = Tour::poller(pool(&database, "TRADITIONAL"), done).workers(1).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 1, "{tally:?}");
    let moved = sql::<Bool>("EXISTS (SELECT 1 FROM tours_done WHERE seen = 0)");
    assert_eq!(diesel::select(moved).get_result(&mut connection), Ok(true));
}
