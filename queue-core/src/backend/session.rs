//! A worker's private connection.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use super::connection::QueueConnection;
use super::connections::{Connection, Connections, ServerWait};
use super::dialect::Dialect;
use super::prepared::{Prepared, PreparedTexts};
use super::setup::{SessionLimits, Subscriptions};
use super::transactions::{AfterFinish, Unfinished};
use crate::error::Error;
use crate::sync::in_test::outer_transactions;

mod commit;

/// The longest wait of a group's statement for a lock: shorter than PostgreSQL waits before it looks for a deadlock. A
/// group holds many locks for long, so if it has to wait, its messages had better run one by one. MySQL rounds this up
/// to a second.
const GROUP_LOCK_TIMEOUT: Duration = Duration::from_millis(250);

/// A connection with the queue's own session settings. It is closed when it is dropped and never goes back to the pool:
/// the application would inherit its settings, and after a panic its state is unknown.
pub(crate) struct Session<'c, C: QueueConnection> {
    connection: Connection<'c, C>,
    /// The number by which the server knows the session.
    pub(crate) id: Option<i64>,
    lock_timeout: Duration,
    handler_settings: HandlerSettings<C::Settings>,
    next: NextTransaction,
    /// Whether its statements have the short lock wait of a group.
    is_impatient: bool,
    /// The channels on which it should listen.
    pub(crate) subscriptions: Subscriptions,
    /// Its prepared statements that end messages.
    pub(crate) prepared: Prepared,
    /// How long the session may be idle while its worker works.
    timeout: Duration,
    /// Whether its worker waits for work.
    rests: bool,
}

/// The settings that handlers may change.
#[derive(Default)]
struct HandlerSettings<S> {
    /// The settings to restore after a handler.
    own: S,
    /// Whether a handler has used the session since its settings were last restored.
    is_lent: bool,
    /// Whether a setting could not be restored.
    is_spoilt: bool,
    /// Whether the handlers of a group share the session's settings until the group's end.
    is_shared: bool,
    /// Whether a group of this session had to be undone because its handlers had changed settings.
    shares_no_more: bool,
}

impl<S> HandlerSettings<S> {
    /// Notes that the settings were restored, or that some could not be.
    fn note_put_back(&mut self, is_as_it_was: bool) {
        self.is_lent = false;
        self.is_spoilt |= !is_as_it_was;
    }
}

/// The decisions of one transaction's end about the next transaction.
struct NextTransaction {
    /// The transaction that has already begun with the end of the last one.
    has_begun: Option<Begun>,
    /// Whether the next transaction should begin with the end of this one.
    begins_next: bool,
    /// The token of the last message committed by a text that goes on after the commit.
    commit_token: u64,
    /// Whether the last prefetched row could not be locked.
    has_missed: bool,
}

/// A transaction in which no handler has run yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// The transaction of one message.
    Message,
    /// The transaction of one message whose row is locked, with its savepoint.
    Locked,
    /// The transaction of a group, whose statements wait at most this long for a lock.
    Group(Duration),
}

impl<'c, C: QueueConnection> Session<'c, C> {
    /// Opens a connection, prepares it and reads every setting back.
    pub(crate) fn open(
        connections: &Connections<C>,
        pool_timeout: Duration,
        limits: SessionLimits,
        wait: &Arc<ServerWait>,
    ) -> Result<Self, Error> {
        let mut connection = connections.open(pool_timeout, wait)?;
        connection.prepare_session(limits)?;
        let id = connection.session_id()?;
        wait.note_session(id);
        let mut own = C::Settings::default();
        if limits.attempts {
            own = connection.read_settings()?;
            connection.limit_idleness(&own, Some(limits.timeout))?;
        }
        Ok(Session::of(connection, id, own, limits))
    }

    /// Makes a session of the connection of a test, whose settings stay as they are.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only tests of applications lend one"))]
    pub(crate) fn of_test(connection: &'c mut C, limits: SessionLimits) -> Self {
        Session::of(Connection::lent(connection), None, C::Settings::default(), limits)
    }

