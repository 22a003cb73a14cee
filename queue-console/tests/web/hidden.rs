//! What a visitor must not see: values of a hidden column by which rows take turns, and processes of other queues.

use axum::http::StatusCode;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Migrations, Pause, Queueable};
use queueable_console::{Console, Visitor};

use super::served::{SECRET, Served};
use crate::db::{BIGINT, Conn, Database, TEXT};

diesel::table! { calls (id) { id -> BigInt, api_token -> Text, } }

/// An entity whose rows take turns by a column that nobody is to see.
#[allow(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[queue(serial_by = api_token, lease = "60s")]
struct Call {
    id: i64,
    api_token: String,
}

fn calls() -> Served {
    let database = Database::new();
    let connection = &mut database.connect();
    let table = format!("CREATE TABLE calls (id {BIGINT} PRIMARY KEY NOT NULL, api_token {TEXT} NOT NULL)");
    connection.batch_execute(&table).unwrap();
    let migrations = Migrations::new().entity::<Call>().control().audit();
    connection.run_pending_migrations(migrations).unwrap();
    let router = console(&database).router();
    Served::of(database, router)
}

fn console(database: &Database) -> Console<Conn> {
    Console::<Conn>::new().entity::<Call>().default_database(database.url())
}

#[test]
fn no_value_of_a_hidden_column_is_shown_because_rows_take_turns_by_it() {
    let served = calls();
    let now = chrono::Utc::now();
    let [now, lease] = [now, now + chrono::TimeDelta::seconds(50)].map(|time| time.format("%Y-%m-%d %H:%M:%S.000"));
    served.execute(&format!(
        "INSERT INTO calls (id, api_token, status, next_attempt_time, last_attempt_time)
         VALUES (1, '{SECRET}', 'IN_PROGRESS', '{lease}', '{now}'),
                (2, '{SECRET}', 'NOT_ATTEMPTED', '2026-01-01 00:00:00.000', NULL)"
    ));
    let waits = served.get("/q/calls/row?key=2");
    assert!(waits.text.contains("another row with api_token = [hidden] is being processed"), "{}", waits.text);
    assert!(!waits.text.contains(SECRET), "{}", waits.text);

    let pause = Pause::new("they asked", "ops");
    Call::pause_where(&mut served.database.connect(), calls::api_token, SECRET, pause).unwrap();
    for (page, says) in [
        ("/q/calls/row?key=2&s.state=due", "a value that is not shown paused since"),
        ("/q/calls/backlog", "a value that is not shown"),
        ("/pauses", "a value that is not shown"),
        ("/audit", "a value that is not shown"),
        ("/", "calls"),
    ] {
        let page = served.until(page, says);
        assert!(!page.text.contains(SECRET), "{}", page.text);
    }
}

#[test]
fn no_bundle_of_the_doctor_has_a_hidden_value_because_rows_take_turns_by_it() {
    let served = calls();
    let pause = Pause::new("they asked", "ops");
    Call::pause_where(&mut served.database.connect(), calls::api_token, SECRET, pause).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bundle.json");
    let console = console(&served.database);
    let (url, path) = (served.database.url(), file.display().to_string());
    let arguments = ["console", "doctor", "--bundle", path.as_str(), "--database-url", url];
    let Ok(_) = console.run_matches(&console.subcommand().get_matches_from(arguments));
    let bundle = std::fs::read_to_string(&file).unwrap();
    assert!(bundle.contains("a value that is not shown"), "{bundle}");
    assert!(!bundle.contains(SECRET), "{bundle}");
}

#[test]
fn people_of_one_queue_do_not_see_where_its_rows_run() {
    let all = Served::local();
    let some = Served::new(|page| page.authorize(|_| Ok::<_, StatusCode>(Visitor::new("support").only(["mails"]))));
    for (served, sees) in [(all, true), (some, false)] {
        served.execute(
            "INSERT INTO mails (site, number, status, next_attempt_time) VALUES ('north, <east>', 7, 'NOT_ATTEMPTED', '2026-01-01 00:00:00.000');
             INSERT INTO queueable_pollers (id, host, pid, version, application, state, workers, queues, running, started_at, seen_at)
             VALUES (1, 'web-2', 4711, '0.1.0', 'shop', 'running', 4, '[]', \
             '[{\"queue\": \"mails.status\", \"key\": \"north%2C%20<east>,7\", \"stage\": null, \"for_ms\": 5000}]', \
             CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)",
        );
        let page = served.get("/q/mails/row?key=%5B%22north%2C+%3Ceast%3E%22%2C%227%22%5D").plain();
        assert!(page.contains("runs it, begun"), "{page}");
        assert_eq!(page.contains("web-2") || page.contains("4711"), sees, "{page}");
    }
}

#[test]
fn a_text_without_end_is_cut_on_the_page_of_its_row() {
    let served = Served::local();
    served.insert_failed(1..=1, &"declined ".repeat(100_000));
    let page = served.get("/q/payments/row?key=1");
    assert!(page.text.len() < 50_000, "{}", page.text.len());
    assert_eq!(page.text.matches("(cut after 10,000 characters)").count(), 2, "{}", page.text);
}
