//! What holds on every database.

use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use queueable::control;

use crate::program::{SMALL, Start, insert_due, insert_failed, payments, status, text};

const UP: &str = "\u{1b}[A";
const ENTER: &str = "\r";
const ESCAPE: &str = "\u{1b}";
const CONTROL_C: &str = "\u{3}";

#[test]
fn it_shows_the_queues_and_what_is_inserted_meanwhile() {
    let (database, mut connection) = payments();
    insert_due(&mut connection, 1..=3);
    let mut top = Start::top(database.url()).within(SMALL);
    top.shows_in_one_line(&["queue", "oldest", "due"]);
    top.shows_in_one_line(&["> payments", " 3 "]);
    top.shows("mails");
    insert_due(&mut connection, 4..=7);
    top.shows_in_one_line(&["> payments", " 7 "]);
    // The rows of the chosen queue.
    top.press(ENTER);
    top.shows("payments: 7 rows");
    top.shows_in_one_line(&["> ", "3301", "note 1"]);
    insert_due(&mut connection, 8..=8);
    top.shows("note 8");
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn a_filter_is_the_language_of_where_and_a_row_is_explained() {
    let (database, mut connection) = payments();
    insert_due(&mut connection, 1..=9);
    let mut top = Start::top(database.url()).within(SMALL);
    top.shows("payments");
    top.press("/");
    top.shows("only rows for which this holds");
    top.press("compny_id = 3305");
    top.press(ENTER);
    top.shows("did you mean `company_id`");
    top.shows("^^^^^^^^^");
    // Ctrl-U empties the line.
    top.press("\u{15}company_id = 3305");
    top.press(ENTER);
    top.shows("payments: 1 row");
    top.shows_in_one_line(&[">  5", "3305", "note 5"]);
    top.hides("note 6");
    top.press(ENTER);
    top.shows_in_one_line(&["amount_cents", "500"]);
    top.shows_in_one_line(&["api_token", "[hidden]"]);
    top.shows("due");
    top.press(ESCAPE);
    top.shows("where company_id = 3305");
    assert!(!top.written().contains("tk-4711"), "a secret was written");
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn a_pause_is_in_the_control_table_and_in_the_audit() {
    let (database, mut connection) = payments();
    insert_due(&mut connection, 1..=1);
    let mut top = Start::top(database.url()).within(SMALL);
    top.shows("> payments");
    top.press("p");
    top.shows("because");
    top.press(ENTER);
    top.shows("a pause needs a reason");
    top.press("bank down");
    top.press(ENTER);
    top.shows("by ops@example.org: bank down");
    let paused = queueable::pauses(&mut connection).unwrap();
    assert_eq!((paused[0].by.as_str(), paused[0].reason.as_str()), ("ops@example.org", "bank down"));
    top.press("u");
    top.shows("the pause of payments has ended");
    top.hides("bank down");
    assert_eq!(queueable::pauses(&mut connection).unwrap(), []);
    let audited = control::audit(&mut connection, &control::Audit::new()).unwrap().rows;
    assert_eq!(audited.len(), 2);
    assert!(audited.iter().all(|audited| audited.by == "ops@example.org"));
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn a_retry_needs_shift_and_a_yes() {
    let (database, mut connection) = payments();
    insert_failed(&mut connection, 1..=2, "card declined");
    let mut top = Start::top(database.url()).within(SMALL);
    top.shows("> payments");
    top.press(ENTER);
    top.shows_in_one_line(&[">  1", "card declined"]);
    // Without Shift it reads anew, and changes nothing.
    top.press("r");
    top.press("R");
    top.shows("retry of payments 1");
    top.shows("retry of payments: 1 row, values of company_id: 1, sum of amount_cents: 100;");
    top.shows("go on? y/N");
    // Enter is no yes.
    top.press(ENTER);
    top.shows("nothing was changed");
    assert_eq!(status(&mut connection, 1), "FAILED");
    top.press("R");
    top.shows("go on? y/N");
    top.press("y");
    top.shows("retry: 1 row changed");
    assert_ne!(status(&mut connection, 1), "FAILED");
    assert_eq!(status(&mut connection, 2), "FAILED");
    let audited = control::audit(&mut connection, &control::Audit::new()).unwrap().rows;
    assert_eq!((audited[0].by.as_str(), audited[0].rows, audited.len()), ("ops@example.org", 1, 1));
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn all_rows_of_a_group_of_errors_are_retried() {
    let (database, mut connection) = payments();
    insert_failed(&mut connection, 1..=5, "card declined");
    insert_failed(&mut connection, 6..=7, "no route to host");
    let mut top = Start::top(database.url()).within(SMALL);
    top.press("3");
    top.shows("no route to host");
    top.shows_in_one_line(&["payments", "5", "card declined"]);
    // The groups have the same time, so their order is not known.
    let mut steps = 0;
    while !top.text().lines().any(|line| line.starts_with("> ") && line.contains("card declined")) {
        assert!(steps < 2, "{}", top.text());
        steps += 1;
        let chosen = top.text().lines().find(|line| line.starts_with("> ")).unwrap().to_owned();
        top.press("j");
        top.becomes("has moved", |screen| !screen.contents().contains(&chosen));
    }
    top.press(ENTER);
    top.shows_in_one_line(&["examples", "1 2 3"]);
    top.press(ENTER);
    top.shows_in_one_line(&["amount_cents", "100"]);
    top.press(ESCAPE);
    top.shows("errors, the newest first");
    top.press("S");
    top.shows("skip of payments: 5 rows");
    top.press("y");
    top.shows("skip: 5 rows changed");
    assert_eq!(status(&mut connection, 5), "SKIPPED");
    assert_eq!(status(&mut connection, 6), "FAILED");
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn many_rows_of_a_production_need_its_name() {
    let (database, mut connection) = payments();
    connection.batch_execute("BEGIN").unwrap();
    insert_failed(&mut connection, 1..=1_001, "card declined");
    connection.batch_execute("COMMIT").unwrap();
    control::adopt_environment(&mut connection, "production", "ops@example.org", "it is").unwrap();
    let mut top = Start::top(database.url()).within(SMALL);
    top.shows("environment production");
    top.press("3");
    top.shows("card declined");
    top.press("R");
    top.shows("retry of payments: 1,001 rows");
    top.press("y");
    top.shows("type its name");
    top.press("staging");
    top.press(ENTER);
    top.shows("that is not the name");
    assert_eq!(status(&mut connection, 1), "FAILED");
    top.press("Ry");
    top.shows("go on? y/N");
    top.press("y");
    top.shows("type its name");
    top.press("production");
    top.press(ENTER);
    top.shows("retry: 1,001 rows changed");
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn a_hostile_row_is_shown_and_not_obeyed() {
    let (database, mut connection) = payments();
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[31mred\u{202e}\r\nnext";
    insert_failed(&mut connection, 1..=1, hostile);
    connection.batch_execute(&format!("UPDATE payments SET note = '{hostile}'")).unwrap();
    let mut top = Start::top(database.url()).within((160, 24));
    top.shows("> payments");
    top.press(ENTER);
    top.shows(r"\u{1b}]0;owned\u{7}\u{1b}[2J");
    top.press(ENTER);
    top.shows_in_one_line(&["note", r"\u{1b}[31mred\u{202e}"]);
    top.press("3");
    top.shows_in_one_line(&["> payments", r"\u{1b}"]);
    let written = top.written();
    assert!(!written.contains("\u{1b}]0;"), "the title was set");
    assert!(!written.contains("\u{202e}"), "the direction was turned");
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn a_read_only_console_has_no_keys_that_change() {
    let (database, mut connection) = payments();
    insert_failed(&mut connection, 1..=1, "card declined");
    let mut top = Start::top(database.url()).read_only().within(SMALL);
    top.shows("read-only");
    top.shows("> payments");
    for (open, keys) in [("1", "pu"), ("4", "RSXpu"), ("3", "RSX")] {
        top.press(open);
        for key in keys.chars() {
            top.press(&key.to_string());
            top.shows("! this console is read-only");
            top.press(UP);
            top.hides("! this console is read-only");
        }
    }
    assert_eq!(status(&mut connection, 1), "FAILED");
    assert_eq!(text(&mut connection, "SELECT action AS value FROM queueable_audit"), None);
    top.press("?");
    top.shows("the next tab");
    assert!(!top.text().contains("Shift"));
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn each_end_has_its_exit_code_and_gives_the_terminal_back() {
    let (database, _connection) = payments();
    let start = || {
        let mut top = Start::top(database.url()).within(SMALL);
        top.shows("> payments");
        top
    };
    let mut top = start();
    top.press(CONTROL_C);
    assert_eq!(top.ended().exit_code(), 130);
    for (signal, name) in [("TERM", "Terminated"), ("HUP", "Hangup")] {
        let top = start();
        assert!(Command::new("kill").args(["-s", signal, &top.process().to_string()]).status().unwrap().success());
        let status = top.ended();
        assert_eq!(status.signal(), Some(name));
    }
}

#[test]
fn control_z_gives_the_terminal_to_the_shell_until_it_is_given_back() {
    let (database, _connection) = payments();
    let mut top = Start::top(database.url()).within(SMALL);
    top.shows("> payments");
    top.press("\u{1a}");
    top.becomes("is given back", |screen| !screen.alternate_screen() && !screen.hide_cursor());
    let process = top.process().to_string();
    eventually("the program is stopped", || {
        let state = Command::new("ps").args(["-o", "state=", "-p", &process]).output().unwrap().stdout;
        state.starts_with(b"T")
    });
    assert!(Command::new("kill").args(["-s", "CONT", &process]).status().unwrap().success());
    top.becomes("is drawn again", |screen| screen.alternate_screen() && screen.contents().contains("> payments"));
    // Somebody else has written to it.
    top.garbage();
    top.shows("somebody else");
    top.press("\u{c}");
    top.hides("somebody else");
    top.shows("> payments");
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn it_ends_with_its_terminal() {
    let (database, _connection) = payments();
    let top = Start::top(database.url());
    let process = top.in_a_terminal_that_is_closed();
    eventually("the program has ended", || {
        let exists = Command::new("kill").args(["-s", "0", &process.to_string()]).stderr(Stdio::null()).status();
        !exists.unwrap().success()
    });
}

/// Asks again and again. The end of a process of somebody else sends no signal to wait for, so an empty channel paces it.
fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let (deadline, (_nobody, pace)) = (Instant::now() + Duration::from_secs(60), channel::<()>());
    while !is() {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        let _ = pace.recv_timeout(Duration::from_millis(20));
    }
}

#[test]
fn without_a_terminal_it_names_the_command_that_needs_none() {
    let (database, _connection) = payments();
    let (code, said) = Start::top(database.url()).without_terminal();
    assert_eq!(code, Some(2));
    assert!(said.contains("status --watch"), "{said}");
    let mut top = Start::top(database.url()).argument("--json").within(SMALL);
    top.shows("`top` is for people");
    assert_eq!(top.ended().exit_code(), 2);
}

#[test]
fn it_has_colours_unless_somebody_wants_none() {
    let (database, mut connection) = payments();
    insert_failed(&mut connection, 1..=1, "card declined");
    let colours = |start: Start| {
        let mut top = start.within(SMALL);
        top.shows_in_one_line(&["> payments", " 1 "]);
        top.press("q");
        let written = top.written();
        assert!(top.ended().success());
        ["\u{1b}[3", "\u{1b}[38;", "\u{1b}[9"].iter().any(|colour| {
            // A colour, and not the end of one.
            written.match_indices(colour).any(|(at, _)| {
                !written[at..].starts_with("\u{1b}[39m") && written[at..].find('m').is_some_and(|end| end < 12)
            })
        })
    };
    let start = || Start::top(database.url());
    assert!(colours(start()));
    assert!(!colours(start().variable("NO_COLOR", "1")));
    assert!(!colours(start().variable("TERM", "dumb")));
    assert!(!colours(start().argument("--color=never")));
    assert!(colours(start().variable("NO_COLOR", "1").argument("--color=always")));
}

#[test]
fn the_screen_follows_the_size_of_the_terminal() {
    let (database, mut connection) = payments();
    insert_due(&mut connection, 1..=1);
    let mut top = Start::top(database.url()).within(SMALL);
    top.shows("oldest");
    top.resize((59, 24));
    top.shows("59x24 is too small");
    top.resize((140, 40));
    top.shows_in_one_line(&["oldest due", "scheduled", "failed"]);
    // Nobody counts minutes.
    top.hides("per minute");
    top.press("q");
    assert!(top.ended().success());
}
