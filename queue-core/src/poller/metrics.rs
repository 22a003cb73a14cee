//! The metrics of a poller.

use std::any::TypeId;
use std::time::Duration;

use diesel::Column;
use diesel::r2d2::R2D2Connection;
use diesel::sql_types::Foldable;

use super::poller::Poller;
use crate::entity::{Entity, QueueTable, name_of_column};
use crate::event::record_for_metrics;

impl<C: R2D2Connection + 'static> Poller<C> {
    /// Counts what happens through the facade `metrics`, for the recorder that the application has installed before the
    /// poller starts. Needs the feature `metrics`.
    ///
    /// | metric | kind | labels |
    /// |---|---|---|
    /// | `queueable_attempts_total` | counter | `entity`, `queue`, `outcome` |
    /// | `queueable_attempt_duration_seconds` | histogram | `entity`, `queue`, `outcome` |
    /// | `queueable_attempt_wait_seconds` | histogram: from due to begun | `entity`, `queue` |
    /// | `queueable_handlers_past_timeout_total` | counter | `entity`, `queue` |
    /// | `queueable_workers_stuck_total` | counter | `entity`, `queue` |
    /// | `queueable_connections_lost_total` | counter | |
    /// | `queueable_queues_stalled_total` | counter | `entity`, `queue` |
    /// | `queueable_connections_replaced_total` | counter | |
    /// | `queueable_heartbeats_late_total` | counter of leases | `entity`, `queue` |
    /// | `queueable_upkeep_rows_total` | counter, of `#[queue(keep(..))]` | `entity`, `queue`, `status`, `outcome`: `deleted`, `archived`, `refused` |
    /// | `queueable_events_dropped_total` | counter | |
    ///
    /// `entity` is the name of the struct, and `queue` that of the queue as the library's tables have it, such as
    /// `payments.status`: structs of two modules may have the same name.
    ///
    /// The outcomes are the names of the [events](crate::Event) that end an attempt: `succeeded`, `advanced`, `runs_again`,
    /// `skipped`, `will_retry`, `gave_up`, `interrupted`, `refused`, `lease_lost`. A duration and a wait are recorded if the
    /// event has them.
    ///
    /// The workers record by themselves, so that no event is missed; a recorder that waits holds them up. If the recorder
    /// panics, the panic is logged once, and the work goes on.
    ///
    /// What is true of the table is not counted by events: [`gauges`](Poller::gauges) reports it.
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
        self.listeners.meter = Some(record_for_metrics);
        self
    }

    /// Reports gauges through the facade `metrics` in this interval, 1 second to 1 hour, together with what
    /// [`metrics`](Poller::metrics) counts. Needs the feature `metrics`.
    ///
    /// | gauge | labels |
    /// |---|---|
    /// | `queueable_rows` | `entity`, `queue`, `state`: `due`, `scheduled`, `held_back`, `running` under a lease, `failed` |
    /// | `queueable_oldest_due_seconds` | `entity`, `queue` |
    /// | `queueable_pauses` | `entity`, `queue` |
    /// | `queueable_workers` | `poller`: the names of its entities; `queue`: those of their queues; `state`: `busy`, `idle`, `stuck` |
    /// | `queueable_rows_claimed_ahead` | `entity`, `queue`; under a lease |
    ///
    /// The states are those of [`Backlog`](crate::Backlog). The rows are counted along the queue's index, and the
    /// failed ones along that of `#[queue(report_index)]`; an entity without it has no gauge of failed rows, because they would
    /// be searched for in the whole table. If a reading takes long, the next one waits twenty times as long.
    ///
    /// The last two gauges are each process's own. Of the table, one process at a time reports for each entity: the one that
    /// holds a lock of the database, and loses it with its connection. On SQLite the lock is a file beside the database's, named
    /// `<database>-gauges-<hash>`. Where a process does not know them, or no longer, these gauges are `NaN`, which
    /// `max by (entity, queue, state)` passes over in a query.
    ///
    /// A thread with a connection of its own reads them, so a pool needs one more.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use diesel::prelude::*;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # use queueable::{HandlerResult, Message, Outcome, Poller, Queueable};
    /// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, amount_cents -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
    /// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pool = Pool::new(ConnectionManager::<SqliteConnection>::new("app.sqlite"))?;
    /// let handle = Payment::poller(pool, charge)
    ///     .gauges(Duration::from_secs(15))
    ///     // For the twenty companies with most rows.
    ///     .gauges_by::<Payment, _>(payments::company_id, 20)
    ///     // The money that is due, and the money that has failed.
    ///     .gauges_sum::<Payment, _>(payments::amount_cents)
    ///     .start()?;
    /// # Ok(()) }
    /// ```
    pub fn gauges(mut self, every: Duration) -> Self {
        self.gauges.every = Some(every);
        self.metrics()
    }

    /// Reports the gauges of an entity's rows also for each value of a domain column, beside [`gauges`](Poller::gauges): for at
    /// most so many values, 1 to 1,000, those with most rows. On MySQL it needs version 8.
    ///
    /// | gauge | labels |
    /// |---|---|
    /// | `queueable_rows_by_value` | `entity`, `queue`, `state`, `by`: the column, `value` |
    ///
    /// A value that has no rows any more is 0; if there are more values than gauges, and it is no longer among the first, `NaN`.
    /// The recorder keeps each value that it was ever told, so choose a column of few values.
    pub fn gauges_by<Q, S>(mut self, column: S, most: u32) -> Self
    where
        Q: Entity,
        S: Column<Table = <Q::Queue as QueueTable>::Table>,
    {
        self.gauges.by.push((TypeId::of::<Q::Queue>(), Q::ENTITY, name_of_column(column), most));
        self
    }

    /// Reports the sum of a numeric domain column over the due rows of an entity, and over the failed ones if it has
    /// `#[queue(report_index)]`, beside [`gauges`](Poller::gauges); also for each value of the column of
    /// [`gauges_by`](Poller::gauges_by).
    ///
    /// | gauge | labels |
    /// |---|---|
    /// | `queueable_sum` | `entity`, `queue`, `state`: `due`, `failed`; `of`: the column |
    /// | `queueable_sum_by_value` | the same, and `by`, `value` |
    pub fn gauges_sum<Q, S>(mut self, column: S) -> Self
    where
        Q: Entity,
        S: Column<Table = <Q::Queue as QueueTable>::Table, SqlType: Foldable>,
    {
        self.gauges.sums.push((TypeId::of::<Q::Queue>(), Q::ENTITY, name_of_column(column)));
        self
    }
}
