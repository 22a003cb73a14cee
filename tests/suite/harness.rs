//! The basis of every other test.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable};

use crate::db::{self, AUTO_KEY, BIGINT, BYTES, Conn, Database, TEXT, quote};

#[test]
fn every_test_owns_its_database() {
    let (one, other) = (Database::new(), Database::new());
    one.connect().batch_execute("CREATE TABLE mine (id INT); INSERT INTO mine VALUES (1)").unwrap();
    assert!(other.connect().batch_execute("INSERT INTO mine VALUES (2)").is_err());
    assert_eq!(count(&mut one.connect(), "mine"), 1);
}

#[test]
fn a_dropped_database_is_gone_although_a_transaction_is_open_in_it() {
    let database = Database::new();
    let url = database.url().to_owned();
    let mut session = database.connect();
    session.batch_execute("CREATE TABLE held (id INT); BEGIN; INSERT INTO held VALUES (1)").unwrap();
    drop(database);
    assert!(Conn::establish(&url).is_err());
}

#[test]
fn a_pool_holds_the_connections_asked_for() {
    let database = Database::new();
    let pool = database.pool(3);
    let held: Vec<_> = (0..3).map(|_| pool.get().unwrap()).collect();
    assert!(pool.try_get().is_none());
    drop(held);
    assert!(pool.try_get().is_some());
}

#[test]
fn the_words_make_a_table_and_keys_of_each_kind() {
    let table = quote("Mixed `\"case");
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE {table} (id {AUTO_KEY}, amount {BIGINT}, note {TEXT}, body {BYTES});
             INSERT INTO {table} (amount, note) VALUES ({max}, 'one'), (NULL, NULL);
             CREATE TABLE by_number (id {BIGINT} PRIMARY KEY);
             CREATE TABLE by_text (id {TEXT} PRIMARY KEY);
             CREATE TABLE by_bytes (id {BYTES} PRIMARY KEY)",
            max = i64::MAX,
        ))
        .unwrap();
    let rows: Vec<(i64, Option<i64>)> =
        sql::<(BigInt, Nullable<BigInt>)>(&format!("SELECT id, amount FROM {table} ORDER BY id"))
            .load(&mut connection)
            .unwrap();
    assert_eq!(rows, [(1, Some(i64::MAX)), (2, None)]);
}

#[test]
fn chinook_fills_the_database_where_it_is_at_hand() {
    let Some(script) = db::chinook() else {
        return eprintln!("no Chinook data beside the repository: nothing to show");
    };
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(&script).unwrap();
    // The name is unquoted, so that PostgreSQL folds it to its script's lower case.
    assert_eq!(count(&mut connection, "Invoice"), 412);
    assert_eq!(count(&mut connection, "Customer"), 59);
}

fn count(connection: &mut Conn, table: &str) -> i64 {
    sql::<BigInt>(&format!("SELECT count(*) FROM {table}")).get_result(connection).unwrap()
}
