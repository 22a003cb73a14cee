//! What holds for a server.

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
