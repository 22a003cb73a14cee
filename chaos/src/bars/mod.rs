//! The bars of the promise, each a run by its number.

mod aborts;
pub(crate) mod backoffs;
mod child_inserts;
mod cut_replies;
mod ended_sessions;
mod error_texts;
mod fail_points;
mod frozen;
mod galera;
mod insert_storm;
mod kills;
mod kinds;
mod lanes;
mod late_rows;
mod lease_races;
mod locked_rows;
mod migrations;
mod misconduct;
mod old_snapshot;
mod panics;
mod promotion;
mod quiet;
mod refused_rows;
mod scarce_sessions;
mod server_kills;
mod silence;
mod soak;
mod sqlite_kills;
pub(crate) mod stale_saves;
mod terminations;
mod undecodable;
mod wrong_clocks;

use crate::bar::Bar;

/// All of them, in their order.
pub(crate) const BARS: &[Bar] = &[
    quiet::BAR,
    kills::BAR,
    fail_points::BAR,
    cut_replies::BAR,
    ended_sessions::BAR,
    server_kills::BAR,
    promotion::BAR,
    aborts::BAR,
    panics::BAR,
    misconduct::BAR,
    stale_saves::BAR,
    child_inserts::BAR,
    locked_rows::BAR,
    wrong_clocks::BAR,
    backoffs::BAR,
    error_texts::BAR,
    undecodable::BAR,
    frozen::BAR,
    terminations::BAR,
    insert_storm::BAR,
    galera::BAR,
    sqlite_kills::BAR,
    lease_races::BAR,
    old_snapshot::BAR,
    migrations::BAR,
    soak::BAR,
    kinds::BAR,
    refused_rows::BAR,
    scarce_sessions::BAR,
    late_rows::BAR,
    lanes::BAR,
    silence::BAR,
];
