//! What is said when something is wrong: in words, and never in the database's.

use axum::http::StatusCode;

use super::guard::PAGES;
use super::served::{Served, console, database};

/// What only a database or a programmer says.
const WORDS: [&str; 9] = [
    "no such table",
    "does not exist",
    "doesn't exist",
    "SELECT",
    "panicked",
    "DatabaseError",
    "relation",
    "src/",
    "stack backtrace",
];

#[test]
fn an_error_of_the_database_stays_in_the_log() {
    let served = Served::local();
    served.execute("DROP TABLE payments");
    for page in PAGES {
        let answer = served.get(page);
        for word in WORDS {
            assert!(!answer.text.contains(word) || page == "/doctor", "{page} says {word}: {}", answer.text);
        }
        assert!(
            answer.status != StatusCode::OK || !page.contains("payments") || answer.text.contains("refused"),
            "{page}"
        );
    }
    // The other queue is there all the same.
    assert_eq!(served.get("/q/mails").status, StatusCode::OK);
    let overview = served.get("/");
    assert!(overview.status == StatusCode::OK && overview.text.contains("mails"), "{}", overview.text);
}

#[test]
fn a_database_that_is_away_is_said_in_words() {
    let database = database();
    let nowhere = format!("{}-gone", database.url());
    let router = console(&database).default_database(nowhere).page(|page| page.allow_changes()).router();
    let served = Served::of(database, router);
    for page in ["/", "/q/payments", "/audit"] {
        let answer = served.get(page);
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{page} {}", answer.text);
        assert!(answer.text.contains("The database does not answer."), "{page} {}", answer.text);
    }
}

#[test]
fn a_condition_that_is_wrong_is_shown_with_its_place() {
    let served = Served::local();
    let answer = served.get("/q/payments?where=companyid%20%3D%201");
    assert_eq!(answer.status, StatusCode::OK);
    assert!(
        answer.text.contains("did you mean `company_id`?") && answer.text.contains("value=\"companyid = 1\""),
        "{}",
        answer.text
    );
    let secret = served.get("/q/payments?where=api_token%20like%20%27tk%25%27");
    assert!(secret.text.contains("are not shown"), "{}", secret.text);
    for (address, status) in [
        ("/q/payments?state=odd", StatusCode::BAD_REQUEST),
        ("/q/payments?order=odd", StatusCode::BAD_REQUEST),
        ("/q/payments?after=odd", StatusCode::OK),
        ("/q/payments/row?key=odd", StatusCode::BAD_REQUEST),
        ("/q/payments/row?key=99", StatusCode::NOT_FOUND),
        ("/q/payments/row", StatusCode::BAD_REQUEST),
        ("/q/mails/row?key=north", StatusCode::BAD_REQUEST),
        ("/q/payments/errors/00000000", StatusCode::NOT_FOUND),
        ("/q/payments/errors?since=soon", StatusCode::BAD_REQUEST),
        ("/q/odd", StatusCode::NOT_FOUND),
        ("/odd", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(served.get(address).status, status, "{address}");
    }
}
