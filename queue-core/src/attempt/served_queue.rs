//! A queue in a poller: its rules, its due rows and its log, which a runner has whatever the entity's mode. And transactions
//! of the library's own, in which no handler runs.

use std::any::TypeId;
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::connection::TransactionManager;
use diesel::result::{Error as DieselError, QueryResult};

use super::ended::NewState;
use super::runner::{AnyQueue, RunnerInfo, RunnerSettings};
use super::settle_rules::{SettleRules, Teller};
use super::stall::Stall;
use crate::backend::{
    Dialect, ErrorClass, QueueBackend, QueueConnection, Session, SessionHolder, Target, Unfinished, check_rights,
};
use crate::claim::DueRows;
use crate::entity::{Entity, GroupMode, IsKey, Key, QueueSql, QueueTable};
use crate::error::{Error, Finding};
use crate::log::{RateLimitedLog, redacted};
use crate::row::{
    ErrorText, Fence, Lanes, Leaving, OrderColumn, RowKey, Settlement, Status, ascii_only, failure_text, queue_name,
};
use crate::statement::{Change, ErasedKey, ErasedQueue, NextRows, QueueOn, REASON_BYTES, that_it_stays};
use crate::sync::{Mutex, fail_point};

/// How many times the heartbeat extends a lease within its length. It passes over a row that is locked at that moment,
/// and has to find it free once in half a lease.
pub(crate) const HEARTBEATS_PER_LEASE: u32 = 8;

/// The text that replaces one that the database accepts in no form.
const UNWRITABLE: &str = "the failure's text cannot be stored";

/// How often a worker tries to write what is left after a transaction before it leaves it to the rows' next attempts.
const TRIES: u32 = 3;

/// A queue in a poller.
pub(crate) struct ServedQueue<K: Key, C: QueueConnection> {
    pub(crate) queue: &'static ErasedQueue<K, C>,
    pub(crate) info: RunnerInfo,
    pub(crate) rules: SettleRules,
    pub(crate) due_rows: DueRows<K, C>,
    pub(super) stall: Stall,
    /// A log of its own, so that one entity's warnings do not hold back another's.
    pub(super) log: RateLimitedLog,
}

impl<K: Key, C: QueueConnection> ServedQueue<K, C> {
    pub(crate) fn new<Q>(settings: RunnerSettings) -> Result<Self, Error>
    where
        Q: Entity<Key = K> + QueueOn<C>,
    {
        let RunnerSettings { texts, stages, events, low_water_at_once, .. } = settings;
        let (queue, target) = (Q::QUEUE, Q::QUEUE.target()?);
        let lease = queue.is_leased().then_some(Q::SETTINGS.lease);
        let of = stages.clone();
        let key_prefix = queue_name(target.table.schema.as_deref(), &target.table.name, target.columns.status);
        Ok(ServedQueue {
            queue,
            info: RunnerInfo {
                entity: Q::ENTITY,
                queue: queue.id(),
                way: way_of::<Q>(lease, C::Backend::DEFAULT_TIMEOUT),
                settings: Box::new(move || settings_of::<Q>(lease, C::Backend::DEFAULT_TIMEOUT, of.as_deref())),
                key_prefix: key_prefix.clone(),
                counts_crashes: lease.is_none(),
                // For the transactions only in lease mode: there, the lease limits the handler's own time.
                timeout: Q::SETTINGS.timeout.filter(|_| lease.is_none()).unwrap_or(C::Backend::DEFAULT_TIMEOUT),
                target,
                heartbeat_interval: lease.map(|lease| lease / HEARTBEATS_PER_LEASE),
            },
            due_rows: DueRows::of(queue, low_water_at_once, lease, stages)?,
            stall: Stall::default(),
            log: RateLimitedLog::new(texts.redact.clone()),
            rules: SettleRules {
                teller: Teller::new((Q::ENTITY, &key_prefix), queue.sql.options.stages, events, texts.redact.clone()),
                settings: Q::SETTINGS,
                options: *queue.sql.options,
                retry: Q::retry_policy(),
                retry_delay: Mutex::default(),
                texts,
                leased: lease.is_some(),
            },
        })
    }

    /// Does this, on a new session after each error, which is logged. `None`: no try has helped.
    pub(crate) fn insist<T>(
        &self,
        holder: &mut SessionHolder<C>,
        what_fails: &str,
        work: impl Fn(&mut Session<C>) -> QueryResult<T>,
    ) -> Option<T> {
        for _ in 0..TRIES {
            match holder.session().and_then(|session| Ok(work(session)?)) {
                Ok(done) => return Some(done),
                Err(error) => {
                    self.warn(&format!("{what_fails}: {}", failure_text(&error, 500)));
                    holder.close();
                }
            }
        }
        None
    }

