//! What holds for a server: it goes away while somebody looks, and comes back.

use serde_json::Value;

use crate::browser::{Browser, By, until, within};
use crate::db::{Database, PrivateServer};
use crate::suite::served::{Served, ago, enqueue, fail};

/// Keeps what the page's line says, also if it says something else a moment later.
const KEEP: &str = "
    window.said = [];
    const line = document.querySelector('[role=status]');
    new MutationObserver(() => window.said.push(line.textContent)).observe(line, { childList: true, characterData: true, subtree: true });";

fn said(browser: &Browser) -> Vec<String> {
    let said = browser.script("return window.said");
    let said = said.as_array().cloned().unwrap_or_default();
    said.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// How many payments the overview says have failed.
fn failed(browser: &Browser) -> String {
    browser.text_of(By::Css("#queues tbody td:nth-child(6)"))
}

#[test]
fn an_overview_that_is_open_says_that_the_database_is_away_and_goes_on_when_it_is_back() {
    const WAIT: u32 = 5;
    let server = PrivateServer::start();
    let served = Served::of(Database::on(&server));
    let browser = Browser::new();
    browser.open(&served.address(""));
    assert_eq!(failed(&browser), "0");
    browser.script(KEEP);

    server.kill();
    browser.see("The database does not answer.");
    // What was read before stays, and the line says from when it is.
    assert_eq!(failed(&browser), "0");
    let late = browser.text_of(By::Css("[role=status].late"));
    assert!(late.starts_with("This page is from "), "{late}");

    server.restart();
    let connection = &mut served.database.connect();
    for id in 1..=3 {
        enqueue(connection, id, 7, ago(0));
        fail(connection, id, "declined");
    }
    // The page waits for longer after each time in vain, for a minute at most.
    within(WAIT, "new numbers", || match failed(&browser) {
        failed if failed == "3" => Ok(()),
        failed => Err(failed),
    });
    until("the news", || {
        let said = said(&browser);
        if said.iter().any(|said| said.contains("the server answers again")) {
            Ok(())
        } else {
            Err(format!("{said:?}"))
        }
    });
    // A connection that was open before may fail once more.
    until("a page of now", || match browser.count(By::Css("[role=status].late")) {
        0 => Ok(()),
        _ => Err(browser.text_of(By::Css("[role=status]"))),
    });
}
