//! How a running poller learns what operators ask for in the control table: the scout reads it once a second.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::PollerShared;
use super::wake::PollTimer;
use crate::backend::{ErrorClass, QueueConnection, SessionHolder};
use crate::control::{Asked, Limited, Nonsense, Paused, StandingPause, asked, lane_name};
use crate::error::Error;
use crate::row::{Options, failure_text, printable};

/// How often the table is read. A pause is known after this time and that of a read.
const PERIOD: Duration = Duration::from_secs(1);

/// The pause after a read that met a conflict, and until the first read has succeeded.
const SOON: Duration = Duration::from_millis(100);

/// How many conflicts in a row are not logged. On SQLite another writer may be the cause.
const CONFLICTS: u32 = 5;

/// How many invalid rows are remembered, so that each is logged once.
const MOST_TOLD: usize = 256;

/// What is known of the control table.
pub(super) struct ControlWatch<C: QueueConnection> {
    shared: Arc<PollerShared<C>>,
    /// `None`: the poller takes no part in control.
    next_read: Option<Instant>,
    /// Whether the table was ever read. Before that no message is processed.
    is_known: bool,
    /// The pauses of each runner.
    pauses: Vec<Vec<Known>>,
    /// The limits of each runner.
    limits: Vec<Option<Limited>>,
    failures: u32,
    /// The runners and the problems of these rows.
    told: HashSet<(usize, String)>,
}

/// A pause that is known, and when it ends.
#[derive(Clone)]
struct Known {
    paused: Paused,
    ends: Option<Instant>,
}

impl<C: QueueConnection> ControlWatch<C> {
    pub(super) fn new(shared: Arc<PollerShared<C>>) -> Self {
        let (takes_part, runners) = (shared.settings.control, shared.runners.len());
        let (pauses, limits) = (vec![Vec::new(); runners], vec![None; runners]);
        let next_read = takes_part.then(Instant::now);
        ControlWatch { shared, next_read, is_known: !takes_part, pauses, limits, failures: 0, told: HashSet::new() }
    }

    /// Returns when the table is to be read next, if it ever is.
    pub(super) fn next_read(&self) -> Option<Instant> {
        self.next_read
    }

    /// Reads the table, if it is time to, and opens and closes the gates of the runners. Returns whether it is known
    /// what is paused.
    ///
    /// If the table cannot be read, what was known stays: if a lost connection ended a pause, the queue could charge
    /// every customer.
    pub(super) fn refresh(
        &mut self,
        holder: &mut SessionHolder<C>,
        timers: &mut [PollTimer],
        is_left_behind: impl Fn() -> bool,
    ) -> bool {
        let (begun, is_first) = (Instant::now(), !self.is_known);
        if self.next_read.is_none_or(|next_read| begun < next_read) {
            return self.is_known;
        }
        let (pauses, limits) = match holder.session().and_then(|session| Ok(asked(&mut **session)?)) {
            Ok(asked) => {
                if self.failures > CONFLICTS {
                    tracing::info!("the control table can be read again");
                }
                (self.failures, self.is_known, self.next_read) = (0, true, Some(begun + PERIOD));
                self.sort(asked, Instant::now())
            }
            Err(error) => {
                self.cannot_read(&error, holder);
                let now = Instant::now();
                let mut pauses = self.pauses.clone();
                pauses.iter_mut().for_each(|known| known.retain(|known| known.ends.is_none_or(|ends| now < ends)));
                (pauses, self.limits.clone())
            }
        };
        // Another scout has read later, if the database has not answered this one for long. What that one knew may hold no more, so
        // the first reading of each is taken up whatever it says.
        if is_left_behind() {
            return false;
        }
        let is_first = is_first && self.is_known;
        for (runner, ((known, limits), timer)) in pauses.into_iter().zip(limits).zip(timers).enumerate() {
            self.change(runner, known, timer, is_first);
            self.limit(runner, limits, timer, is_first);
        }
        self.is_known
    }

