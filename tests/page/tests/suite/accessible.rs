//! Everybody can use the page.

use super::served::Served;
use super::thorough::times;
use super::walk::walk;
use crate::browser::Browser;
use crate::db::NAME;

/// What is closed at first can be used too.
const OPEN: &str = "document.querySelectorAll('details').forEach(details => { details.open = true; })";

/// Pages that are among those that are visited.
const AMONG: [&str; 7] = [
    "/q/payments?where=company_id+%3D",
    "/q/payments/row?",
    "/q/payments/errors/",
    "/q/payments/change?operation=retry",
    "/q/payments/charts?range=hour",
    "/q/invoices/stages",
    "/audit",
];

#[test]
fn nothing_on_any_page_keeps_people_from_using_it() {
    let served = Served::filled();
    let browser = Browser::new();
    let faults: fn(&Browser) -> Vec<String> = times(|browser| browser.faults_in_brief(), |browser| browser.faults());
    let (mut found, mut visited) = (Vec::new(), Vec::new());
    let from =
        ["", "/q/payments?where=company_id+%3D", "/q/payments/charts?range=hour"].map(|path| served.address(path));
    walk(&browser, &from, 1, |address| {
        browser.script(OPEN);
        // The pages look the same on each database: only one of them shows them in all lights.
        let here = match NAME {
            "sqlite" => faults(&browser),
            _ => browser.faults_at_a_glance(),
        };
        found.extend(here.into_iter().map(|fault| format!("{address}\n    {fault}")));
        visited.push(address.to_owned());
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
    for page in AMONG {
        assert!(visited.iter().any(|address| address.contains(page)), "{page}: {visited:#?}");
    }
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
