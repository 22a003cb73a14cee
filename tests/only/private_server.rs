//! The private servers of the tests keep what was committed when they are killed, and do not outlive their process.

use std::env;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;

use crate::db::{Conn, Database, PrivateServer, eventually};

#[test]
fn a_killed_server_comes_back_on_its_port_with_what_was_committed() {
    let server = PrivateServer::start();
    let database = Database::on(&server);
    let mut before = database.connect();
    before.batch_execute("CREATE TABLE kept (id INT); INSERT INTO kept VALUES (1), (2)").unwrap();

    server.kill();
    assert!(before.batch_execute("INSERT INTO kept VALUES (3)").is_err());
    assert!(Conn::establish(database.url()).is_err());

    server.restart();
    let kept = sql::<BigInt>("SELECT count(*) FROM kept").get_result(&mut database.connect());
    assert_eq!(kept, Ok(2_i64));
}

#[test]
fn a_dropped_server_leaves_nothing() {
    let server = PrivateServer::start();
    let (url, directory) = (server.url().to_owned(), server.directory().to_owned());
    drop(server);
    assert!(Conn::establish(&url).is_err());
    assert!(!directory.exists());
}

/// Runs itself in a second process, which starts a server and is killed while it holds it.
#[test]
fn a_server_does_not_outlive_a_killed_process() {
    const ROLE: &str = "QUEUEABLE_TEST_HOLDS_A_SERVER";
    if env::var_os(ROLE).is_some() {
        let server = PrivateServer::start();
        println!("\nholding {} {}", server.url(), server.directory().display());
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    // Without the crate's name, as the test program calls it.
    let (_, module) = module_path!().split_once("::").unwrap();
    let this = format!("{module}::a_server_does_not_outlive_a_killed_process");
    let mut holder = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &this])
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(holder.stdout.take().unwrap());
    let line = output.lines().map_while(Result::ok).find(|line| line.starts_with("holding ")).unwrap();
    let [_, url, directory] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("unexpected: {line}") };
    assert!(Conn::establish(url).is_ok());

    holder.kill().unwrap();
    assert_eq!(holder.wait().unwrap().signal(), Some(9));
    eventually("the killed process's server and its files are gone", || {
        (Conn::establish(url).is_err() && !Path::new(directory).exists()).then_some(())
    });
}
