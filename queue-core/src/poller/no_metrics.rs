//! Stands in for the metrics of a poller while their feature is off, so that the compiler names the feature.

use std::time::Duration;

use diesel::r2d2::R2D2Connection;

use super::poller::Poller;

/// The feature `metrics` is on.
#[diagnostic::on_unimplemented(
    message = "metrics of a poller need the feature `metrics` of queueable",
    label = "the feature `metrics` is off",
    note = "switch it on: `cargo add queueable --features metrics`"
)]
pub trait CountsMetrics {}

impl<C: R2D2Connection + 'static> Poller<C> {
    /// Needs the feature `metrics`.
    #[doc(hidden)]
    pub fn metrics(self) -> Self
    where
        Self: CountsMetrics,
    {
        self
    }

    /// Needs the feature `metrics`.
    #[doc(hidden)]
    pub fn gauges_by<Q, S>(self, _column: S, _most: u32) -> Self
    where
        Self: CountsMetrics,
    {
        self
    }

    /// Needs the feature `metrics`.
    #[doc(hidden)]
    pub fn gauges_sum<Q, S>(self, _column: S) -> Self
    where
        Self: CountsMetrics,
    {
        self
    }

    /// Needs the feature `metrics`.
    #[doc(hidden)]
    pub fn gauges(self, _every: Duration) -> Self
    where
        Self: CountsMetrics,
    {
        self
    }
}