    fn of(connection: Connection<'c, C>, id: Option<i64>, own: C::Settings, limits: SessionLimits) -> Self {
        Session {
            connection,
            id,
            lock_timeout: limits.lock_timeout,
            handler_settings: HandlerSettings { own, ..HandlerSettings::default() },
            next: NextTransaction { has_begun: None, begins_next: true, commit_token: 0, has_missed: false },
            is_impatient: false,
            subscriptions: Subscriptions::default(),
            prepared: Prepared::default(),
            timeout: limits.timeout,
            rests: false,
        }
    }

    /// Notes whether the session's worker waits for work, in no transaction, for as long as there is none.
    pub(crate) fn rest(&mut self, rests: bool) -> QueryResult<()> {
        if self.rests != rests {
            self.connection.limit_idleness(&self.handler_settings.own, (!rests).then_some(self.timeout))?;
            self.rests = rests;
        }
        Ok(())
    }

    /// Lends the connection to a handler, which may change any setting.
    pub(crate) fn lend(&mut self) -> &mut C {
        self.handler_settings.is_lent = true;
        C::watch_handler(&self.handler_settings.own, true);
        self.connection.lend()
    }

    /// Runs a statement that controls the transaction. The statement that ends a handler's savepoint also restores the
    /// settings.
    pub(crate) fn control(&mut self, statement: &'static str) -> QueryResult<()> {
        C::watch_handler(&self.handler_settings.own, false);
        match self.handler_settings.is_lent && !self.handler_settings.is_shared {
            true => self.end_handler(statement, None),
            false => self.connection.control(statement),
        }
    }

    /// Compares the settings only at the end of a group, unless a group had to be undone for that: restoring them after
    /// each handler takes as long as a short handler. A block that ends a message compares them anyway.
    pub(crate) fn share_settings(&mut self) {
        self.handler_settings.is_shared = !self.handler_settings.shares_no_more && C::Backend::OTHER_SETTINGS.is_none();
    }

    /// Ends the sharing, and returns whether settings were shared.
    pub(crate) fn end_sharing(&mut self) -> bool {
        std::mem::take(&mut self.handler_settings.is_shared)
    }

    /// Compares the settings that handlers have shared, and returns whether one of the handlers has changed one.
    pub(crate) fn detect_shared_changes(&mut self) -> QueryResult<bool> {
        self.handler_settings.is_lent = self.has_other_settings()?;
        self.handler_settings.shares_no_more |= self.handler_settings.is_lent;
        Ok(self.handler_settings.is_lent)
    }

    /// Runs the statement that ends a handler's savepoint, restores the handler's settings before or after it, and runs
    /// another statement.
    pub(crate) fn end_handler(&mut self, end: &'static str, then: Option<&'static str>) -> QueryResult<()> {
        C::watch_handler(&self.handler_settings.own, false);
        if self.handler_settings.is_shared {
            return match then {
                Some(then) if C::Backend::STATEMENTS_TRAVEL_TOGETHER => {
                    self.connection.batch_execute(&format!("{end}; {then}"))
                }
                Some(then) => self.connection.control(end).and_then(|()| self.connection.control(then)),
                None => self.connection.control(end),
            };
        }
        let is_as_it_was = self.connection.end_handler(end, then, &self.handler_settings.own)?;
        self.handler_settings.note_put_back(is_as_it_was);
        Ok(())
    }

    /// Restores the settings that a handler may have changed since the last time.
    pub(crate) fn put_settings_back(&mut self) -> QueryResult<()> {
        if self.handler_settings.is_lent {
            let is_as_it_was = self.connection.put_settings_back(&self.handler_settings.own)?;
            self.handler_settings.note_put_back(is_as_it_was);
        }
        Ok(())
    }

    /// Tells whether a handler has changed a setting that the next one would see.
    pub(crate) fn has_other_settings(&mut self) -> QueryResult<bool> {
        Ok(self.handler_settings.is_lent && self.connection.has_other_settings(&self.handler_settings.own)?)
    }

    /// Tells whether a handler may have changed something that no end in one round trip notices.
    pub(crate) fn may_have_moved(&self) -> bool {
        self.handler_settings.is_lent && C::may_have_moved(&self.handler_settings.own)
    }

    /// Takes the connection back from a handler, whose statements do not include the one that ends its message. Returns whether
    /// that has to compare the settings.
    pub(crate) fn take_back(&mut self) -> bool {
        C::watch_handler(&self.handler_settings.own, false);
        self.handler_settings.is_lent && C::has_to_compare(&self.handler_settings.own)
    }

