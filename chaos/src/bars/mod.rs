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
mod lease_races;
mod locked_rows;
mod migrations;
mod misconduct;
mod old_snapshot;
mod panics;
mod promotion;
mod quiet;
mod server_kills;
mod soak;
mod sqlite_kills;
pub(crate) mod stale_saves;
mod terminations;
mod undecodable;
mod wrong_clocks;

use anyhow::Result;

use crate::options::{Backend, Mode};
use crate::run::Run;

/// One bar.
pub(crate) struct Bar {
    pub(crate) number: u8,
    pub(crate) title: &'static str,
    pub(crate) backends: &'static [Backend],
    pub(crate) modes: &'static [Mode],
    /// Whether it takes its server down, or needs one that is configured for it.
    pub(crate) server: Needs,
    /// Whether it measures times, so that nothing else may run beside it.
    pub(crate) measures: bool,
    /// How long a smoke run of it takes, roughly: the longest are begun first.
    pub(crate) smoke_seconds: u8,
    pub(crate) run: fn(&mut Run) -> Result<()>,
}

/// Which server a bar runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// One that other runs use too.
    Shared,
    /// One of its own.
    Own,
    /// One that other runs use too, and a database on it without the bank's tables.
    Empty,
}

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
];
