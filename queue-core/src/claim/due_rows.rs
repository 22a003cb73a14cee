//! What one process knows about the due rows of one entity: which of them the next claim is for, and where it begins; in
//! which stages it claims rows; and which rows its workers have in hand.

use super::low_water::{LowWater, LowWaterFloor};
use super::overview::{Overview, Seen, SortedKeys};
use super::passed_rows::PassedRows;
use super::places::Places;
use super::refused_state::{Refusal, Step};
use crate::backend::{QueueConnection, SessionHolder};
use crate::entity::Key;
use crate::error::Error;
use crate::row::{Instant, Lane, RowKey};
use crate::statement::{ErasedQueue, Scope};
use crate::sync::in_test::take_wanted;
use crate::sync::{HeldByThread, HeldByThreads, Mutex};
use diesel::connection::TransactionManager;
use diesel::result::QueryResult;
use std::sync::Arc;
use std::time::{Duration, Instant as LocalTime};

/// What one process knows about the due rows of one entity.
pub(crate) struct DueRows<K: Key, C: QueueConnection> {
    pub(super) queue: &'static ErasedQueue<K, C>,
    pub(crate) passed_rows: Arc<PassedRows<K>>,
    /// The rows that this process's workers are processing outside lease mode, by the texts of their keys. Their locks keep others
    /// from claiming them.
    ///
    /// There is one exception: a handler that ends the transaction that holds its row. Then every process can claim the row
    /// until the handler has returned and the worker has detected it. Other processes cannot know; the other workers of
    /// this process look here.
    pub(crate) rows_in_hand: HeldByThreads<Arc<str>>,
    pub(crate) low_water: LowWater,
    /// The lanes, if the rows are scheduled by a column of the domain, or limited in number.
    pub(crate) places: Option<Places<K, C>>,
    turn_holder: TurnHolder<K, C>,
    overview: Overview,
    sorted_keys: SortedKeys<K>,
    pub(crate) stages: ServedStages,
}

/// A row that a worker has in hand.
pub(crate) type RowInHand = HeldByThread<Arc<str>>;

/// When a refused row was due, its lane, and whether the row itself says how long it waits.
pub(crate) type RefusedAt<'a> = (Option<Instant>, Option<&'a Lane>, bool);

