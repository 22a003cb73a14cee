//! Everybody can use the page.

use super::served::Served;
use super::walk::walk;
use crate::browser::Browser;

#[test]
fn nothing_on_any_page_keeps_people_from_using_it() {
    let served = Served::filled();
    let browser = Browser::new();
    let mut faults = Vec::new();
    let wrong = served.address("/q/payments?where=company_id+%3D");
    let visited = walk(&browser, &[served.address(""), wrong], 1, |address| {
        faults.extend(browser.faults().into_iter().map(|fault| format!("{address}\n    {fault}")));
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(visited > 20, "{visited}");
}

#[test]
fn an_address_that_leads_nowhere_says_so_to_everybody() {
    let served = Served::new();
    let browser = Browser::new();
    browser.open(&served.address("/nowhere"));
    browser.see("There is no such page.");
    let faults = browser.faults();
    let refused = format!(
        "the console: {} - Failed to load resource: the server responded with a status of 404 (Not Found)",
        browser.address()
    );
    assert_eq!(faults, [refused]);
}
