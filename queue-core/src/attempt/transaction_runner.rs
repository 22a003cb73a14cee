//! One entity in transaction mode: a turn claims a message, attempts it, and continues with the next one if that is
//! locked already.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::result::{Error as DieselError, QueryResult};

use super::attempt::{Attempted, End, attempt};
use super::end::timed_out;
use super::plan::{AttemptBody, ClaimPlan, Handling, Plan, UnsettledRow};
use super::preflight::{channel, check_claim, key_prefix};
use super::refusal::leave_kept_alone;
use super::runner::{QueueProbes, Runner, RunnerInfo, RunnerSettings, WorkerCalls, describe_way};
use super::settle_rules::{SettleRules, tries_before};
use super::slot::{ErasedRow, Slot};
use super::turn::Turn;
use super::undecodable::set_aside;
use crate::backend::{QueueBackend, QueueConnection, SessionHolder, Target};
use crate::claim::{DueRows, HeldPlaces, PickedRows, Places, PrefetchedKeys, PrefetchedRows, ReadRow};
use crate::entity::{Entity, Key};
use crate::error::{Error, Finding};
use crate::event::{Events, Watch};
use crate::handler::Handler;
use crate::log::RateLimitedLog;
use crate::row::failure_text;
use crate::statement::{ErasedQueue, QueueOn};

/// An entity, its handler and its settings.
pub(crate) struct TransactionRunner<K: Key, C: QueueConnection> {
    pub(crate) queue: &'static ErasedQueue<K, C>,
    info: RunnerInfo,
    handler: Box<dyn AttemptBody<C> + Send + Sync>,
    pub(crate) rules: SettleRules,
    pub(crate) due_rows: DueRows<K, C>,
    pub(crate) prefetched_keys: PrefetchedKeys<K>,
    pub(crate) prefetched_rows: PrefetchedRows<K>,
    pub(crate) log: RateLimitedLog,
}

impl<K: Key, C: QueueConnection> TransactionRunner<K, C> {
    pub(crate) fn new<Q>(handler: Arc<dyn Handler<Q, C>>, settings: RunnerSettings) -> Result<Self, Error>
    where
        Q: Entity<Key = K> + QueueOn<C>,
    {
        let (queue, options) = (Q::QUEUE, *Q::QUEUE.sql.options);
        let timeout = Q::SETTINGS.timeout.unwrap_or(C::Backend::DEFAULT_TIMEOUT);
        Ok(TransactionRunner {
            queue,
            info: RunnerInfo {
                entity: Q::ENTITY,
                queue: queue.id(),
                key_prefix: key_prefix(queue)?,
                way: describe_way::<Q>(timeout),
                is_recorded: true,
                is_exclusive: options.exclusive,
                timeout,
                stages: options.stages.map(|stages| stages.names),
                window: options.window,
                heartbeat_interval: None,
            },
            handler: Box::new(Handling(handler)),
            due_rows: DueRows::of(queue, settings.low_water_at_once, None)?,
            prefetched_keys: PrefetchedKeys::new(),
            prefetched_rows: PrefetchedRows::new(settings.prefetch_at_once),
            log: settings.log(),
            rules: SettleRules {
                teller: settings.teller(Q::ENTITY),
                settings: Q::SETTINGS,
                options,
                retry: Q::retry_policy(),
                texts: settings.texts,
                leased: false,
            },
        })
    }

