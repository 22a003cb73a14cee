//! The pages of what is left, what was done, stages and schedules.

use axum::http::StatusCode;
use diesel::connection::SimpleConnection;
use diesel::deserialize::FromSqlRow;
use diesel::expression::AsExpression;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::{Migrations, Queueable, Stage};
use queueable_console::Console;

use super::served::{SECRET, Served};
use crate::db::{BIGINT, Conn, Database};

diesel::table! { invoices (id) { id -> BigInt, } }
diesel::table! { jobs (id) { id -> BigInt, } }

#[derive(Debug, Clone, Copy, PartialEq, Eq, AsExpression, FromSqlRow, Stage)]
#[diesel(sql_type = Text)]
enum Step {
    Render,
    Send,
}

#[allow(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[queue(stage = Step)]
struct Invoice {
    id: i64,
}

#[allow(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[queue(periodic, window = "Mon-Sun 00:00-24:00 Europe/Berlin")]
struct Job {
    id: i64,
}

/// Serves invoices with stages, and jobs with schedules.
fn served() -> Served {
    let database = Database::new();
    let connection = &mut database.connect();
    let table = |name: &str| format!("CREATE TABLE {name} (id {BIGINT} PRIMARY KEY NOT NULL)");
    for name in ["invoices", "jobs"] {
        connection.batch_execute(&table(name)).unwrap();
    }
    let migrations = Migrations::new().entity::<Invoice>().entity::<Job>().control();
    connection.run_pending_migrations(migrations).unwrap();
    let console = Console::<Conn>::new().entity::<Invoice>().entity::<Job>().default_database(database.url());
    Served::of(database, console.router())
}

/// Inserts payments of a company that are due.
fn insert_due(served: &Served, company: i64, ids: std::ops::RangeInclusive<i64>) {
    for id in ids {
        served.execute(&format!(
            "INSERT INTO payments (id, company_id, amount_cents, note, api_token, next_attempt_time)
             VALUES ({id}, {company}, 100, '<b>note {id}', '{SECRET}-{id}', '2026-01-01 00:00:00.000')"
        ));
    }
}

#[test]
fn the_backlog_is_shown_by_the_values_that_take_turns() {
    let served = Served::local();
    insert_due(&served, 7, 1..=2);
    insert_due(&served, 3345, 3..=5);
    served.insert_failed(6..=6, "declined");
    let page = served.get("/q/payments/backlog");
    let plain = page.plain();
    assert!(plain.contains("The values of company_id take turns") && plain.contains("due 5"), "{plain}");
    let (first, second) = (plain.find("3345").unwrap(), plain.rfind(" 7 ").unwrap());
    assert!(first < second, "the value with most due rows comes first: {plain}");
    let link = page.text.split("where=").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
    let only = served.get(&format!("/q/payments/backlog?where={link}")).plain();
    assert!(only.contains("due 3") && !only.contains("due 5"), "{only}");
    let whole = served.get("/q/payments/backlog?by=").plain();
    assert!(whole.contains("due 5") && !whole.contains("By company_id"), "{whole}");
}

#[test]
fn the_overview_counts_no_further_than_a_person_reads() {
    let served = Served::local();
    let insert = |ids: std::ops::RangeInclusive<i64>, time: &str| {
        let rows: Vec<_> = ids.map(|id| format!("({id}, 1, 1, '', '', '{time}')")).collect();
        for rows in rows.chunks(1_000) {
            let rows = rows.join(", ");
            served.execute(&format!(
                "INSERT INTO payments (id, company_id, amount_cents, note, api_token, next_attempt_time) VALUES {rows}"
            ));
        }
    };
    insert(1..=10_000, "2026-01-01 00:00:00.000");
    insert(20_001..=20_003, "2999-01-01 00:00:00.000");
    served.insert_failed(30_001..=30_002, "declined");
    let counts = || {
        let overview = served.get("/").text;
        let line = overview.split("<tr>").find(|line| line.contains("q/payments")).unwrap().to_owned();
        let count = |state: &str| {
            let link = line.split(&format!("?state={state}\">")).nth(1).unwrap();
            link.split('<').next().unwrap().to_owned()
        };
        let is_old = !line.contains("none due");
        (["due", "scheduled", "failed"].map(count), is_old)
    };
    assert_eq!(counts(), (["10,000", "3", "2"].map(str::to_owned), true));
    insert(10_001..=10_001, "2026-01-01 00:00:00.000");
    let router = super::served::console(&served.database).router();
    let served = Served::of(served.database, router);
    let overview = served.get("/").text;
    assert!(overview.contains("?state=due\">more than 10,000<"), "{overview}");
    assert!(overview.contains("no registered poller serves it, and more than 10,000 rows are due"), "{overview}");
}

