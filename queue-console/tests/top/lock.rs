//! What holds where a statement can be made to wait.

use diesel::connection::SimpleConnection;

use crate::db::Database;
use crate::program::{SMALL, Start, insert_due, set_up, text};

#[test]
fn keys_do_not_wait_for_a_database_that_does_not_answer() {
    let database = Database::new();
    let mut connection = set_up(&database);
    insert_due(&mut connection, 1..=3);
    let mut top = Start::top(database.url()).argument("--timeout=12s").within(SMALL);
    top.shows_in_one_line(&["> payments", " 3 "]);
    connection.batch_execute("BEGIN; LOCK TABLE payments IN ACCESS EXCLUSIVE MODE").unwrap();
    top.shows("the database has not answered for");
    top.press("?");
    top.shows("the next tab");
    top.press("\u{1b}");
    top.shows("r connects anew");
    // No statement waits beside the first one.
    let waiting = "SELECT count(*)::text AS value FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    assert_eq!(text(&mut connection, waiting).as_deref(), Some("1"));
    connection.batch_execute("COMMIT").unwrap();
    top.hides("no answer");
    top.press("q");
    assert!(top.ended().success());
}