    /// Notes that the settings are unchanged. `compared`: the end of the message has compared them.
    pub(crate) fn note_own_settings(&mut self, compared: bool) {
        self.handler_settings.is_lent = false;
        if compared {
            C::note_compared(&self.handler_settings.own, true);
        }
    }

    /// Notes that the end of the message has found other settings, and has done nothing.
    pub(crate) fn note_other_settings(&mut self) {
        C::note_compared(&self.handler_settings.own, false);
    }

    /// Notes the same, and that the message is committed: the next transaction begins with the next statement.
    pub(crate) fn note_finished(&mut self, compared: bool) {
        self.note_own_settings(compared);
        self.next.has_begun = Some(Begun::Message);
    }

    /// Passes from one message of a transaction to the next in one text with the update that settles the row.
    pub(crate) fn pass_on(&mut self, savepoint: &str, update: &str) -> Result<(), Unfinished> {
        self.connection.pass_on(savepoint, update, &self.handler_settings.own)
    }

    /// Ends a message in one text with the update that settles its row, on a server without blocks.
    pub(crate) fn finish_by_update(&mut self, savepoint: &str, update: &str) -> Result<(), Unfinished> {
        let settings = &self.handler_settings.own;
        self.connection.finish(savepoint, update, AfterFinish::Begin, settings).map(|_| self.note_finished(false))
    }

    /// Tells whether a handler's setting stays, so that no other handler may run on the session.
    pub(crate) fn is_spoilt(&self) -> bool {
        self.handler_settings.is_spoilt
    }

    /// Tells whether the next message may run on the session.
    pub(crate) fn is_fit(&mut self) -> bool {
        self.put_settings_back().is_ok() && (!self.handler_settings.is_spoilt || self.is_of_test())
    }

    /// Returns how long a group's statements wait for a lock.
    fn group_lock_timeout(&self) -> Duration {
        self.lock_timeout.min(GROUP_LOCK_TIMEOUT)
    }

    /// Begins a message's transaction, unless it has begun with the end of the last one. The first time, it prepares the
    /// queue's statements.
    pub(crate) fn begin_message(&mut self, queue: &dyn PreparedTexts<C>) -> QueryResult<()> {
        self.next.begins_next = true;
        // What ends a message at once would end the transaction of a test too, and needs the settings of a worker's session.
        if !C::Backend::FINISHES_AT_ONCE || self.is_of_test() || self.prepared.knows(queue.queue()) {
            if self.try_continue(Begun::Message)? {
                return Ok(());
            }
        } else {
            self.roll_back_idle()?;
            self.prepared.prepare(&mut *self.connection, &self.handler_settings.own, queue)?;
        }
        self.connection.begin()
    }

    /// Continues the transaction in which the end of the last message locked the next row. `false`: it is over.
    pub(crate) fn try_continue_locked(&mut self) -> QueryResult<bool> {
        self.next.begins_next = true;
        self.try_continue(Begun::Locked)
    }

    /// Returns, and forgets, whether the last prefetched row could not be locked: another session holds it, and the next claim
    /// should find it as soon as it is free.
    pub(crate) fn take_miss(&mut self) -> bool {
        std::mem::take(&mut self.next.has_missed)
    }

    /// Begins a transaction, unless it has begun with the end of the last message.
    pub(crate) fn begin_claim(&mut self) -> QueryResult<()> {
        if self.try_continue(Begun::Message)? { Ok(()) } else { self.connection.begin() }
    }

    /// Prepares the statements that write answers under leases, outside any transaction. `None`: it cannot.
    pub(crate) fn prepare_lease(&mut self, queue: &dyn PreparedTexts<C>) -> QueryResult<Option<usize>> {
        if self.is_of_test() {
            return Ok(None);
        }
        self.prepared.prepare_lease(&mut *self.connection, &self.handler_settings.own, queue)
    }

