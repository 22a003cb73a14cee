//! The other side: a small HTTP server that takes the webhooks, well or badly, and counts the calls of each key.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tiny_http::{Header, Method, Request, Response, Server};

use crate::webhook::Kind;

/// The calls that the endpoint has heard under one `Idempotency-Key`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Heard {
    pub(crate) path: String,
    pub(crate) calls: u32,
    /// How many of the calls came before the time that `Retry-After` had asked for.
    pub(crate) early: u32,
    #[serde(skip)]
    not_before: Option<SystemTime>,
}

/// The calls by their key.
pub(crate) type Calls = BTreeMap<String, Heard>;

/// How many calls are answered at the same time.
const THREADS: usize = 32;

/// How long a slow answer takes.
const SLOW: Duration = Duration::from_millis(100);

/// Starts the server on a free port of this machine and returns its URL. It runs until the process ends.
pub(crate) fn start() -> Result<String> {
    let server = Server::http("127.0.0.1:0").map_err(anyhow::Error::from_boxed).context("cannot start the endpoint")?;
    let address = server.server_addr();
    let (server, calls) = (Arc::new(server), Arc::new(Mutex::new(Calls::new())));
    for _ in 0..THREADS {
        let (server, calls) = (server.clone(), calls.clone());
        thread::spawn(move || {
            for request in server.incoming_requests() {
                // A client that has gone away has heard no answer; the call is counted.
                let _ = answer(request, &calls);
            }
        });
    }
    Ok(format!("http://{address}"))
}

/// Reads from an endpoint the calls that it has heard so far.
pub(crate) fn calls(endpoint: &str) -> Result<Calls> {
    let agent: ureq::Agent = ureq::Agent::config_builder().proxy(None).build().into();
    let mut response = agent.get(format!("{endpoint}/calls")).call().context("the endpoint does not answer")?;
    Ok(serde_json::from_reader(response.body_mut().as_reader())?)
}

fn answer(request: Request, calls: &Mutex<Calls>) -> io::Result<()> {
    if *request.method() == Method::Get {
        let calls = serde_json::to_string(&*calls.lock().unwrap_or_else(PoisonError::into_inner))?;
        return request.respond(Response::from_string(calls));
    }
    let key = request.headers().iter().find(|header| header.field.equiv("Idempotency-Key"));
    let (Some(key), Some(kind)) = (key.map(|header| header.value.to_string()), Kind::of_path(request.url())) else {
        return request.respond(Response::empty(404));
    };
    if kind == Kind::Slow {
        thread::sleep(SLOW);
    }
    let (status, retry_after) = count(calls, key, request.url(), kind);
    let header = retry_after.and_then(|value| Header::from_bytes("Retry-After", value).ok());
    let response = Response::empty(status);
    request.respond(header.into_iter().fold(response, Response::with_header))
}

/// Counts a call and decides on the answer: the status, and the value of `Retry-After`.
fn count(calls: &Mutex<Calls>, key: String, path: &str, kind: Kind) -> (u16, Option<String>) {
    let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
    let now = SystemTime::now();
    let new = || Heard { path: path.to_owned(), calls: 0, early: 0, not_before: None };
    let heard = calls.entry(key).or_insert_with(new);
    heard.calls += 1;
    heard.early += u32::from(heard.not_before.is_some_and(|time| now < time));
    match (kind, heard.calls) {
        (Kind::Gone, _) => (410, None),
        (Kind::Broken, _) => (500, None),
        (Kind::Busy, 1) => (503, None),
        (Kind::Limited, 1) => {
            heard.not_before = Some(now + Duration::from_secs(1));
            (429, Some("1".to_owned()))
        }
        (Kind::Closed, 1) => {
            // Such a date has no fractions of a second.
            let date = httpdate::fmt_http_date(now + Duration::from_secs(2));
            heard.not_before = httpdate::parse_http_date(&date).ok();
            (503, Some(date))
        }
        _ => (200, None),
    }
}
