//! What it costs the database that many people look at the page.

#[allow(unused, reason = "the suite of the library needs more of it")]
#[path = "../../tests/db/sqlite.rs"]
mod db;
#[allow(dead_code, reason = "the suite needs more of it")]
#[path = "web/served.rs"]
mod served;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use axum::http::StatusCode;
use diesel::connection::{InstrumentationEvent, set_default_instrumentation};

use self::served::Served;

static STATEMENTS: AtomicUsize = AtomicUsize::new(0);

/// How many people look at the same time.
const BROWSERS: usize = 20;

/// The pages with the number of statements that they need at most if nobody has looked for a while, with those that set up the
/// connections. The pages ask again every five seconds at most, and what they ask is kept for two. The overview has the doctor examine
/// the queues, once in five minutes.
const PAGES: [(&str, usize); 3] = [("/q/payments?state=failed", 40), ("/q/payments/errors", 40), ("/", 150)];

fn statements_of(served: &Served, address: &str, browsers: usize) -> usize {
    let before = STATEMENTS.load(Ordering::SeqCst);
    thread::scope(|scope| {
        for _ in 0..browsers {
            scope.spawn(|| assert_eq!(served.get(address).status, StatusCode::OK));
        }
    });
    STATEMENTS.load(Ordering::SeqCst) - before
}

#[test]
fn many_browsers_cost_as_much_as_one() {
    let counts: fn() -> Option<Box<dyn diesel::connection::Instrumentation>> = || {
        Some(Box::new(|event: InstrumentationEvent<'_>| {
            if matches!(event, InstrumentationEvent::StartQuery { .. }) {
                STATEMENTS.fetch_add(1, Ordering::SeqCst);
            }
        }))
    };
    set_default_instrumentation(counts).unwrap();
    let served = Served::local();
    served.insert_failed(1..=100, "declined");
    for (address, most) in PAGES {
        let cost = statements_of(&served, address, BROWSERS);
        assert!(cost <= most, "{address}: {cost} statements for {BROWSERS} browsers");
    }
}
