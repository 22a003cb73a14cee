//! What one process knows about the due rows of one entity: which of them the next claim is for, and where it begins.

use std::time::Duration;

use diesel::result::QueryResult;

use super::kept_rows::KeptRows;
use super::low_water::{LowWater, LowWaterFloor};
use super::places::Places;
use super::refused_rows::RefusedRows;
use super::refused_state::{Lookout, Refusal};
use super::row_backoff::RowBackoff;
use super::rows_in_hand::RowsInHand;
use super::served_stages::ServedStages;
use super::turn_holder::TurnHolder;
use crate::backend::{QueueConnection, SessionHolder};
use crate::entity::Key;
use crate::error::Error;
use crate::row::{Instant, Lane, RowKey};
use crate::statement::{ErasedQueue, Scope};

/// What one process knows about the due rows of one entity.
pub(crate) struct DueRows<K: Key, C: QueueConnection> {
    queue: &'static ErasedQueue<K, C>,
    pub(crate) row_backoff: RowBackoff<K>,
    pub(crate) refused_rows: RefusedRows<K, C>,
    pub(crate) kept_rows: KeptRows,
    pub(crate) rows_in_hand: RowsInHand,
    pub(crate) low_water: LowWater,
    /// The lanes, if the rows are scheduled by a column of the domain, or limited in number.
    pub(crate) places: Option<Places<K, C>>,
    turn_holder: TurnHolder<K, C>,
    pub(crate) stages: ServedStages,
}

/// Which of the due rows a claim is for.
pub(crate) struct PickedRows<'a, K> {
    /// None of these.
    except: Vec<RowKey<K>>,
    /// Only these.
    pub(crate) only: Option<Vec<RowKey<K>>>,
    stages: Option<&'a [&'static str]>,
    /// Only rows from this due time on.
    pub(crate) claim_floor: LowWaterFloor<'a>,
    /// Whether the claims begin elsewhere now, so that prefetched rows are out of date.
    pub(crate) is_new: bool,
}

impl<K: Key, C: QueueConnection> DueRows<K, C> {
    /// The due rows of a queue. `low_water_at_once`: claims begin at the low-water mark from the first on. `lease`: the length
    /// of its leases in lease mode. `stages`: those that are served, if not all.
    pub(crate) fn of(
        queue: &'static ErasedQueue<K, C>,
        low_water_at_once: bool,
        lease: Option<Duration>,
        stages: Option<Vec<&'static str>>,
    ) -> QueryResult<Self> {
        Ok(DueRows {
            queue,
            row_backoff: RowBackoff::new(),
            refused_rows: RefusedRows::new(queue),
            kept_rows: KeptRows::default(),
            rows_in_hand: RowsInHand::default(),
            low_water: LowWater::of::<C>(queue.sql.options, low_water_at_once),
            places: Places::of(queue, lease)?,
            turn_holder: TurnHolder::new(queue),
            stages: ServedStages::of(stages),
        })
    }

    /// Returns the stages in which this poller claims rows now, if not in all.
    pub(crate) fn stages(&self) -> Option<&[&'static str]> {
        self.stages.now()
    }

    /// Tells whether this poller claims rows in this stage now.
    pub(crate) fn serves(&self, stage: Option<&str>) -> bool {
        self.stages().is_none_or(|stages| stage.is_none_or(|stage| stages.contains(&stage)))
    }

    /// Picks the rows for a claim of up to `limit`. `None`: none of the due rows can be written.
    pub(crate) fn pick(&self, holder: &mut SessionHolder<C>, limit: u32) -> Result<Option<PickedRows<'_, K>>, Error> {
        let picked = |only, except, floor, is_new| {
            let (stages, claim_floor) = (self.stages(), self.low_water.claim_floor().from(floor));
            Ok(Some(PickedRows { except, only, stages, claim_floor, is_new }))
        };
        loop {
            match self.refused_rows.look_out(holder, self.stages(), limit)? {
                // A survey also reads the keys of rows that another worker is about to find refused.
                Lookout::Only(keys) => match self.row_backoff.without_concluded(keys) {
                    keys if keys.is_empty() => {}
                    keys => return picked(Some(keys), Vec::new(), None, false),
                },
                Lookout::From { floor, mut except, is_new } => {
                    except.extend(self.row_backoff.passed_over());
                    return picked(None, except, floor, is_new);
                }
                Lookout::Nothing if self.refused_rows.release_found() => {}
                Lookout::Nothing => return Ok(None),
            }
        }
    }

    /// Notes that the row's state was written.
    pub(crate) fn is_written(&self, key: &RowKey<K>) {
        self.row_backoff.end(key);
        self.refused_rows.end([key]);
    }

    /// Leaves a row alone for a while on which the database refuses to write, and has refused to do so at least `times`
    /// times before. If the row is in a strict lane, it is the first one there, and the whole lane waits.
    pub(crate) fn refuse(&self, key: &RowKey<K>, due: Option<Instant>, lane: Option<&Lane>, times: u32) -> Refusal {
        match (&self.places, lane) {
            (Some(places), Some(first_of)) if self.queue.sql.options.keeps_order_in(lane) => {
                places.turns.refusals.refuse(first_of, key, due, times)
            }
            _ => self.refused_rows.refuse(key, due, times),
        }
    }

    /// Probes how long it is until the next row is due. A `thorough` probe overlooks no row, and leaves out those that
    /// the retries of others hold back.
    pub(crate) fn probe_due(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>> {
        let due_in = match self.refused_rows.are_any() {
            true => self.refused_rows.probe_due(connection, self.stages(), thorough)?,
            false => {
                self.low_water.probe_due(thorough, |floor| self.queue.probe_due(connection, self.stages(), floor))?
            }
        };
        if due_in != Some(Duration::ZERO) {
            return Ok(due_in);
        }
        let is_strict = self.queue.sql.options.lanes.is_some_and(|lanes| lanes.strict);
        if thorough
            && is_strict
            && let Some(places) = &self.places
            && !places.any_may_run(connection, self.stages(), &self.refused_rows)?
        {
            return Ok(None);
        }
        self.turn_holder.look(connection, self.stages())?;
        Ok(due_in)
    }
}

impl<K> PickedRows<'_, K> {
    /// Returns the same in the form that a statement takes.
    pub(crate) fn scope(&self) -> Scope<'_, K> {
        Scope {
            except: &self.except,
            only: self.only.as_deref(),
            stages: self.stages,
            claim_floor: Some(&self.claim_floor),
        }
    }
}