    /// Releases the sentinel of a message, settles its row and sets the next sentinel, in one statement or text. `None`: that is
    /// impossible, or the handler's settings have to be restored first, and nothing was done.
    pub(crate) fn pass_on(
        &self,
        session: &mut Session<C>,
        key: &RowKey<K>,
        fence: Fence,
        new: &NewState,
    ) -> Option<Result<(), Unfinished>> {
        if session.may_have_moved() || session.is_of_test() {
            return None;
        }
        let text = |tries| self.queue.text_of_success(key, fence, tries);
        let compares = session.take_back();
        let passed = match (self.queue.pass_on(session, key, fence, &new.change, compares), new.settled) {
            (Some(passed), _) => passed,
            (None, Settlement::Succeeded) => {
                session.pass_on("queueable_handler", &new.change.try_count.and_then(text)?)
            }
            (None, _) => return None,
        };
        match &passed {
            Ok(()) => session.note_own_settings(compares),
            Err(Unfinished::OtherSettings(_)) => {
                session.note_other_settings();
                return None;
            }
            Err(_) => {}
        }
        Some(passed)
    }

    /// Logs a warning about the queue.
    pub(crate) fn warn(&self, text: &str) {
        self.log.warn(self.info.entity, text);
    }

    /// Returns a text as it may be logged.
    pub(crate) fn redacted(&self, text: &str) -> String {
        self.log.redacted(text)
    }
}

/// Describes the mode of an entity and its times, for the log.
fn way_of<Q: Entity>(lease: Option<Duration>, default_timeout: Duration) -> String {
    let (settings, way) = (Q::SETTINGS, mode_of::<Q>(lease));
    let timeout = settings.timeout.or(lease).unwrap_or(default_timeout);
    format!("{way}, timeout {timeout:?}, {} tries", settings.max_tries)
}

/// For how many tries the settings have the delay of the retry.
const SHOWN_RETRIES: u32 = 5;