/// Which of the due rows a claim is for.
pub(crate) struct PickedRows<'a, K> {
    /// None of these.
    except: Vec<RowKey<K>>,
    /// Only these.
    pub(crate) only: Option<Vec<RowKey<K>>>,
    /// Whether these are the keys that the workers share.
    are_sorted: bool,
    /// Whether this is one row that is refused, or probably is. How it ends says nothing about the others.
    pub(crate) is_trial: bool,
    seen: Seen,
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
        let places = Places::of(queue, lease)?;
        let shared = places.as_ref().map(|places| places.passed_rows.clone());
        Ok(DueRows {
            queue,
            passed_rows: shared.unwrap_or_else(|| Arc::new(PassedRows::of(queue.sql.options))),
            rows_in_hand: HeldByThreads::default(),
            low_water: LowWater::of::<C>(queue.sql.options, low_water_at_once),
            places,
            turn_holder: TurnHolder::new(queue),
            overview: Overview::default(),
            sorted_keys: SortedKeys::default(),
            stages: ServedStages::of(stages),
        })
    }

    /// Returns the stages in which this poller claims rows now, if not in all.
    pub(crate) fn stages(&self) -> Option<&[&'static str]> {
        self.stages.now()
    }

    /// Tells whether this poller processes rows in this stage and this lane now.
    pub(crate) fn serves(&self, stage: Option<&str>, lane: Option<&Lane>) -> bool {
        let is_paused = |lane| self.places.as_ref().is_some_and(|places| places.turns.is_paused(lane));
        self.stages().is_none_or(|stages| stage.is_none_or(|stage| stages.contains(&stage)))
            && !lane.is_some_and(is_paused)
    }

    /// Picks the rows for a claim of up to `limit`. `None`: none of the due rows can be written.
    pub(crate) fn pick(&self, holder: &mut SessionHolder<C>, limit: u32) -> Result<Option<PickedRows<'_, K>>, Error> {
        let seen = match self.stages() {
            None if self.queue.sql.options.order.is_none() => Seen::default(),
            stages => self.overview.look(self.queue, holder, stages)?,
        };
        let shares = seen.shares && self.places.is_none();
        let picked = |only, except, floor, is_new| {
            let claim_floor = self.low_water.claim_floor().from(floor);
            PickedRows { except, only, are_sorted: false, is_trial: false, seen, claim_floor, is_new }
        };
        if let Some(keys) = take_wanted::<RowKey<K>>(self.queue.id()) {
            return Ok((!keys.is_empty()).then(|| picked(Some(keys), self.passed_rows.passed_over(), None, false)));
        }
        loop {
            let (step, passed_over) = self.passed_rows.next_step(limit);
            match step {
                Step::Survey(number) => {
                    let _surveying = self.surveying();
                    self.survey(holder.session()?, number)?;
                }
                Step::Only(keys) if keys.is_empty() => {}
                // A lane's claim takes another row of the lane if that comes first.
                Step::Only(keys) => {
                    let is_trial = keys.len() == 1;
                    return Ok(Some(PickedRows { is_trial, ..picked(Some(keys), passed_over, None, false) }));
                }
                Step::From { floor, mut except, is_new } => {
                    except.extend(passed_over);
                    let mut rows = picked(None, except, floor, is_new);
                    if shares {
                        rows.only = self.sorted_keys.take(self.queue, holder, rows.scope(), limit)?;
                        rows.are_sorted = rows.only.is_some();
                    }
                    return Ok(Some(rows));
                }
                Step::Nothing if self.passed_rows.with_refused(|refused| refused.release_found(LocalTime::now())) => {}
                Step::Nothing => return Ok(None),
            }
        }
    }

    /// Notes that a claim has found none of these rows. Returns whether the next pick may find others.
    pub(crate) fn note_found_none(&self, rows: &PickedRows<'_, K>) -> bool {
        match &rows.only {
            None => return self.passed_rows.with_refused(|refused| refused.release_found(LocalTime::now())),
            Some(keys) if rows.are_sorted => self.sorted_keys.note_found_none(keys),
            // Others hold these rows, or they are no longer due. This process knows better of those that it has in hand.
            Some(keys) => {
                let in_hand = self.rows_in_hand.all();
                let others = keys.iter().filter(|key| !in_hand.contains(key.text()));
                self.passed_rows.with_refused(|refused| others.for_each(|key| refused.end_unless_put_off(key.text())));
            }
        }
        true
    }

    /// Leaves a row alone for a while on which the database refuses to write, and has refused to do so at least `times`
    /// times before. If the row is in a strict lane, it is the first one there, and the whole lane waits.
    pub(crate) fn refuse(&self, key: &RowKey<K>, place: RefusedAt<'_>, times: u32) -> Refusal {
        let (due, lane, is_noted) = place;
        let in_lane = self.places.as_ref().zip(lane);
        if let Some((places, lane)) = in_lane.filter(|_| self.queue.sql.options.keeps_order_in(lane)) {
            return places.turns.refusals.refuse(lane, key, due, times);
        }
        let lane = in_lane.filter(|(places, lane)| places.is_serial(lane)).map(|(_, lane)| lane.identity());
        self.passed_rows.with_refused(|refused| refused.refuse(key, (due, lane, is_noted), times, LocalTime::now()))
    }

    /// Notes that the new state of a row is committed: it is no longer passed over.
    pub(crate) fn end(&self, key: &RowKey<K>) {
        self.passed_rows.end(key);
        self.end_in_lane(key);
    }

    /// Notes the same of a row that may be the refused first one of a strict lane.
    pub(crate) fn end_in_lane(&self, key: &RowKey<K>) {
        self.places.iter().for_each(|places| places.turns.refusals.end_row(key));
    }

    /// Returns how many rows are left alone because the database refuses to write on them.
    pub(crate) fn refused(&self) -> usize {
        self.passed_rows.with_refused(|refused| refused.rows.len())
            + self.places.as_ref().map_or(0, |places| places.turns.refusals.number())
    }

    /// Probes how long it is until the next row is due. A `thorough` probe overlooks no row, and leaves out those that
    /// the retries of others hold back.
    pub(crate) fn probe_due(&self, connection: &mut C, thorough: bool) -> QueryResult<Option<Duration>> {
        let due_in = match self.passed_rows.with_refused(|refused| refused.rows.len()) {
            0 => self.low_water.probe_due(thorough, |floor| self.queue.probe_due(connection, self.stages(), floor))?,
            _ => self.probe_among_refused(connection, thorough)?,
        };
        if due_in != Some(Duration::ZERO) {
            return Ok(due_in);
        }
        let is_strict = self.queue.sql.options.lanes.is_some_and(|lanes| lanes.strict);
        if thorough
            && let Some(places) = self.places.as_ref().filter(|places| is_strict || places.turns.any_paused())
            && !places.any_may_run(connection, self.stages())?
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
            stages: self.seen.stages.as_deref(),
            claim_floor: Some(&self.claim_floor),
            sorts: self.seen.sorts,
            stages_apart: self.seen.apart,
        }
    }
}

/// The lists of stages that were left when others were paused, each once. They are few, and stay for good, so that
/// a claim borrows its list although the pauses change meanwhile.
static STAGES_LEFT: Mutex<Vec<&'static [&'static str]>> = Mutex::new(Vec::new());

/// The stages in which a poller claims rows.
pub(crate) struct ServedStages {
    /// Those that it serves, if not all.
    served: Option<Vec<&'static str>>,
    /// Those that are left by pauses, if any stage is paused.
    left: Mutex<Option<&'static [&'static str]>>,
}

impl ServedStages {
    /// Serves only these, or all.
    pub(super) fn of(served: Option<Vec<&'static str>>) -> Self {
        ServedStages { served, left: Mutex::default() }
    }

