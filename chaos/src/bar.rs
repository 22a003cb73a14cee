//! A bar of the promise: the check that it runs, the databases, and the modes.

use anyhow::Result;

use crate::options::{Backend, Mode};
use crate::run::Run;

/// One bar.
pub(crate) struct Bar {
    pub(crate) number: u8,
    pub(crate) title: &'static str,
    pub(crate) backends: &'static [Backend],
    pub(crate) modes: &'static [Mode],
    /// The server that it needs: its own, if it takes the server down or configures it.
    pub(crate) server: Needs,
    /// Whether it measures times, so that nothing else may run at the same time.
    pub(crate) measures: bool,
    /// Roughly how long a smoke run takes. The longest ones start first.
    pub(crate) smoke_seconds: u8,
    pub(crate) run: fn(&mut Run) -> Result<()>,
}

/// Which server a bar runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A server that other runs use too.
    Shared,
    /// A server of its own.
    Own,
    /// A server that other runs use too, with a database without the bank's tables.
    Empty,
}
