//! The page in a browser beside many rows, asked as a browser on the same machine asks.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::Request;
use contestant::Backend;
use diesel::{MysqlConnection, PgConnection, SqliteConnection};
use queueable_console::{Console, Database, Operable, TheDatabase};
use tower::ServiceExt;

use crate::service::runtime;
use crate::table::Reported;

/// The pages by their names, but for the group of failures, whose address only the page of errors knows.
const PAGES: &[(&str, &str)] = &[
    ("overview", "/"),
    ("first page", "/q/payments"),
    ("failed", "/q/payments?state=failed"),
    ("due", "/q/payments?state=due"),
    ("finished", "/q/payments?state=finished"),
    ("search by an index", "/q/payments?where=amount_cents+%3D+7"),
    ("search without one", "/q/payments?where=number+%3D+7000000"),
    ("errors", ERRORS),
    ("row", "/q/payments/row?key=5000"),
    ("backlog", "/q/payments/backlog"),
    ("charts", "/q/payments/charts"),
    ("doctor", "/doctor?now=yes"),
];

const ERRORS: &str = "/q/payments/errors";

/// How the page says that a statement was ended because it took too long.
const TOO_LONG: &str = "The database has needed too long";

/// How long a page's answers took, in milliseconds, and how many of them say that the database needed too long.
pub(crate) struct Timed {
    pub(crate) page: &'static str,
    pub(crate) taken: Vec<f64>,
    pub(crate) too_long: usize,
}

/// Asks for each page so many times.
///
/// Each time it is another router, because each keeps for a moment what it has read. So each time includes a new connection, and that of
/// the overview runs beside an examination by the doctor, which the page begins at most once in five minutes.
pub(crate) fn time_pages(backend: Backend, url: &str, times: usize) -> Result<Vec<Timed>> {
    let (_, errors) = ask(backend, url, ERRORS)?;
    let group = errors.split_once("errors/").and_then(|(_, rest)| rest.split_once('?'));
    let (group, _) = group.context("the page of errors links to a group")?;
    let group = format!("{ERRORS}/{group}");
    let pages = PAGES.iter().copied().chain([("group of failures", group.as_str())]);
    let timed = pages.map(|(page, address)| {
        // The first one warms up.
        ask(backend, url, address)?;
        let mut timed = Timed { page, taken: Vec::with_capacity(times), too_long: 0 };
        for _ in 0..times {
            let (taken, text) = ask(backend, url, address)?;
            timed.taken.push(taken);
            timed.too_long += usize::from(text.contains(TOO_LONG));
        }
        Ok(timed)
    });
    timed.collect()
}

/// Asks a new router for a page. Returns how many milliseconds the answer took, and its text.
fn ask(backend: Backend, url: &str, address: &str) -> Result<(f64, String)> {
    let router = match backend {
        Backend::Postgres => router::<PgConnection>(url),
        Backend::Mariadb => router::<MysqlConnection>(url),
        Backend::SqliteFull | Backend::SqliteNormal => router::<SqliteConnection>(url),
    };
    let peer: SocketAddr = ([127, 0, 0, 1], 50_000).into();
    let request = Request::get(address).header("host", "127.0.0.1:8080").extension(ConnectInfo(peer));
    let request = request.body(Body::empty())?;
    // When this runtime ends, it waits for the statements that the page has not waited for.
    runtime()?.block_on(async {
        let begun = Instant::now();
        let response = router.oneshot(request).await?;
        let status = response.status();
        let text = to_bytes(response.into_body(), usize::MAX).await?;
        let taken = begun.elapsed().as_secs_f64() * 1_000.0;
        let text = String::from_utf8(text.into())?;
        if !status.is_success() && !text.contains(TOO_LONG) {
            bail!("{address} answers {status}: {text}");
        }
        Ok((taken, text))
    })
}

fn router<C: Database>(url: &str) -> Router
where
    (): TheDatabase<C>,
    Reported: Operable<C>,
{
    Console::<C>::new().entity::<Reported>().default_database(url).router()
}
