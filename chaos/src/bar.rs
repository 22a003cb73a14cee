//! A bar of the promise: what is run, on which databases, in which modes.

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
