//! The sessions in the documentation: every command of a `console` block is run, and has to answer what the page shows.
//!
//! A block stands under `<!-- session: name -->`, and blocks of one name share a database, which `setups.rs` puts into the state that
//! the page speaks of. Times and ages differ from run to run, so they are compared by their form. `SESSIONS=overwrite` writes what the
//! commands answer into the blocks that differ, and `SESSIONS=renew` into all of them.

mod complete;
#[allow(unused, reason = "the three `db` modules offer the same, also where a root needs less")]
#[path = "../../../db/sqlite.rs"]
mod db;
#[allow(unused, reason = "the sessions need some of it")]
#[path = "../../src/entities.rs"]
mod entities;
mod page;
#[allow(unused, reason = "the sessions need some of it")]
#[path = "../suite/served.rs"]
mod served;
mod setups;
mod shell;
mod times;

use std::path::PathBuf;
use std::{env, fs};

use self::page::Page;
use self::shell::Shell;

/// Runs the sessions of a page, and compares or writes them.
fn check(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut page = Page::parse(&text);
    let sessions = page.sessions();
    assert!(!sessions.is_empty(), "{name} has no session");
    let asked = env::var("SESSIONS").unwrap_or_default();
    let mut differing = Vec::new();
    for session in &sessions {
        let (blocks, ran) = run(&page, session);
        let difference = difference(&blocks, &ran);
        // The blocks of a session tell one story, so their times have to agree.
        if difference.is_some() || asked == "renew" {
            page.renew(session, ran);
        }
        differing.extend(difference.map(|difference| format!("session `{session}`:\n{difference}")));
    }
    if matches!(&*asked, "overwrite" | "renew") {
        return fs::write(&path, page.to_string()).expect("the page can be written");
    }
    assert!(
        differing.is_empty(),
        "{name} shows something else than the console answers. If the console is right, run this test with SESSIONS=overwrite, and look \
         at the difference.\n\n{}",
        differing.join("\n")
    );
}

/// Runs the blocks of a session, one after the other, and returns what they show and what they answer.
fn run(page: &Page, session: &str) -> (Vec<String>, Vec<String>) {
    let shell = Shell::new(session);
    page.blocks(session).iter().map(|block| (block.text(), shell.run_all(&block.commands()))).unzip()
}

fn difference(shown: &[String], ran: &[String]) -> Option<String> {
    let [shown, ran] = [shown, ran].map(|blocks| times::masked(&blocks.concat()));
    let difference = similar::TextDiff::from_lines(&shown, &ran);
    let text = || difference.unified_diff().context_radius(2).header("the page", "the console").to_string();
    (shown != ran).then(text)
}

#[test]
fn the_page_of_the_console_shows_what_it_answers() {
    check("console.md");
}

#[test]
fn the_runbook_shows_what_the_console_answers() {
    check("runbook.md");
}
