//! The bars of the promise, each a run by its number.

mod aborts;
mod error_texts;
mod fail_points;
mod frozen;
mod kills;
mod lease_races;
mod misconduct;
mod panics;
mod sqlite_kills;
pub(crate) mod stale_saves;
mod terminations;
mod undecodable;

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
    pub(crate) run: fn(&mut Run) -> Result<()>,
}

/// Which server a bar runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// One that other runs use too.
    Shared,
    /// One of its own.
    Own,
}

/// All of them, in their order.
pub(crate) const BARS: &[Bar] = &[
    kills::BAR,
    fail_points::BAR,
    aborts::BAR,
    panics::BAR,
    misconduct::BAR,
    stale_saves::BAR,
    error_texts::BAR,
    undecodable::BAR,
    frozen::BAR,
    terminations::BAR,
    sqlite_kills::BAR,
    lease_races::BAR,
];