    /// Returns the stages, if not all.
    pub(super) fn now(&self) -> Option<&[&'static str]> {
        self.left.lock().or(self.served.as_deref())
    }

    /// Leaves out the paused stages of all that the entity has. Returns whether any is left; if none is, nothing
    /// changes.
    pub(crate) fn leave_out(&self, all: Option<&'static [&'static str]>, paused: &[String]) -> bool {
        let Some(served) = self.served.as_deref().or(all) else { return true };
        let left: Vec<_> =
            served.iter().copied().filter(|stage| !paused.iter().any(|paused| paused == stage)).collect();
        if left.is_empty() {
            return false;
        }
        *self.left.lock() = (left.len() < served.len()).then(|| shared_list(left));
        true
    }
}

/// Returns a list of `STAGES_LEFT`.
fn shared_list(stages: Vec<&'static str>) -> &'static [&'static str] {
    let mut lists = STAGES_LEFT.lock();
    lists.iter().copied().find(|list| **list == *stages).unwrap_or_else(|| {
        lists.push(stages.leak());
        lists[lists.len() - 1]
    })
}

/// The time between two looks: a worker holds the lock for a moment without a row of its own.
const TURN_HOLDER_LOOK: Duration = Duration::from_secs(5);

/// The time between two lines in the log.
const TURN_HOLDER_WARNING: Duration = Duration::from_secs(60);

/// The session that holds the lock of one queue, as far as it is known.
pub(crate) struct TurnHolder<K: Key, C: QueueConnection> {
    queue: &'static ErasedQueue<K, C>,
    state: Mutex<State>,
}

struct State {
    next_look: LocalTime,
    /// The session that held the lock at the last look, and the row that was first in line.
    seen: Option<(String, String)>,
}

impl<K: Key, C: QueueConnection> TurnHolder<K, C> {
    pub(crate) fn new(queue: &'static ErasedQueue<K, C>) -> Self {
        TurnHolder { queue, state: Mutex::new(State { next_look: LocalTime::now() + TURN_HOLDER_LOOK, seen: None }) }
    }

    /// Looks up the session that holds the lock of a queue whose first row is due, and logs a warning if that session
    /// does not process the row.
    pub(crate) fn look(&self, connection: &mut C, stages: Option<&[&'static str]>) -> QueryResult<()> {
        let now = LocalTime::now();
        {
            let mut state = self.state.lock();
            if !self.queue.sql.options.exclusive || now < state.next_look {
                return Ok(());
            }
            state.next_look = now + TURN_HOLDER_LOOK;
        }
        let found = self.idle_holder(connection, stages)?;
        let mut state = self.state.lock();
        if let (Some((session, _)), true) = (&found, found == state.seen) {
            tracing::warn!(
                entity = self.queue.sql.entity,
                "no message is processed: the lock of this exclusive queue is held by {session}, which processes none \
                 of its rows"
            );
            state.next_look = now + TURN_HOLDER_WARNING;
        }
        state.seen = found;
        Ok(())
    }

    /// Returns the session that holds the lock while no worker processes the first row, and that row.
    fn idle_holder(
        &self,
        connection: &mut C,
        stages: Option<&[&'static str]>,
    ) -> QueryResult<Option<(String, String)>> {
        let Some(session) = self.queue.exclusion_holder(connection)? else { return Ok(None) };
        let Some(head) = self.queue.head(connection, stages)? else { return Ok(None) };
        if self.queue.another_is_leased(connection, None)? {
            return Ok(None);
        }
        connection.begin()?;
        let free = self.queue.recall_unless_locked(connection, &head);
        C::TransactionManager::rollback_transaction(connection)?;
        Ok(free?.map(|_| (session, head.text().to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[&str] = &["RENDER", "SEND", "BOOK"];

    fn paused(stages: &[&str]) -> Vec<String> {
        stages.iter().map(|stage| (*stage).to_owned()).collect()
    }

    #[test]
    fn paused_stages_are_left_out_until_they_are_not_paused() {
        let stages = ServedStages::of(None);
        assert_eq!(stages.now(), None);
        assert!(stages.leave_out(Some(ALL), &paused(&["SEND"])));
        assert_eq!(stages.now(), Some(["RENDER", "BOOK"].as_slice()));
        assert!(stages.leave_out(Some(ALL), &[]));
        assert_eq!(stages.now(), None);
    }

    #[test]
    fn a_poller_of_some_stages_keeps_to_those() {
        let stages = ServedStages::of(Some(vec!["SEND", "BOOK"]));
        assert!(stages.leave_out(Some(ALL), &paused(&["RENDER"])));
        assert_eq!(stages.now(), Some(["SEND", "BOOK"].as_slice()));
        assert!(stages.leave_out(Some(ALL), &paused(&["BOOK"])));
        assert_eq!(stages.now(), Some(["SEND"].as_slice()));
        assert!(!stages.leave_out(Some(ALL), &paused(&["SEND", "BOOK"])), "no stage is left");
    }
}
