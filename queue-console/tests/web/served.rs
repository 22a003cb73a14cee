//! A page on a database of its own, and requests to it as browsers and others send them.

use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{Request, Response, StatusCode, header};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Migrations, Queueable};
use queueable_console::{Console, Page};
use tower::ServiceExt;

use crate::db::{BIGINT, Conn, Database, LONG_TEXT, TEXT};

diesel::table! {
    payments (id) {
        id -> BigInt,
        company_id -> BigInt,
        amount_cents -> BigInt,
        note -> Text,
        api_token -> Text,
    }
}

#[allow(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[queue(fair_by = company_id, retry = fixed("1h"), max_tries = 3)]
pub(crate) struct Payment {
    id: i64,
    company_id: i64,
    amount_cents: i64,
    note: String,
    api_token: String,
}

diesel::table! {
    mails (site, number) {
        site -> Text,
        number -> BigInt,
    }
}

#[allow(dead_code, reason = "the page reads the columns")]
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(primary_key(site, number))]
pub(crate) struct Mail {
    site: String,
    number: i64,
}

/// What no page may ever have in it.
pub(crate) const SECRET: &str = "tk-4711";

/// A page.
pub(crate) struct Served {
    pub(crate) database: Database,
    pub(crate) router: Router,
    runtime: tokio::runtime::Runtime,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: axum::http::HeaderMap,
    pub(crate) text: String,
}

/// Makes a table of payments and one of mails, with the library's own tables.
pub(crate) fn database() -> Database {
    let database = Database::new();
    set_up(&database);
    database
}

pub(crate) fn set_up(database: &Database) {
    let connection = &mut database.connect();
    let tables = format!(
        "CREATE TABLE payments (id {BIGINT} PRIMARY KEY NOT NULL, company_id {BIGINT} NOT NULL, \
         amount_cents {BIGINT} NOT NULL, note {LONG_TEXT} NOT NULL, api_token {LONG_TEXT} NOT NULL);
         CREATE TABLE mails (site {TEXT} NOT NULL, number {BIGINT} NOT NULL, PRIMARY KEY (site, number))"
    );
    connection.batch_execute(&tables).unwrap();
    let migrations = Migrations::new().entity::<Payment>().entity::<Mail>().control().pollers().minutes().audit();
    connection.run_pending_migrations(migrations).unwrap();
}

pub(crate) fn console(database: &Database) -> Console<Conn> {
    Console::<Conn>::new().entity::<Payment>().entity::<Mail>().default_database(database.url())
}

impl Served {
    /// Serves the page with these settings.
    pub(crate) fn new(settings: impl FnOnce(Page) -> Page) -> Self {
        let database = database();
        let router = console(&database).page(settings).router();
        Served::of(database, router)
    }

    pub(crate) fn of(database: Database, router: Router) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Served { database, router, runtime }
    }

    /// Serves a page on which a person on the same machine may change something.
    pub(crate) fn local() -> Self {
        Served::new(Page::allow_changes)
    }

    /// Sends a request as it is.
    pub(crate) fn send(&self, request: Request<Body>) -> Answer {
        self.runtime.block_on(async {
            let response: Response<Body> = self.router.clone().oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let text = to_bytes(body, usize::MAX).await.unwrap();
            Answer { status: parts.status, headers: parts.headers, text: String::from_utf8_lossy(&text).into_owned() }
        })
    }

    /// Sends what a browser on the same machine sends for an address.
    pub(crate) fn get(&self, address: &str) -> Answer {
        self.send(get(address).body(Body::empty()).unwrap())
    }

    /// Sends what a browser sends for a form of the page.
    pub(crate) fn post(&self, address: &str, fields: &[(&str, &str)]) -> Answer {
        self.send(ours(post(address)).body(form(fields)).unwrap())
    }

    pub(crate) fn execute(&self, sql: &str) {
        self.database.connect().batch_execute(sql).unwrap();
    }

    /// Inserts payments of company 3345 that have failed with this error.
    pub(crate) fn insert_failed(&self, ids: std::ops::RangeInclusive<i64>, error: &str) {
        for id in ids {
            self.execute(&format!(
                "INSERT INTO payments (id, company_id, amount_cents, note, api_token, status, try_count, \
                     last_attempt_time, last_attempt_error_message)
                 VALUES ({id}, 3345, {}, 'note {id}', '{SECRET}-{id}', 'FAILED', 3, '2026-01-01 00:00:00.000', '{error}')",
                100 * id,
            ));
        }
    }

    /// How many payments have this status.
    pub(crate) fn with_status(&self, status: &str) -> i64 {
        #[derive(QueryableByName)]
        struct Found {
            #[diesel(sql_type = diesel::sql_types::BigInt)]
            found: i64,
        }
        let count = format!("SELECT COUNT(*) AS found FROM payments WHERE status = '{status}'");
        diesel::sql_query(count).get_result::<Found>(&mut self.database.connect()).unwrap().found
    }

    /// Loads a page until it has a text. Something else makes it come.
    pub(crate) fn until(&self, address: &str, text: &str) -> Answer {
        self.until_so(address, |answer| answer.text.contains(text))
    }

    pub(crate) fn until_not(&self, address: &str, text: &str) -> Answer {
        self.until_so(address, |answer| !answer.text.contains(text))
    }

    fn until_so(&self, address: &str, is_so: impl Fn(&Answer) -> bool) -> Answer {
        for _ in 0..6_000 {
            let answer = self.get(address);
            if is_so(&answer) {
                return answer;
            }
            let (_nobody, pace) = std::sync::mpsc::channel::<()>();
            let _ = pace.recv_timeout(std::time::Duration::from_millis(10));
        }
        panic!("{address} stays {}", self.get(address).text);
    }
}

impl Answer {
    /// The texts without the tags.
    pub(crate) fn plain(&self) -> String {
        let texts = self.text.split('<').filter_map(|part| part.split_once('>')).map(|(_, text)| text.trim());
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// The value of a hidden field.
    pub(crate) fn field(&self, name: &str) -> String {
        let place = self.text.find(&format!("name=\"{name}\"")).unwrap_or_else(|| panic!("no {name}: {}", self.text));
        let value = self.text[place..].split("value=\"").nth(1).unwrap().split('"').next().unwrap();
        value.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The place to which a form leads, seen from the page of the form.
    pub(crate) fn leads_to(&self, from: &str) -> String {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.text);
        let mut parts: Vec<&str> = from.split('/').collect();
        parts.pop();
        for part in self.header("location").split('/') {
            match part {
                ".." => drop(parts.pop()),
                "." => {}
                part => parts.push(part),
            }
        }
        parts.join("/")
    }
}

/// A request from the same machine, as `127.0.0.1:8080`.
pub(crate) fn get(address: &str) -> axum::http::request::Builder {
    Request::get(address).header(header::HOST, "127.0.0.1:8080").extension(peer("127.0.0.1:50000"))
}

pub(crate) fn post(address: &str) -> axum::http::request::Builder {
    Request::post(address)
        .header(header::HOST, "127.0.0.1:8080")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .extension(peer("127.0.0.1:50000"))
}

pub(crate) fn ours(request: axum::http::request::Builder) -> axum::http::request::Builder {
    request.header("sec-fetch-site", "same-origin")
}

pub(crate) fn form(fields: &[(&str, &str)]) -> Body {
    let mut form = form_urlencoded::Serializer::new(String::new());
    fields.iter().for_each(|(name, value)| _ = form.append_pair(name, value));
    Body::from(form.finish())
}

pub(crate) fn peer(address: &str) -> ConnectInfo<SocketAddr> {
    ConnectInfo(address.parse().unwrap())
}
