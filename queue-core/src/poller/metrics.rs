//! The metrics of a poller.

use diesel::r2d2::R2D2Connection;

use super::poller::Poller;
use crate::event::count_for_metrics;

impl<C: R2D2Connection + 'static> Poller<C> {
    /// Counts what happens through the facade `metrics`, for the recorder that the application has installed before the
    /// poller starts. Needs the feature `metrics`.
    ///
    /// | metric | kind | labels |
    /// |---|---|---|
    /// | `queueable_attempts_total` | counter | `entity`, `outcome` |
    /// | `queueable_attempt_duration_seconds` | histogram | `entity`, `outcome` |
    /// | `queueable_attempt_wait_seconds` | histogram: from due to begun | `entity` |
    /// | `queueable_handlers_past_timeout_total` | counter | `entity` |
    /// | `queueable_workers_stuck_total` | counter | `entity` |
    /// | `queueable_connections_lost_total` | counter | |
    /// | `queueable_queues_stalled_total` | counter | `entity` |
    ///
    /// The outcomes are the names of the [events](crate::Event) that end an attempt: `succeeded`, `advanced`, `runs_again`,
    /// `skipped`, `will_retry`, `gave_up`, `interrupted`, `refused`, `lease_lost`. A duration and a wait are recorded if the
    /// event has them.
    ///
    /// The workers record by themselves, so that no event is missed; a recorder that waits holds them up. If the recorder
    /// panics, the panic is logged once, and the work goes on.
    ///
    /// The state of the table is not a metric of one poller: export
    /// [`PollerHandle::health`](crate::PollerHandle::health), or [`QueueRows::backlog`](crate::QueueRows::backlog) in an interval of
    /// your choice.
    ///
    /// ```no_run
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{HandlerResult, Message, Outcome, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pool = Pool::new(ConnectionManager::<SqliteConnection>::new("app.sqlite"))?;
    /// // let prometheus = metrics_exporter_prometheus::PrometheusBuilder::new().install_recorder()?;
    /// let handle = Payment::poller(pool, charge).metrics().start()?;
    /// // GET /metrics: prometheus.render()
    /// # Ok(()) }
    /// ```
    pub fn metrics(mut self) -> Self {
        self.listeners.meter = Some(count_for_metrics);
        self
    }
}