    /// Returns how messages are attempted in this slot. `stays`: the worker's next turn is most likely for this runner
    /// too.
    pub(crate) fn plan<'a>(
        &'a self,
        slot: &'a Slot,
        stays: bool,
        rows: &'a PickedRows<'a, K>,
        places: Option<&'a HeldPlaces<'a, K, C>>,
    ) -> Plan<'a, K, C> {
        let scope = rows.scope();
        // A worker that is alone in the process is so for the row that has been due longest.
        let is_alone = slot.recorder().is_alone();
        // Strict crash accounting commits its mark before the handler runs, in a transaction of its own.
        let prefetches_rows = self.queue.prefetches_rows(scope) && stays && !is_alone && !slot.recorder().is_strict();
        Plan {
            queue: self.queue,
            handler: &*self.handler,
            rules: &self.rules,
            timeout: self.info.timeout,
            slot,
            key_prefix: &self.info.key_prefix,
            claim: ClaimPlan {
                scope,
                floor: Some(&rows.claim_floor),
                prefetched_keys: (self.queue.is_claimed_by_key(scope) && !is_alone).then_some(&self.prefetched_keys),
                prefetched_rows: prefetches_rows.then_some(&self.prefetched_rows),
                kept_rows: Some(&self.due_rows.kept_rows),
                rows_in_hand: Some(&self.due_rows.rows_in_hand),
                places,
            },
        }
    }

    /// Picks the rows for the next turn. `None`: there are none.
    pub(crate) fn pick_rows(
        &self,
        holder: &mut SessionHolder<C>,
        limit: u32,
    ) -> Result<Option<PickedRows<'_, K>>, Turn> {
        let picked = self.due_rows.pick(holder, limit).map_err(|error| {
            holder.close();
            if let Error::Database(error) = &error
                && let Some(turn) = set_aside(self.queue, holder, &self.log, &self.rules, error)
            {
                return turn;
            }
            self.log.warn(self.queue.sql.entity, &format!("no message can be claimed: {}", failure_text(&error, 500)));
            Turn::Trouble
        })?;
        if picked.as_ref().is_some_and(|picked| picked.is_new) {
            self.forget_prefetched();
        }
        Ok(picked)
    }

    /// Attempts the row that is `locked` already, or else one of these, on the worker's session. Closes the session if
    /// it is in doubt afterwards. An error means that there is no session.
    fn attempt_one(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        worker: &dyn WorkerCalls,
        rows: &PickedRows<'_, K>,
        locked: Option<ReadRow<K>>,
    ) -> Result<Attempted<K>, Error> {
        let places = self.due_rows.places.as_ref().map(Places::hold);
        let plan = self.plan(slot, holder.stays(), rows, places.as_ref());
        let session = holder.session_as_it_is()?;
        let Attempted { end, session_is_sound, next } = attempt(session, &plan, locked, worker);
        // If the session is in doubt, the lock ends with it.
        let session_is_sound = session_is_sound
            && self.queue.end_exclusion(session).is_ok()
            && places.as_ref().is_none_or(|places| places.leave(&mut **session).is_ok());
        if !session_is_sound {
            holder.close();
        }
        if plan.claim.prefetched_rows.is_some() {
            self.prefetched_rows.ends();
        }
        Ok(Attempted { end, session_is_sound, next })
    }

    /// Does what is left after an attempt. `None`: the claim found none of the rows that were known to be due.
    fn after_attempt(
        &self,
        holder: &mut SessionHolder<C>,
        slot: &Slot,
        worker: &dyn WorkerCalls,
        rows: &PickedRows<'_, K>,
        (end, session_is_sound): (End<K>, bool),
    ) -> Option<Turn> {
        Some(match end {
            End::Idle => return self.idle_turn(rows, session_is_sound),
            End::NotClaimed(error) => self.unclaimed_turn(holder, worker, &error),
            End::Settled(key, settled) => {
                rows.claim_floor.keep();
                self.due_rows.is_written(&key);
                Turn::Settled(settled)
            }
            End::SettledInVain(row, settled, times) => {
                self.comes_back(&row, times);
                Turn::Settled(settled)
            }
            End::InOtherHands(key) => {
                // The row's handler has ended its transaction. The row is passed over until that handler has returned.
                self.forget_prefetched();
                self.due_rows.row_backoff.skip_for_a_while(&key);
                Turn::Interrupted
            }
            End::Returned(row, times) => {
                self.forget_prefetched();
                leave_kept_alone(self.queue, &self.due_rows, &row, times)
            }
            End::Suspect => {
                self.forget_prefetched();
                Turn::Suspect
            }
            End::GivenUp => Turn::GivenUp,
            End::Unsettled(mut row, remainder, watch) => {
                row.fence = self.unmarked(holder, slot, &row.key, row.fence);
                self.conclude(holder, *row, remainder, &watch)
            }
        })
    }

    /// Returns the turn of an attempt that found no row. `None`: the next pick may find others.
    fn idle_turn(&self, rows: &PickedRows<'_, K>, session_is_sound: bool) -> Option<Turn> {
        self.prefetched_rows.forget();
        if let (Some(keys), true) = (&rows.only, session_is_sound) {
            // Others hold these rows, or they are no longer due.
            self.due_rows.refused_rows.end(keys);
            return None;
        }
        if session_is_sound && self.due_rows.refused_rows.release_found() {
            return None;
        }
        Some(Turn::Idle)
    }

    /// Returns the turn of an attempt whose claim failed. A row whose key cannot be decoded is set aside.
    fn unclaimed_turn(&self, holder: &mut SessionHolder<C>, worker: &dyn WorkerCalls, error: &DieselError) -> Turn {
        if let Some(turn) = set_aside(self.queue, holder, &self.log, &self.rules, error) {
            worker.has_claimed();
            return turn;
        }
        self.log.warn(self.queue.sql.entity, &format!("no message can be claimed: {error}"));
        Turn::Trouble
    }

    /// Forgets the prefetched keys and rows: the rows that are to run next may not be among them.
    fn forget_prefetched(&self) {
        self.prefetched_keys.forget();
        self.prefetched_rows.forget();
    }
}

