//! What holds for a server.

use diesel::connection::SimpleConnection;

use crate::db::{Database, PrivateServer};
use crate::program::{SMALL, Start, insert_due, set_up};

#[test]
fn a_server_that_is_killed_and_comes_back_is_read_again() {
    let server = PrivateServer::start();
    let database = Database::on(&server);
    insert_due(&mut set_up(&database), 1..=3);
    let mut top = Start::top(database.url()).within(SMALL);
    top.shows_in_one_line(&["> payments", " 3 "]);
    server.kill();
    top.shows("no connection since");
    top.shows("stale");
    top.shows_in_one_line(&["> payments", " 3 "]);
    server.restart();
    top.hides("no connection since");
    insert_due(&mut database.connect(), 4..=5);
    top.shows_in_one_line(&["> payments", " 5 "]);
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn keys_do_not_wait_for_a_database_that_does_not_answer() {
    let database = Database::new();
    let mut connection = set_up(&database);
    insert_due(&mut connection, 1..=3);
    let mut top = Start::top(database.url()).argument("--timeout=5s").within(SMALL);
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
    assert_eq!(crate::program::text(&mut connection, waiting).as_deref(), Some("1"));
    connection.batch_execute("COMMIT").unwrap();
    top.hides("no answer");
    top.press("q");
    assert!(top.ended().success());
}