    fn cannot_read(&mut self, error: &Error, holder: &mut SessionHolder<C>) {
        let class = match error {
            Error::Database(error) => C::classify(error),
            _ => ErrorClass::ConnectionLost,
        };
        if class == ErrorClass::ConnectionLost {
            holder.close();
        }
        let before = self.failures;
        // Any error other than a conflict is logged at once.
        let counts = if class == ErrorClass::Conflict { 1 } else { CONFLICTS + 1 };
        self.failures = before.saturating_add(counts);
        if before <= CONFLICTS && self.failures > CONFLICTS {
            let what = match self.is_known {
                true => "paused queues stay paused, and no others are",
                false => "no message is processed until it can",
            };
            let error = failure_text(error, 500);
            self.shared.log.warn("poller", &format!("the control table cannot be read, {what}: {error}"));
        }
        let is_soon = class == ErrorClass::Conflict && self.failures <= CONFLICTS || !self.is_known;
        self.next_read = Some(Instant::now() + if is_soon { SOON } else { PERIOD });
    }

    /// Sorts what was read by runners. What is asked of queues that this poller does not serve is left out.
    fn sort(&mut self, asked: Vec<Result<Asked, Nonsense>>, now: Instant) -> (Vec<Vec<Known>>, Vec<Option<Limited>>) {
        let shared = self.shared.clone();
        let (mut pauses, mut limits) = (vec![Vec::new(); shared.runners.len()], vec![None; shared.runners.len()]);
        let served = |queue: &str| shared.runners.iter().position(|runner| runner.info().key_prefix == queue);
        for asked in asked {
            match asked {
                Ok(Asked::Pause(StandingPause { paused, left })) => {
                    let Some(runner) = served(&paused.queue) else { continue };
                    let info = shared.runners[runner].info();
                    match unknown_scope(&paused, &info.target.options) {
                        Some(problem) => self.tell(runner, problem),
                        None => {
                            pauses[runner].push(Known { paused, ends: left.and_then(|left| now.checked_add(left)) })
                        }
                    }
                }
                Ok(Asked::Limits(limited)) => {
                    let Some(runner) = served(&limited.queue) else { continue };
                    let info = shared.runners[runner].info();
                    let most = info.target.options.places();
                    match limited.at_most.filter(|rows| most.is_none_or(|most| *rows > most)) {
                        Some(rows) => {
                            let own = most.map_or("has no `at_most`".to_owned(), |most| format!("allows {most}"));
                            self.tell(runner, format!("at_most is {rows}, and the entity {own}"));
                        }
                        None => limits[runner] = Some(limited),
                    }
                }
                Ok(Asked::Environment(name)) => self.compare_environment(&name),
                Err(nonsense) => {
                    if let Some(runner) = served(&nonsense.queue) {
                        self.tell(runner, nonsense.problem);
                    }
                }
            }
        }
        (pauses, limits)
    }

    /// Stops the poller if the database belongs to another environment now.
    fn compare_environment(&self, name: &str) {
        if self.shared.settings.environment.as_deref().is_some_and(|own| own != name) {
            let name = printable(name, false);
            self.shared.stop_because(0, &format!("the database belongs to the environment `{name}` now"));
        }
    }

    /// Takes up the limits of a runner. `is_first`: whatever they are.
    fn limit(&mut self, runner: usize, limits: Option<Limited>, timer: &mut PollTimer, is_first: bool) {
        if !is_first && self.limits[runner] == limits {
            return;
        }
        let before = std::mem::replace(&mut self.limits[runner], limits);
        let (after, shared) = (&self.limits[runner], &self.shared);
        let workers = after.as_ref().and_then(|limits| limits.workers);
        shared.board.limit(runner, workers);
        let (at_most, retry_delay) = after.as_ref().map_or((None, None), |limits| (limits.at_most, limits.retry_delay));
        shared.runners[runner].served().set_limits(at_most, retry_delay);
        // Turns that have begun under the former limits end.
        let is_paused = shared.gates[runner].is_paused();
        shared.gates[runner].change(is_paused);
        if !is_paused {
            timer.probe_now(Instant::now());
        }
        let entity = shared.runners[runner].info().entity;
        match (after, before) {
            (Some(limits), _) => tracing::info!(entity, "limited: {limits}"),
            (None, Some(limits)) => tracing::info!(entity, "no longer limited: {limits}"),
            (None, None) => {}
        }
    }

