//! The addresses of the page.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use super::guard::{Visit, guard};
use super::layout::show;
use super::site::Site;
use super::trouble::Trouble;
use super::{
    audit, backlog, change, charts, control, doctor, errors, export, overview, pollers, queue, row, run, schedules,
    stages,
};
use crate::console::{Console, Parts};
use crate::database::Database;

/// Forms are small; a selection has at most some thousand keys.
const LONGEST_FORM: usize = 256 * 1024;

/// A file of the page. Its address changes with its content, so browsers may keep it.
pub(super) struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static str,
}

pub(super) static STYLE: Asset =
    Asset { name: "page.css", kind: "text/css; charset=utf-8", content: include_str!("assets/page.css") };

pub(super) static SCRIPT: Asset =
    Asset { name: "page.js", kind: "text/javascript; charset=utf-8", content: include_str!("assets/page.js") };

pub(super) static ICON: Asset =
    Asset { name: "icon.svg", kind: "image/svg+xml", content: include_str!("assets/icon.svg") };

impl<C: Database> Console<C> {
    /// Decides about the page: who may see it, who may change something, and under which hosts it is known.
    pub fn page(self, settings: impl FnOnce(super::Page) -> super::Page) -> Self {
        self.with(|parts| parts.page = settings(std::mem::take(&mut parts.page)))
    }

    /// Returns the page, to be put under any path of an application: `Router::new().nest("/queues", console.router())`.
    ///
    /// It reads the database that [`default_database`](Self::default_database) names, or else DATABASE_URL, through at most four
    /// connections of its own. If none is named, the page says so.
    pub fn router(&self) -> Router {
        let named = std::env::var("DATABASE_URL").ok().filter(|address| !address.trim().is_empty());
        // The application's own choice comes first: the variable may be another program's.
        let address = self.parts.address.clone().or(named);
        let address = address.ok_or_else(|| {
            "No database is named: the application does so by `Console::default_database`, or DATABASE_URL does."
                .to_owned()
        });
        router(self.parts.clone(), self.parts.page.clone(), address)
    }
}

/// Returns the page on the database of this address.
pub(super) fn router<C: Database>(parts: Arc<Parts<C>>, page: super::Page, address: Result<String, String>) -> Router {
    let site = Site::new(parts, page, address);
    Router::new()
        .route("/", get(overview::show_all))
        // A router under a path does not get that path with a slash at its end, to which `..` would lead.
        .route("/overview", get(overview::show_all))
        .route("/q/{queue}", get(queue::show_rows))
        .route("/q/{queue}/search", get(queue::search))
        .route("/q/{queue}/row", get(row::show_one))
        .route("/q/{queue}/errors", get(errors::show_groups))
        .route("/q/{queue}/errors/{group}", get(errors::show_group))
        .route("/q/{queue}/backlog", get(backlog::show_all))
        .route("/q/{queue}/charts", get(charts::show_all))
        .route("/q/{queue}/stages", get(stages::show_all))
        .route("/q/{queue}/schedules", get(schedules::show_all))
        .route("/q/{queue}/change", get(change::preview).post(change::apply))
        .route("/q/{queue}/rows.csv", get(export::csv))
        .route("/q/{queue}/rows.json", get(export::json))
        .route("/pollers", get(pollers::show_all))
        .route("/pauses", get(control::show_all).post(control::change))
        .route("/audit", get(audit::show_page))
        .route("/doctor", get(doctor::show_findings))
        .route("/runs", get(run::show_all))
        .route("/runs/{run}", get(run::show_one))
        .route("/runs/{run}/stop", post(run::stop))
        .route("/assets/{version}/{name}", get(asset))
        .fallback(nothing)
        .layer(DefaultBodyLimit::max(LONGEST_FORM))
        .layer(from_fn_with_state(site.clone(), guard::<C>))
        .with_state(site)
}

async fn nothing<C: Database>(State(site): State<Site<C>>, visit: Visit) -> Response {
    let trouble = Trouble::NotFound("There is no such page.".to_owned());
    show(&site, &visit, ("Not found", None), Err(trouble)).await
}

impl Asset {
    pub(super) fn address(&self) -> String {
        format!("assets/{}/{}", self.version(), self.name)
    }

    fn version(&self) -> String {
        // FNV-1a: it only tells two builds apart.
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", self.content.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, hash))
    }
}

async fn asset(Path((version, name)): Path<(String, String)>) -> Response {
    let Some(asset) = [&STYLE, &SCRIPT, &ICON].into_iter().find(|asset| asset.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    // While a new build replaces an old one, a page of the one may ask the other.
    let kept = if asset.version() == version { "public, max-age=31536000, immutable" } else { "no-store" };
    ([(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, kept)], asset.content).into_response()
}
