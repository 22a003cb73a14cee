//! What holds for a server: it is killed while many people look, and comes back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use axum::http::StatusCode;
use queueable_console::Page;

use crate::db::{Database, PrivateServer};
use crate::web::guard::PAGES;
use crate::web::served::{Served, console, set_up};

/// How many requests are sent at once.
const AT_ONCE: usize = 50;

#[test]
fn fifty_requests_at_once_beside_kills_of_the_server_are_all_answered_in_words() {
    let server = PrivateServer::start();
    let database = Database::on(&server);
    set_up(&database);
    let router = console(&database).page(Page::allow_changes).router();
    let served = Served::of(database, router);
    served.insert_failed(1..=30, "declined");
    let is_over = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let browsers: Vec<_> = (0..AT_ONCE)
            .map(|browser| {
                let (served, is_over) = (&served, &is_over);
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let page = PAGES[(browser + seen.len()) % PAGES.len()];
                        let answer = served.get(page);
                        assert_in_words(page, answer.status, &answer.text);
                        seen.push(answer.status);
                    }
                    seen
                })
            })
            .collect();
        for _ in 0..3 {
            server.kill();
            served.until("/audit", "The database does not answer.");
            server.restart();
            served.until_not("/audit", "The database does not answer.");
        }
        is_over.store(true, Ordering::Relaxed);
        browsers.into_iter().flat_map(|browser| browser.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(seen.len() >= AT_ONCE && seen.contains(&StatusCode::OK), "{} answers", seen.len());
    // Afterwards all is as before, without a restart of the application.
    let rows = served.until("/q/payments?state=failed", "30 rows");
    assert_eq!(rows.status, StatusCode::OK);
}

/// An answer is the page, or says that the database is away, slow or asked too much.
fn assert_in_words(page: &str, status: StatusCode, text: &str) {
    let said = match status {
        StatusCode::OK => return,
        StatusCode::SERVICE_UNAVAILABLE => ["The database does not answer.", "Too many people are asking"],
        StatusCode::GATEWAY_TIMEOUT => ["The database has needed too long", ""],
        StatusCode::INTERNAL_SERVER_ERROR => ["The application's log has its words", ""],
        other => panic!("{page}: {other}: {text}"),
    };
    assert!(said.iter().any(|said| !said.is_empty() && text.contains(said)), "{page}: {status}: {text}");
}
