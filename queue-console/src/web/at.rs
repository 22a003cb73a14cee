//! The queue that an address names, if the visitor may see it: the beginning of each page of a queue.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};

use super::guard::Visit;
use super::layout::show;
use super::site::{Named, Site};
use super::trouble::Trouble;
use crate::database::Database;

/// Who asks, and about which queue.
pub(super) struct At {
    pub(super) visit: Visit,
    pub(super) named: Named,
}

impl<C: Database> FromRequestParts<Site<C>> for At {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, site: &Site<C>) -> Result<Self, Response> {
        let visit = Visit::from_request_parts(parts, site).await.map_err(IntoResponse::into_response)?;
        let path = RawPathParams::from_request_parts(parts, site).await.ok();
        let name = path.as_ref().and_then(|path| path.iter().find(|(of, _)| *of == "queue")).map(|(_, name)| name);
        let named = match name {
            Some(name) => site.queue(&visit.visitor, name),
            None => Err(Trouble::NotFound("There is no such page.".to_owned())),
        };
        match named {
            Ok(named) => Ok(At { visit, named }),
            Err(trouble) => Err(show(site, &visit, ("Not found", None), Err(trouble)).await),
        }
    }
}