impl<K: Key, C: QueueConnection> Runner<C> for TransactionRunner<K, C> {
    fn info(&self) -> &RunnerInfo {
        &self.info
    }

    fn probes(&self) -> &dyn QueueProbes<C> {
        self
    }

    fn turn(&self, holder: &mut SessionHolder<C>, slot: &Slot, worker: &dyn WorkerCalls) -> Turn {
        let mut locked = None;
        loop {
            let rows = match self.pick_rows(holder, 1) {
                Ok(Some(rows)) => rows,
                Ok(None) => return Turn::Idle,
                Err(turn) => return turn,
            };
            let Attempted { end, session_is_sound, next } =
                match self.attempt_one(holder, slot, worker, &rows, locked.take()) {
                    Ok(attempted) => attempted,
                    Err(error) => {
                        self.log.warn(self.queue.sql.entity, &failure_text(&error, 500));
                        return Turn::Trouble;
                    }
                };
            if let Some(turn) = self.after_attempt(holder, slot, worker, &rows, (end, session_is_sound)) {
                if next.is_none() || !worker.takes_next(turn) {
                    return turn;
                }
                locked = next;
            }
        }
    }

    fn give_up(&self, holder: &mut SessionHolder<C>, slot: &Slot, row: ErasedRow) -> Turn {
        let (mut row, watch) = *row.downcast::<(UnsettledRow<K>, Watch)>().expect("what this runner has put there");
        row.fence = self.unmarked(holder, slot, &row.key, row.fence);
        self.prefetched_rows.is_given_up(&row.key);
        self.due_rows.rows_in_hand.give_up(&row.key);
        let remainder = timed_out(&self.rules, tries_before(row.fence) + 1, self.info.timeout, &row.details);
        self.conclude(holder, row, remainder, &watch)
    }

    fn tell_to(&mut self, events: &Events) {
        self.rules.teller.tell_to(events);
    }

    fn has_interrupted(&self) -> bool {
        self.due_rows.row_backoff.any()
    }

    fn serve_stages(&mut self, stages: Vec<&'static str>) {
        self.due_rows.stages.serve(stages);
    }

    fn leave_out_stages(&self, paused: &[String]) -> bool {
        self.due_rows.stages.leave_out(self.info.stages, paused)
    }
}

impl<K: Key, C: QueueConnection> QueueProbes<C> for TransactionRunner<K, C> {
    fn target(&self) -> QueryResult<Target> {
        self.queue.target()
    }

    fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>> {
        check_claim(self.queue, connection)
    }

    fn channel(&self) -> QueryResult<Option<String>> {
        channel(self.queue)
    }

    fn present(&self, connection: &mut C) -> QueryResult<DateTime<Utc>> {
        self.queue.present(connection).map(DateTime::from)
    }

    fn probe_due(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>> {
        self.due_rows.probe_due(connection, thorough)
    }

    fn oldest_due(&self, connection: &mut C) -> QueryResult<Option<Duration>> {
        self.queue.oldest_due(connection, self.due_rows.stages())
    }

    fn probe_low_water(&self, connection: &mut C) -> QueryResult<()> {
        self.due_rows.probe_low_water(connection)
    }
}
