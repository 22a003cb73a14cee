//! The browser finds what the tests of the page rely on it to find.

use std::panic::{AssertUnwindSafe, catch_unwind};

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use fantoccini::key::Key;

use crate::browser::{Browser, By, until};
use crate::site::Site;

const GOOD: &str = "
    <label for=company>Company</label> <input id=company name=company>
    <table><caption>Payments</caption><tr><th scope=col>Number</th></tr><tr><td>7</td></tr></table>
    <button>Search</button>";

/// A page without faults but those of its body.
fn page(head: &str, body: &str) -> Html<String> {
    Html(format!(
        "<!doctype html><html lang=en><title>Queues</title><meta name=viewport content='width=device-width'>
         <link rel=icon href='data:,'><style>:root {{ color-scheme: light dark; background: Canvas; color: CanvasText }}</style>{head}
         <main><h1>Queues</h1><form action=found>{body}</form></main>"
    ))
}

fn site(head: &'static str, body: &'static str) -> Site {
    let found = |address: http::Uri| async move { page("", &format!("<p>{}", address.query().unwrap_or_default())) };
    Site::new(Router::new().route("/", get(async move || page(head, body))).route("/found", get(found)))
}

/// What is said about a page with this fault.
fn complaint(head: &'static str, body: &'static str) -> String {
    let site = site(head, body);
    let browser = Browser::new();
    browser.open(&site.address("/"));
    let failed = catch_unwind(AssertUnwindSafe(|| browser.check("the page"))).expect_err("the page has a fault");
    failed.downcast_ref::<String>().expect("a message").clone()
}

#[test]
fn a_page_without_faults_passes() {
    let site = site("", GOOD);
    let browser = Browser::new();
    browser.open(&site.address("/"));
    browser.check("a page without faults");
    let picture = browser.pictured();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() < 20_000, "{} bytes", picture.len());
}

#[test]
fn a_field_without_a_label_is_found() {
    let found = complaint("", "<input name=company>");
    assert!(found.contains("light, dark, 360 pixels, 200 % and dark: label <input name=\"company\">"), "{found}");
}

#[test]
fn a_contrast_that_is_too_low_in_the_dark_is_found() {
    let found =
        complaint("<style>@media (prefers-color-scheme: dark) { p { color: #222 } }</style>", "<p>7 are due</p>");
    assert!(found.contains("\ndark, 200 % and dark: color-contrast"), "{found}");
}

#[test]
fn a_page_that_leaves_its_background_to_the_browser_is_found() {
    let found = complaint("<style>:root { background: none }</style>", GOOD);
    assert!(found.contains("no background"), "{found}");
}

#[test]
fn a_page_that_is_wider_than_a_small_screen_is_found() {
    let found = complaint("", "<p style='width: 500px'>7 are due</p>");
    assert!(found.contains("360 pixels: wider than the window: 5"), "{found}");
    assert!(found.contains("wider than the window: <p style=") && !found.contains("200 % and dark"), "{found}");
}

#[test]
fn a_dialog_is_found() {
    let site = site("", "<img src=x onerror='alert(7)' alt=''>");
    let browser = Browser::new();
    browser.open(&site.address("/"));
    assert_eq!(until("a dialog", || browser.dialog().ok_or_else(String::new)), "7");
}

#[test]
fn what_a_policy_forbids_is_found() {
    let policy = "<meta http-equiv=content-security-policy content=\"script-src 'self'\">";
    let found = complaint(policy, "<script>document.title = 'changed'</script>");
    assert!(found.contains("Content Security Policy"), "{found}");
}

#[test]
fn a_form_is_used_without_scripts_and_without_a_mouse() {
    for browser in [Browser::new, Browser::without_scripts] {
        let site = site("<script>document.title = 'scripts'</script>", GOOD);
        let browser = browser();
        browser.open(&site.address("/"));
        assert_eq!(browser.title() == "scripts", browser.has_scripts());
        browser.fill(By::Field("Company"), "3345");
        browser.click(By::Button("Search"));
        browser.see("company=3345");
        assert_eq!(browser.address(), site.address("/found?company=3345"));
        browser.open(&site.address("/"));
        browser.tab_to("textbox", "Company");
        browser.write("7");
        browser.tab_to("button", "Search");
        browser.press(Key::Enter);
        browser.see("company=7");
    }
}