    /// Warns once of a row that is ignored.
    fn tell(&mut self, runner: usize, problem: String) {
        if self.told.len() < MOST_TOLD && self.told.insert((runner, problem.clone())) {
            let entity = self.shared.runners[runner].info().entity;
            tracing::warn!(entity, "ignoring a row of the control table: {problem}");
        }
    }

    /// Takes up the pauses of a runner. `is_first`: whatever they are.
    fn change(&mut self, runner: usize, known: Vec<Known>, timer: &mut PollTimer, is_first: bool) {
        let before = std::mem::replace(&mut self.pauses[runner], known);
        let after = &self.pauses[runner];
        let scope = |known: &Known| (known.paused.stage.clone(), known.paused.lane.clone());
        let scopes = |pauses: &[Known]| pauses.iter().map(scope).collect::<Vec<_>>();
        let (scopes_before, scopes) = (scopes(&before), scopes(after));
        // Before the line in the log: after it, no paused message begins.
        if is_first || scopes != scopes_before {
            let stages: Vec<_> = scopes.iter().filter_map(|(stage, _)| stage.clone()).collect();
            let options = &self.shared.runners[runner].info().target.options;
            let lanes =
                scopes.iter().filter_map(|(_, lane)| Some(lane_name(lane.as_ref()?, options)?.to_owned())).collect();
            let is_left = self.shared.runners[runner].served().leave_out(&stages, lanes);
            let is_paused = !is_left || scopes.contains(&(None, None));
            self.shared.gates[runner].change(is_paused);
            if !is_paused {
                timer.probe_now(Instant::now());
            }
        }
        let entity = self.shared.runners[runner].info().entity;
        for Paused { stage, value, since, until, by, reason, .. } in new_among(after, &before) {
            tracing::info!(entity, ?stage, ?value, %since, ?until, by, reason, "paused");
        }
        for known in before.iter().filter(|known| !scopes.contains(&scope(known))) {
            let Paused { stage, value, by, reason, .. } = &known.paused;
            tracing::info!(entity, ?stage, ?value, by, reason, "no longer paused");
        }
    }

    /// Logs which paused queues a poller leaves alone when it ends because nothing else is due.
    pub(super) fn tell_what_is_left(&self) {
        for (runner, pauses) in self.shared.runners.iter().zip(&self.pauses) {
            for Known { paused, .. } in pauses {
                let entity = runner.info().entity;
                tracing::warn!(entity, "left due rows alone: {paused}");
            }
        }
    }
}

/// Returns the pauses that were not among the earlier ones.
fn new_among<'a>(pauses: &'a [Known], earlier: &[Known]) -> impl Iterator<Item = &'a Paused> {
    pauses.iter().map(|known| &known.paused).filter(|paused| earlier.iter().all(|known| known.paused != **paused))
}

/// Returns why a pause is none of the entity's, if it is of a stage or of a column that the entity does not have.
fn unknown_scope(paused: &Paused, options: &Options) -> Option<String> {
    let is_stage = |stage: &str| options.stages.is_some_and(|known| known.names.contains(&stage));
    if let Some(stage) = paused.stage.as_ref().filter(|stage| !is_stage(stage)) {
        return Some(format!("the entity has no stage `{}`", printable(stage, false)));
    }
    let lane = paused.lane.as_ref()?;
    let value = printable(lane, false);
    lane_name(lane, options)
        .is_none()
        .then(|| format!("the rows of the entity do not take turns by the column of `{value}`"))
}
