//! Tests of the model and of what is drawn. The queues, and what the reader has read of them, are here.

mod changes;
mod keys;
mod news;
mod screens;
mod terminal;

use chrono::{DateTime, Duration, Utc};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use queueable::Queueable;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::ask::{Ask, Errors, Found, Group, Known, News, Page, PageRow, Place, Snapshot};
use super::model::{Effect, Model, Tab};
use crate::queue::Of;
use crate::queue::Shape;

diesel::table! {
    payments (id) {
        id -> BigInt,
        company_id -> BigInt,
        amount_cents -> BigInt,
    }
}

#[allow(dead_code, reason = "the queue's calls read the rows")]
#[derive(Queryable, Selectable, Queueable)]
struct Payment {
    id: i64,
    company_id: i64,
    amount_cents: i64,
}

diesel::table! {
    mails (id) {
        id -> BigInt,
    }
}

#[allow(dead_code, reason = "the queue's calls read the rows")]
#[derive(Queryable, Selectable, Queueable)]
struct Mail {
    id: i64,
}

fn now() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

/// A screen before anything was read.
fn fresh() -> Model {
    let payments = Of::<Payment>::new::<SqliteConnection>(Vec::new()).expect("a queue");
    let mails = Of::<Mail>::new::<SqliteConnection>(Vec::new()).expect("a queue");
    let facts = vec![payments.facts, mails.facts];
    let names = vec!["payments".to_owned(), "mails".to_owned()];
    Model::new(facts, names, "postgres://shop@db/shop".to_owned(), now())
}

/// A screen on which everything was read.
fn full() -> Model {
    let mut model = fresh();
    model.told(News::Read(Box::new(snapshot())));
    model
}

/// A screen with a tab of rows that were read.
fn with_rows() -> Model {
    let mut model = full();
    press(&mut model, "\n");
    let page = Some((model.listed(), Ok(page())));
    model.told(News::Read(Box::new(Snapshot { at: now(), page, ..Snapshot::default() })));
    model
}

fn snapshot() -> Snapshot {
    let why = json!({ "reasons": [
        { "rows": 12, "example": "17", "explanation": { "reason": "scheduled_for", "time": "2026-03-01T12:05:00Z" } },
    ], "more": false });
    Snapshot {
        at: now(),
        environment: Some("production".to_owned()),
        queues: Some(queues()),
        pollers: Some(Some(of_json(pollers()))),
        why: Some((0, Ok(of_json(why)))),
        errors: Some(errors()),
        page: None,
    }
}

fn queues() -> Vec<Known> {
    let paused = json!({
        "queue": "payments.status", "since": "2026-03-01T11:58:00Z", "by": "ops@example.org", "reason": "bank down",
    });
    let payments = json!({
        "due": 1234, "scheduled": 12, "running": 3, "held_back": 0, "failed": 7, "oldest_due": { "secs": 3725, "nanos": 0 },
        "paused": [paused],
    });
    let mails = json!({ "due": 5, "scheduled": 0, "running": null, "held_back": 0, "failed": 0, "oldest_due": { "secs": 2, "nanos": 0 } });
    vec![
        Known { backlog: Ok(of_json(payments)), done: vec![0, 10, 40, 80, 20, 0, 0, 30, 60, 10] },
        Known { backlog: Ok(of_json(mails)), done: vec![0; 10] },
    ]
}

fn pollers() -> Value {
    json!([{
        "host": "web-2", "pid": 4711, "version": "0.1.0", "application": "shop 1.4.2", "state": "running", "workers": 4,
        "started": "2026-03-01T09:00:00Z", "seen": "2026-03-01T11:59:58Z",
        "queues": [
            { "queue": "payments.status", "entity": "Payment", "settings": {}, "differs": ["timeout"] },
            { "queue": "mails.status", "entity": "Mail", "settings": {} },
        ],
        "running": [
            { "queue": "payments.status", "key": "3345", "since": "2026-03-01T11:59:50Z" },
            { "queue": "payments.status", "key": "17\u{1b}[2J", "since": "2026-03-01T11:57:00Z" },
        ],
    }])
}

fn errors() -> Errors {
    let group = |queue, rows, pattern: &str, minutes| Group {
        queue,
        rows,
        failed: rows / 2,
        last: Some(now() - Duration::minutes(minutes)),
        pattern: pattern.to_owned(),
        example: format!("{pattern}\n  caused by: timeout"),
        keys: vec!["17".to_owned(), "18".to_owned()],
    };
    let groups = vec![group(0, 412, "card declined: <n>", 1), group(0, 3, "no route to \u{1b}[31mhost", 60)];
    Errors { groups, refused: Vec::new(), left_out: 0 }
}

fn page() -> Page {
    let columns = [("id", true), ("company_id", true), ("status", false), ("last_attempt_error_message", false)];
    let row = |id: u32, error: Result<&str, &'static str>| PageRow {
        place: place(&id.to_string()),
        values: vec![Ok(id.to_string()), Ok("3345".to_owned()), Ok("FAILED".to_owned()), error.map(str::to_owned)],
    };
    let rows =
        vec![row(17, Ok("card declined")), row(18, Ok("\u{1b}]0;owned\u{7}\u{202e}x")), row(19, Err("[hidden]"))];
    Page { columns: columns.map(|(name, is_number)| (name.to_owned(), is_number)).into(), rows, more: false }
}

fn place(key: &str) -> Place {
    Place { queue: 0, key: key.to_owned() }
}

fn found(count: usize, environment: Option<&str>) -> Found {
    Found {
        shape: Shape { count, figures: vec![Some("38120".to_owned())], keys: 0 },
        summary: format!("retry of payments: {count} rows, sum of amount_cents: 38120"),
        environment: environment.map(str::to_owned),
    }
}

fn of_json<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a report")
}

/// Presses keys one after the other; a line feed is Enter, and ESC is Esc. Returns what the last one asks for.
fn press(model: &mut Model, keys: &str) -> Vec<Effect> {
    let key = |c| match c {
        '\n' => KeyCode::Enter,
        '\u{1b}' => KeyCode::Esc,
        c => KeyCode::Char(c),
    };
    keys.chars().map(|c| model.key(KeyEvent::from(key(c)))).last().unwrap_or_default()
}

fn control(model: &mut Model, c: char) -> Vec<Effect> {
    model.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL))
}

fn asked(effects: &[Effect]) -> Option<&Ask> {
    match effects {
        [Effect::Ask(ask)] => Some(ask),
        _ => None,
    }
}

fn tab(model: &Model) -> Tab {
    model.tab
}
