//! What is wrong with a connection or a command line is said in one sentence, without a password.

use std::net::TcpListener;

use super::served::{Served, answer, command};
use crate::db;

/// An address of this database on a port where something else listens, or nothing.
fn address(port: u16) -> String {
    match db::NAME {
        "postgres" => format!("postgres://u:s3cret@127.0.0.1:{port}/shop"),
        "mysql" => format!("mysql://u:s3cret@127.0.0.1:{port}/shop"),
        _ => "/nowhere/shop.sqlite".to_owned(),
    }
}

#[test]
fn without_a_connection_the_exit_code_is_3() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("it has one").port();
    drop(free);
    let refused = answer(command(&["status"]).env("DATABASE_URL", address(port)));
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(!refused.err.contains("s3cret") && refused.err.starts_with("error: "), "{refused:?}");
    let json = answer(command(&["status", "--json"]).env("DATABASE_URL", address(port)));
    let error: serde_json::Value = serde_json::from_str(&json.err).expect("it is JSON");
    assert_eq!((error["error"].as_str(), error["exit_code"].as_i64()), (Some("no_connection"), Some(3)), "{json:?}");
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("it has one").port();
    let answer = answer(command(&["status", "--timeout", "1s"]).env("DATABASE_URL", address(port)));
    assert_eq!(answer.code, Some(3), "{answer:?}");
    assert!(!answer.err.contains("s3cret"), "{answer:?}");
}

#[test]
fn a_wrong_command_line_says_what_is_accepted() {
    let served = Served::filled();
    for (arguments, expected) in [
        (&["list", "payments", "--where", "compny_id = 1"][..], "did you mean `company_id`?"),
        (&["list", "payments", "--where", "company_id = 'x'"], "company_id"),
        (&["list", "payments", "--where", "company_id = 1; drop table payments"], "^"),
        (&["list", "payments", "--columns", "amont_cents"], "did you mean `amount_cents`?"),
        (&["list", "payments", "--after", "nonsense"], "is not what a page"),
        (&["list", "payment"], ""),
        (&["list"], "the rows of which queue?"),
        (&["backlog", "--by", "company"], "company"),
        (&["explain", "payments", "abc"], "id"),
        (&["explain", "invoices", "north"], "site,number"),
        (&["explain", "payments", "1 or 1=1"], "id"),
        (&["purge", "payments", "--all", "--older-than", "soon"], "write it as"),
    ] {
        let refused = served.run(arguments);
        let expected_code = if expected.is_empty() { Some(0) } else { Some(2) };
        assert_eq!(refused.code, expected_code, "{arguments:?}: {refused:?}");
        assert!(refused.err.contains(expected), "{arguments:?}: {refused:?}");
    }
    let nowhere = answer(&mut command(&["status"]));
    assert_eq!(nowhere.code, Some(2), "{nowhere:?}");
    assert!(nowhere.err.contains("--database-url"), "{nowhere:?}");
}

#[test]
fn completions_and_the_manual_need_no_database() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let written = answer(&mut command(&["completions", shell]));
        assert_eq!((written.code, written.out.contains("explain")), (Some(0), true), "{written:?}");
        assert!(!["bash", "zsh"].contains(&shell) || written.out.contains("invoices"), "{written:?}");
    }
    let manual = answer(&mut command(&["man"]));
    assert!(manual.code == Some(0) && manual.out.contains("Exit codes"), "{manual:?}");
}