#[test]
fn a_report_is_split_by_no_secret_and_escapes_its_values() {
    let served = Served::local();
    insert_due(&served, 7, 1..=2);
    for page in ["backlog", "charts"] {
        let refused = served.get(&format!("/q/payments/{page}?by=api_token"));
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{page}");
        assert!(!refused.text.contains(SECRET) && refused.text.contains("are not shown"), "{}", refused.text);
        assert_eq!(served.get(&format!("/q/payments/{page}?by=nothing")).status, StatusCode::BAD_REQUEST);
        let options = served.get(&format!("/q/payments/{page}")).text;
        assert!(!options.contains("value=\"api_token\"") && options.contains("value=\"note\""), "{options}");
        let wrong = served.get(&format!("/q/payments/{page}?where=nonsense%20%3D"));
        assert!(wrong.text.contains("notice error") && wrong.text.contains("<form"), "{}", wrong.text);
    }
    let page = served.get("/q/payments/backlog?by=note").text;
    assert!(page.contains("&lt;b&gt;note 1") && !page.contains("<b>note"), "{page}");
}

#[test]
fn charts_show_what_was_done_with_the_same_numbers_as_a_table() {
    let served = Served::local();
    let now = chrono::Utc::now().format("%Y-%m-%d %H:%M:%S.000");
    for (id, status) in [(1, "SUCCESS"), (2, "SUCCESS"), (3, "FAILED")] {
        served.execute(&format!(
            "INSERT INTO payments (id, company_id, amount_cents, note, api_token, status, last_attempt_time)
             VALUES ({id}, {id}, 100, '<b>', '', '{status}', '{now}')"
        ));
    }
    for range in ["hour", "day", "week"] {
        let page = served.get(&format!("/q/payments/charts?range={range}&by=company_id"));
        assert_eq!(page.status, StatusCode::OK);
        let plain = page.plain();
        assert!(plain.contains("2 succeeded, 1 failed") && plain.contains("By company_id"), "{range}: {plain}");
        assert!(page.text.contains("<svg role=\"img\"") && plain.contains("in all 2 1"), "{range}: {plain}");
        assert!(!page.text.contains("style="), "{}", page.text);
    }
    assert_eq!(served.get("/q/payments/charts?range=year").status, StatusCode::BAD_REQUEST);
    let one = served.get("/q/payments/charts?where=company_id%20%3D%203").plain();
    assert!(one.contains("0 succeeded, 1 failed"), "{one}");
}

#[test]
fn stages_are_a_flow_with_their_counts() {
    let served = served();
    for (id, stage) in ["RENDER", "RENDER", "SEND", "FRAME"].iter().enumerate() {
        served.execute(&format!(
            "INSERT INTO invoices (id, stage, next_attempt_time) VALUES ({id}, '{stage}', '2026-01-01 00:00:00.000')"
        ));
    }
    let page = served.get("/q/invoices/stages");
    let plain = page.plain();
    let (render, send) = (plain.find("RENDER").unwrap(), plain.find("SEND").unwrap());
    assert!(render < send && plain[render..send].contains("due 2"), "{plain}");
    assert!(plain.contains("does not know: FRAME"), "{plain}");
    served.execute("UPDATE invoices SET stage = 'send' WHERE id = 1");
    for unknown in ["FRAME", "send"] {
        let page = served.until("/q/invoices/stages", unknown);
        let link = page
            .text
            .split("does not know: <a href=\"../../q/invoices?")
            .find(|part| part.contains(&format!(">{unknown}<")));
        let query = link.unwrap().split('"').next().unwrap();
        let rows = served.get(&format!("/q/invoices?{query}"));
        assert!(rows.text.contains("1 row<"), "{query}: {}", rows.text);
    }
    assert_eq!(served.get("/q/jobs/stages").status, StatusCode::NOT_FOUND);
}

#[test]
fn schedules_are_shown_in_words() {
    let served = served();
    served.execute(
        "INSERT INTO jobs (id, cron, time_zone, next_attempt_time) VALUES (1, '30 2 * * *', 'Europe/Berlin', '2030-01-01 00:00:00.000');
         INSERT INTO jobs (id, period, next_attempt_time) VALUES (2, 3600, '2031-01-01 00:00:00.000');
         INSERT INTO jobs (id) VALUES (3)",
    );
    let plain = served.get("/q/jobs/schedules").plain();
    for text in ["30 2 * * * Europe/Berlin", "every 1h", "none: it runs once", "The window is open", "One run makes up"]
    {
        assert!(plain.contains(text), "{text}: {plain}");
    }
    assert_eq!(served.get("/q/invoices/schedules").status, StatusCode::NOT_FOUND);
}