    /// Ends a message in one round trip, and locks the next row if `lock` is given, see [`QueueConnection::finish`].
    /// `settle` is the call of a prepared statement without the last parenthesis. `is_leased`: it writes the answer under a
    /// lease, and takes no token.
    pub(crate) fn finish(
        &mut self,
        savepoint: &str,
        mut settle: String,
        is_leased: bool,
        lock: Option<&str>,
    ) -> Result<bool, Unfinished> {
        let (next, token) = match lock {
            // Two tokens in turn are enough: each message only has to differ from the last one.
            Some(lock) => (AfterFinish::Lock(lock, self.next.commit_token ^ 1), self.next.commit_token ^ 1),
            None if self.next.begins_next => (AfterFinish::Begin, self.next.commit_token),
            None => (AfterFinish::Nothing, self.next.commit_token),
        };
        settle.push_str(&if is_leased { ")".to_owned() } else { format!(", '{token}')") });
        let finished = self.connection.finish(savepoint, &settle, next, &self.handler_settings.own);
        match (next, &finished) {
            (AfterFinish::Lock(_, token), Ok(_)) => self.next.commit_token = token,
            // The session may have either of the two now, so the next messages use two others.
            (AfterFinish::Lock(..), Err(Unfinished::NotCommitted(_))) => {
                self.next.commit_token = (self.next.commit_token | 1) + 1
            }
            _ => {}
        }
        let is_locked = finished?;
        self.handler_settings.is_lent = false;
        self.next.has_missed = lock.is_some() && !is_locked;
        self.next.has_begun = match next {
            AfterFinish::Nothing => None,
            _ if is_locked => Some(Begun::Locked),
            _ => Some(Begun::Message),
        };
        Ok(is_locked)
    }

    /// Sets whether the next transaction should begin with the end of this one, because a message of this queue is
    /// claimed next.
    pub(crate) fn begin_next(&mut self, begins: bool) {
        self.next.begins_next = begins;
    }

    /// Goes on in the wanted transaction if it has already begun: `true`. It ends another one that has.
    fn try_continue(&mut self, wanted: Begun) -> QueryResult<bool> {
        if self.next.has_begun == Some(wanted) {
            self.next.has_begun = None;
            return Ok(true);
        }
        self.roll_back_idle().map(|()| false)
    }

    /// Tells whether Diesel counts exactly one transaction: a handler may have left another one open in it.
    pub(crate) fn is_in_our_transaction_alone(&mut self) -> bool {
        self.depth() == Some(outer_transactions() + 1)
    }

    /// Tells whether Diesel knows that the transaction has ended: on PostgreSQL it sees this at once.
    pub(crate) fn is_in_no_transaction(&mut self) -> bool {
        self.depth() == Some(outer_transactions())
    }

    /// Tells whether a handler has left a transaction of its own open, inside ours.
    pub(crate) fn has_inner_transaction(&mut self) -> bool {
        self.depth().is_some_and(|depth| depth > outer_transactions() + 1)
    }

    /// Tells whether a handler has ended the transaction with its savepoint, or has left it in error.
    pub(crate) fn has_lost_savepoint(&mut self) -> bool {
        self.is_in_no_transaction() || self.connection.check_savepoint().is_err()
    }

    /// Rolls back all that was begun in the transaction of the test whose connection this is. `false`: it is no test's.
    pub(super) fn end_in_test(&mut self) -> bool {
        self.next.has_begun = None;
        while self.is_of_test()
            && self.depth().is_some_and(|depth| depth > outer_transactions())
            && C::TransactionManager::rollback_transaction(&mut *self.connection).is_ok()
        {}
        self.is_of_test()
    }

    /// Tells whether the connection is a test's.
    pub(crate) fn is_of_test(&self) -> bool {
        self.connection.is_lent()
    }

    /// Returns how many transactions Diesel counts, one in the other. `None`: it counts them no more, after an error.
    fn depth(&mut self) -> Option<u32> {
        let status = C::TransactionManager::transaction_manager_status_mut(&mut *self.connection);
        status.transaction_depth().ok().map(|depth| depth.map_or(0, u32::from))
    }

    /// Ends a transaction that has begun and in which no handler has run, and restores the session's lock wait.
    pub(crate) fn roll_back_idle(&mut self) -> QueryResult<()> {
        if self.next.has_begun.take().is_some() {
            C::TransactionManager::rollback_transaction(&mut *self.connection)?;
        }
        if std::mem::take(&mut self.is_impatient) {
            self.connection.restore_patience(self.lock_timeout)?;
        }
        Ok(())
    }
}

impl<C: QueueConnection> Deref for Session<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.connection
    }
}

impl<C: QueueConnection> DerefMut for Session<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.connection
    }
}
