//! Rows whose keys are texts, or have more than one part.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Migrations, Queueable};
use queueable_console::{Console, Page};

use super::served::Served;
use crate::db::{BIGINT, BYTES, Conn, Database, TEXT};

diesel::table! { letters (name) { name -> Text, } }

#[allow(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(primary_key(name))]
struct Letter {
    name: String,
}

diesel::table! {
    toggles (is_on, id) {
        is_on -> Bool,
        id -> BigInt,
    }
}

#[allow(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(primary_key(is_on, id))]
struct Toggle {
    is_on: bool,
    id: i64,
}

#[test]
fn a_key_that_nobody_may_compare_has_pages_and_neighbours() {
    let database = Database::new();
    let connection = &mut database.connect();
    let table = format!("CREATE TABLE toggles (is_on BOOLEAN NOT NULL, id {BIGINT} NOT NULL, PRIMARY KEY (is_on, id))");
    connection.batch_execute(&table).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Toggle>()).unwrap();
    let console = Console::<Conn>::new().entity::<Toggle>().default_database(database.url());
    let served = Served::of(database, console.router());
    served.execute("INSERT INTO toggles (is_on, id) VALUES (false, 1), (false, 2), (true, 1)");
    let row = served.get("/q/toggles/row?key=false,2&s.order=key");
    assert!(row.status.is_success(), "{}", row.text);
    for (rel, key) in [("prev", ["false%2C1", "0%2C1"]), ("next", ["true%2C1", "1%2C1"])] {
        let link = row.text.split(&format!("rel=\"{rel}\" href=\"")).nth(1).unwrap_or_default();
        let link = link.split('"').next().unwrap_or_default();
        assert!(key.iter().any(|key| link.contains(&format!("row?key={key}"))), "{rel}: {link}");
    }
}

diesel::table! { files (hash) { hash -> Binary, } }

#[allow(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(primary_key(hash))]
struct File {
    hash: Vec<u8>,
}

#[test]
fn a_key_of_bytes_is_taken_as_it_is_shown_and_as_a_uuid() {
    let database = Database::new();
    let connection = &mut database.connect();
    connection.batch_execute(&format!("CREATE TABLE files (hash {BYTES} NOT NULL, PRIMARY KEY (hash))")).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<File>()).unwrap();
    let bytes = 0x6f1c_1e9a_58f2_4c2c_9d0e_3f0a_4d1b_2c3d_u128.to_be_bytes();
    diesel::insert_into(files::table).values(files::hash.eq(&bytes[..])).execute(connection).unwrap();
    let console = Console::<Conn>::new().entity::<File>().default_database(database.url());
    let served = Served::of(database, console.router());
    served.execute("UPDATE files SET status = 'FAILED', last_attempt_error_message = 'declined'");
    let errors = served.get("/q/files/errors");
    assert!(errors.text.contains("row?key=6f1c1e9a58f24c2c9d0e3f0a4d1b2c3d"), "{}", errors.text);
    for key in ["6f1c1e9a58f24c2c9d0e3f0a4d1b2c3d", "6f1c1e9a-58f2-4c2c-9d0e-3f0a4d1b2c3d"] {
        let row = served.get(&format!("/q/files/row?key={key}"));
        assert!(row.status.is_success() && row.text.contains("declined"), "{key}: {}", row.text);
    }
}

#[test]
fn a_row_whose_key_is_an_empty_text_is_one_row() {
    let database = Database::new();
    let connection = &mut database.connect();
    connection.batch_execute(&format!("CREATE TABLE letters (name {TEXT} NOT NULL, PRIMARY KEY (name))")).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Letter>()).unwrap();
    let console = Console::<Conn>::new().entity::<Letter>().default_database(database.url());
    let served = Served::of(database, console.page(Page::allow_changes).router());
    served.execute("INSERT INTO letters (name, status) VALUES ('', 'FAILED'), ('a', 'FAILED'), ('b', 'FAILED')");
    for (choice, rows) in [("&key=", "1 row"), ("&key=&key=b", "2 rows"), ("", "3 rows")] {
        let preview = served.get(&format!("/q/letters/change?operation=retry{choice}"));
        assert!(preview.text.contains(&format!("retry of letters: {rows}<")), "{choice} {}", preview.text);
    }
    let row = served.get("/q/letters/row?key=");
    assert!(row.status.is_success() && row.text.contains("Row with an empty key"), "{}", row.text);
    assert!(row.text.contains("change?operation=retry&amp;key=\""), "{}", row.text);
}
