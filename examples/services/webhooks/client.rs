//! The call itself: an HTTP request, and the meaning of its answer for the queue.

use std::time::{Duration, Instant, SystemTime};

use queueable::Failure;
use ureq::http::StatusCode;
use ureq::http::header::{HeaderMap, RETRY_AFTER};
use ureq::{Agent, Error};

use crate::webhook::Webhook;

/// The answer, and how long it took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) took: Duration,
}

/// Posts webhooks. It keeps connections open between calls.
pub(crate) struct Client {
    agent: Agent,
}

/// How long an endpoint may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest time for which an endpoint may put us off.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

impl Client {
    pub(crate) fn new() -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            // Every status is read below, and a redirected POST is for a human to look at.
            .http_status_as_error(false)
            .max_redirects(0)
            // The endpoint of this example is on this machine.
            .proxy(None);
        Client { agent: config.build().into() }
    }

    /// Posts a webhook. The failure says whether it is worth another try, and when.
    pub(crate) fn post(&self, webhook: &Webhook, idempotency_key: &str) -> Result<Answer, Failure> {
        let begun = Instant::now();
        let request = self
            .agent
            .post(&webhook.url)
            .header("Idempotency-Key", idempotency_key)
            .header("Content-Type", "application/json");
        let mut response = request.send(&webhook.payload).map_err(unanswered)?;
        let answer = Answer { status: response.status(), took: begun.elapsed() };
        // A connection whose answer was read can be used again. Nobody needs the text of the answer.
        let _ = response.body_mut().with_config().limit(64 * 1024).read_to_vec();

        let refusal = || format!("the endpoint answered {}", answer.status);
        match answer.status.as_u16() {
            200..=299 => Ok(answer),
            408 | 425 | 429 | 500..=599 => Err(match retry_after(response.headers()) {
                Some(delay) => Failure::retry_after(delay, refusal()),
                None => Failure::retry(refusal()),
            }),
            _ => Err(Failure::fatal(refusal())),
        }
    }
}

/// Whether the request may succeed another time.
fn unanswered(error: Error) -> Failure {
    match error {
        Error::BadUri(_) | Error::Http(_) => Failure::fatal(error),
        _ => Failure::retry(error),
    }
}

/// Reads `Retry-After`: seconds, or a date. For any other value, or a date in the past, the policy decides the delay.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let delay = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok()?,
    };
    Some(delay.min(LONGEST_RETRY_AFTER))
}