/// Returns the settings of an entity by their names, so that those of several processes can be compared.
fn settings_of<Q: Entity>(
    lease: Option<Duration>,
    default_timeout: Duration,
    stages: Option<&[&'static str]>,
) -> BTreeMap<String, String> {
    let (settings, options) = (Q::SETTINGS, <Q::Queue as QueueTable>::OPTIONS);
    let policy = Q::retry_policy();
    // The policy may be the user's own.
    let delay = |tries| catch_unwind(AssertUnwindSafe(|| policy.delay(tries))).ok().flatten();
    let retry = (1..=SHOWN_RETRIES).map_while(|tries| Some(format!("{:?}", delay(tries)?)));
    let column = |column: &OrderColumn| format!("{}{}", column.name, if column.descending { " DESC" } else { "" });
    let turns = |Lanes { column, at_most, strict, .. }: Lanes| {
        let at_most = at_most.map_or(String::new(), |rows| format!(", at most {rows}"));
        format!("{column}{at_most}{}", if strict { ", strict" } else { "" })
    };
    let known = [
        ("mode", Some(mode_of::<Q>(lease))),
        ("timeout", Some(format!("{:?}", settings.timeout.or(lease).unwrap_or(default_timeout)))),
        ("max_tries", Some(settings.max_tries.to_string())),
        ("retry", Some(retry.collect::<Vec<_>>().join(", "))),
        ("order", options.order.map(|order| order.columns.iter().map(column).collect::<Vec<_>>().join(", "))),
        ("turns", options.lanes.map(turns)),
        ("at_most", options.at_most.map(|rows| rows.to_string())),
        ("exclusive", options.exclusive.then(|| "yes".to_owned())),
        ("stages", options.stages.map(|all| stages.unwrap_or(all.names).join(", "))),
        ("window", options.window.map(str::to_owned)),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Describes the mode of an entity.
fn mode_of<Q: Entity>(lease: Option<Duration>) -> String {
    match lease {
        Some(lease) => format!("lease of {lease:?}"),
        None if TypeId::of::<Q::Mode>() == TypeId::of::<GroupMode>() => match Q::SETTINGS.group {
            Some(most) => format!("groups of up to {most}"),
            None => "groups that follow the backlog".to_owned(),
        },
        None => "one transaction each".to_owned(),
    }
}

impl<K: Key, C: QueueConnection> AnyQueue<C> for ServedQueue<K, C> {
    fn info(&self) -> &RunnerInfo {
        &self.info
    }

    fn stalled(&self) -> Option<String> {
        self.stall.error()
    }

    fn sql(&self) -> &'static QueueSql<C::Backend> {
        self.queue.sql
    }

    fn note_probe(&self, probed: Result<Option<Duration>, &Error>) {
        match probed {
            Err(error) => self.note_trouble("cannot look for due rows", error),
            // Whether due rows can be claimed is for the workers to find out.
            Ok(Some(Duration::ZERO)) => {}
            Ok(_) => self.note_answer(),
        }
    }

    fn altered_columns(&self, connection: &mut C) -> QueryResult<Option<Finding>> {
        let altered = connection.altered_columns(&self.info.target)?;
        // A file has no rights of its columns.
        if altered.is_some() || C::Backend::ONE_WRITER {
            return Ok(altered);
        }
        // The upkeep alone needs the others, and attempts go on without it.
        let target = &self.info.target;
        let target = Target { options: target.options.of_attempts(), ..target.clone() };
        let mut missing = check_rights(connection, &target)?.into_iter();
        Ok(missing.find(|right| !right.is_read_only).map(|right| right.finding))
    }

    fn note_columns(&self, altered: Option<Finding>) -> bool {
        let error = altered.map(|Finding { problem, mend, .. }| format!("{problem}; {mend}"));
        self.stall.note_columns(&self.info, error, &self.rules.teller.events)
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
        self.due_rows.low_water.probe(|floor| self.queue.probe_due(connection, self.due_rows.stages(), floor))
    }

    fn has_interrupted(&self) -> bool {
        self.due_rows.passed_rows.any_interrupted()
    }

    fn next_rows(
        &self,
        connection: &mut C,
        after: Option<&ErasedKey>,
        limits: (usize, usize),
    ) -> QueryResult<NextRows<C::Backend>> {
        self.queue.next_rows(connection, after, limits)
    }

    fn remove_expired(&self, connection: &mut C, keys: &[IsKey<C::Backend>], leaving: Leaving) -> QueryResult<usize> {
        let passes_over = C::Backend::ONE_WRITER || connection.skips_locked_rows()?;
        in_transaction(connection, |connection| self.queue.remove_expired(connection, keys, leaving, passes_over))
    }

    fn set_limits(&self, at_most: Option<u32>, retry_delay: Option<Duration>) {
        *self.rules.retry_delay.lock() = retry_delay;
        if let Some(places) = &self.due_rows.places {
            places.set_limit(at_most);
        }
    }

    fn leave_out(&self, stages: &[String], lanes: HashSet<String>) -> bool {
        if let Some(places) = &self.due_rows.places {
            places.turns.set_paused(lanes);
        }
        self.due_rows.stages.leave_out(self.queue.sql.options.stages.map(|stages| stages.names), stages)
    }
}

/// Runs `work` in a transaction of its own.
pub(crate) fn in_transaction<C: QueueConnection, T>(
    connection: &mut C,
    work: impl FnOnce(&mut C) -> QueryResult<T>,
) -> QueryResult<T> {
    connection.begin()?;
    let result = work(connection);
    end_transaction(connection, result)
}

/// Commits if the work succeeded, or else rolls back.
fn end_transaction<C: QueueConnection, T>(connection: &mut C, result: QueryResult<T>) -> QueryResult<T> {
    let result = result.and_then(|value| {
        C::TransactionManager::commit_transaction(connection)?;
        Ok(value)
    });
    if let Err(error) = &result
        && !matches!(error, DieselError::RollbackErrorOnCommit { .. })
    {
        // The transaction may have ended with the error; the caller closes a connection that stays in doubt.
        let _ = C::TransactionManager::rollback_transaction(connection);
    }
    result
}

/// Records a failure. If the database cannot store the text, it is written as plain ASCII, then as a fixed text, and
/// then left out. `settle` writes it.
pub(crate) fn record<C: QueueConnection>(
    connection: &mut C,
    change: &Change,
    settle: &dyn Fn(&mut C, &Change) -> QueryResult<usize>,
) -> QueryResult<usize> {
    fail_point("recording");
    let mut texts = vec![change.error.clone()];
    if let ErrorText::Set(text) = &change.error {
        texts.push(ErrorText::Set(ascii_only(text)));
        texts.push(ErrorText::Set(UNWRITABLE.to_owned()));
        texts.push(ErrorText::Clear);
        texts.dedup();
    }
    let mut result = Ok(0);
    for error in texts {
        let change = Change { error, ..change.clone() };
        result = in_transaction(connection, |connection| settle(connection, &change));
        match &result {
            Err(error) if C::classify(error) == ErrorClass::Other => {
                tracing::debug!(%error, "a failure cannot be recorded with this text");
            }
            _ => break,
        }
    }
    if let Err(error) = &result
        && C::classify(error) == ErrorClass::Other
        && change.status == Some(Status::Failed)
        && !change.stays
    {
        // A rule that the database checks at the COMMIT keeps the row in its table.
        let reason = redacted(&failure_text(error, REASON_BYTES), change.redact.as_ref());
        let change = Change { stays: true, error: that_it_stays(&change.error, &reason), ..change.clone() };
        result = in_transaction(connection, |connection| settle(connection, &change));
        if matches!(result, Ok(1)) {
            tracing::error!(reason, "a row that has failed cannot leave the table");
        }
    }
    if matches!(result, Ok(1)) {
        fail_point("recorded");
    }
    result
}
