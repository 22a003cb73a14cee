//! What holds for the file of SQLite.

use std::fs;

use crate::program::{SMALL, Start, insert_due, payments};

#[test]
fn a_file_that_is_gone_and_comes_back_is_read_again() {
    let (database, mut connection) = payments();
    insert_due(&mut connection, 1..=3);
    drop(connection);
    let away = format!("{}.away", database.url());
    let mut top = Start::top(database.url()).within(SMALL);
    top.shows_in_one_line(&["> payments", " 3 "]);
    fs::rename(database.url(), &away).unwrap();
    top.shows("no connection since");
    // The last numbers stay, and are called stale.
    top.shows("stale");
    top.shows_in_one_line(&["> payments", " 3 "]);
    top.press("p");
    top.shows("there is no connection: nothing can be changed");
    fs::rename(&away, database.url()).unwrap();
    top.hides("no connection since");
    insert_due(&mut database.connect(), 4..=5);
    top.shows_in_one_line(&["> payments", " 5 "]);
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn another_file_with_the_same_name_is_the_one_that_is_read() {
    let (database, mut connection) = payments();
    insert_due(&mut connection, 1..=3);
    let (other, mut of_other) = payments();
    insert_due(&mut of_other, 1..=9);
    drop((connection, of_other));
    let mut top = Start::top(database.url()).within(SMALL);
    top.shows_in_one_line(&["> payments", " 3 "]);
    fs::rename(other.url(), database.url()).unwrap();
    top.shows_in_one_line(&["> payments", " 9 "]);
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn a_file_that_is_not_there_is_no_screen() {
    let top = Start::of(&["top", "--database-url", "/nowhere/app.sqlite"]).within(SMALL);
    let written = |top: &crate::pty::Terminal| top.written();
    let mut top = top;
    top.shows("there is no file");
    assert!(!written(&top).contains("\u{1b}[?1049h"));
    assert_eq!(top.ended().exit_code(), 3);
}
