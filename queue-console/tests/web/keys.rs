//! Rows whose keys are texts.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Migrations, Queueable};
use queueable_console::{Console, Page};

use super::served::Served;
use crate::db::{Conn, Database, TEXT};

diesel::table! { letters (name) { name -> Text, } }

#[allow(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(primary_key(name))]
struct Letter {
    name: String,
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
