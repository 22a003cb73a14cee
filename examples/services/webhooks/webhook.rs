//! The application's own code: its tables, the entity, and the webhooks.

use diesel::prelude::*;
use queueable::Queueable;

diesel::table! {
    webhooks (id) {
        id -> BigInt,
        url -> Text,
        payload -> Text,
    }
}

diesel::table! {
    // Read by the webhook; it has no key of its own.
    answers (webhook_id) {
        webhook_id -> BigInt,
        try_number -> Integer,
        status -> Integer,
        took_ms -> Integer,
        answered_at -> Timestamp,
    }
}

/// A call to an endpoint.
///
/// The lease is short, so that other processes soon take over the rows of a killed process. The heartbeat extends it
/// for as long as a call takes, and the timeout says how long that may be.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Queueable)]
#[diesel(table_name = webhooks)]
#[queue(lease = "6s", timeout = "30s", retry = fixed("200ms"), max_tries = 6)]
pub(crate) struct Webhook {
    pub(crate) id: i64,
    pub(crate) url: String,
    pub(crate) payload: String,
}

/// How the endpoint behaves; the name is the first part of the URL's path, so that the endpoint knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 200.
    Ok,
    /// 200, after a while.
    Slow,
    /// 503, and 200 at the second call.
    Busy,
    /// 429 with `Retry-After: 1`, and 200 at the second call.
    Limited,
    /// 503 with a date in `Retry-After`, and 200 at the second call.
    Closed,
    /// 410.
    Gone,
    /// 500, always.
    Broken,
    /// Nobody listens.
    Down,
}

/// The kinds, and how many of a hundred webhooks are of each.
const KINDS: [(Kind, &str, u64); 8] = [
    (Kind::Ok, "ok", 70),
    (Kind::Slow, "slow", 8),
    (Kind::Busy, "busy", 6),
    (Kind::Limited, "limited", 4),
    (Kind::Closed, "closed", 3),
    (Kind::Gone, "gone", 4),
    (Kind::Broken, "broken", 3),
    (Kind::Down, "down", 2),
];

/// Port 1 of this machine, where nobody listens.
const NOWHERE: &str = "http://127.0.0.1:1";

impl Kind {
    /// The kind of the webhook `id`: the same for the same seed.
    pub(crate) fn of(id: i64, seed: u64) -> Self {
        let mut left = random(seed.wrapping_add(id.unsigned_abs())) % 100;
        for (kind, _, share) in KINDS {
            match left.checked_sub(share) {
                Some(rest) => left = rest,
                None => return kind,
            }
        }
        Kind::Ok
    }

    /// Where the webhook `id` of this kind is sent.
    pub(crate) fn url(self, endpoint: &str, id: i64) -> String {
        let name = KINDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, _)| name);
        let host = if self == Kind::Down { NOWHERE } else { endpoint };
        format!("{host}/{name}/{id}")
    }

    /// The kind that a path names.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        let name = path.split('/').nth(1)?;
        KINDS.iter().find(|(_, known, _)| *known == name).map(|(kind, ..)| *kind)
    }
}

/// A well-mixed number of a number (splitmix64).
fn random(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The path of a URL.
pub(crate) fn path(url: &str) -> &str {
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    url[after_scheme..].find('/').map_or("", |at| &url[after_scheme + at..])
}
