//! A worker's private connection.

use std::any::TypeId;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use super::connection::QueueConnection;
use super::connections::{Connection, Connections};
use super::dialect::RoundTrips;
use super::one_round_trip::{AfterFinish, Unfinished};
use super::session_setup::SessionLimits;
use crate::error::Error;

/// A connection with the queue's own session settings. It is closed when it is dropped and never goes back to the
/// pool: the application would inherit its settings, and after a panic nobody knows its state.
pub(crate) struct Session<C: QueueConnection> {
    connection: Connection<C>,
    id: Option<i64>,
    lock_timeout: Duration,
    handler_settings: HandlerSettings<C>,
    next: NextTransaction,
    /// Whether its statements wait as briefly as those of a group.
    is_impatient: bool,
    /// What it was told to listen for.
    pub(crate) subscriptions: Subscriptions,
    statements: PreparedStatements,
}

/// What is known of the settings that handlers may change.
struct HandlerSettings<C: QueueConnection> {
    /// What is put back after a handler.
    own: C::Settings,
    /// Whether a handler has had the session since its settings were put back.
    is_lent: bool,
    /// Whether a setting could not be put back.
    is_spoilt: bool,
    /// Whether the handlers of a group share what they set until its end.
    is_shared: bool,
    /// Whether a group of this session had to be undone for what its handlers had set.
    shares_no_more: bool,
}

/// What the end of one transaction says of the next.
struct NextTransaction {
    /// What has begun already, with the end of the last transaction.
    has_begun: Option<Begun>,
    /// Whether the next transaction is to begin with the end of this one.
    begins_next: bool,
    /// The token of the message that was committed last, of those whose text goes on after it.
    commit_token: u64,
    /// Whether the last prefetched row could not be locked.
    has_missed: bool,
}

/// The prepared statements that end messages in one round trip, for each queue.
#[derive(Default)]
struct PreparedStatements {
    finishes: HashMap<TypeId, Finishes>,
    /// The numbers in the names of those by which answers under leases are written.
    lease_finishes: HashMap<TypeId, Option<usize>>,
}

/// The names of the statements by which the messages of a queue end.
struct Finishes {
    /// What settles one: `None` where it cannot be prepared.
    finish: Option<String>,
    /// What locks the next one, where rows are prefetched.
    lock: Option<String>,
}

/// A transaction in which no handler has run yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// That of one message.
    Message,
    /// That of one message whose row is locked, and which has its savepoint.
    Locked,
    /// That of a group whose statements wait so long for a lock at most.
    Group(Duration),
}

impl<C: QueueConnection> Session<C> {
    /// Opens a connection, prepares it and reads every setting back.
    pub(crate) fn open(connections: &Connections<C>, wait: Duration, limits: SessionLimits) -> Result<Self, Error> {
        let connection = connections.open(wait)?;
        let mut session = Session {
            connection,
            id: None,
            lock_timeout: limits.lock_timeout,
            handler_settings: HandlerSettings {
                own: C::Settings::default(),
                is_lent: false,
                is_spoilt: false,
                is_shared: false,
                shares_no_more: false,
            },
            next: NextTransaction { has_begun: None, begins_next: true, commit_token: 0, has_missed: false },
            is_impatient: false,
            subscriptions: Subscriptions::default(),
            statements: PreparedStatements::default(),
        };
        session.connection.prepare_session(limits)?;
        session.id = session.connection.session_id()?;
        if limits.attempts {
            session.handler_settings.own = session.connection.read_settings()?;
        }
        Ok(session)
    }

    /// The number by which the server knows the session.
    pub(crate) fn id(&self) -> Option<i64> {
        self.id
    }

    /// Lends the connection to a handler, which may set whatever it likes.
    pub(crate) fn lend(&mut self) -> &mut C {
        self.handler_settings.is_lent = true;
        &mut self.connection
    }

    /// Runs a statement that controls the transaction. The one that ends a handler's savepoint puts its settings back.
    pub(crate) fn control(&mut self, statement: &'static str) -> QueryResult<()> {
        match self.handler_settings.is_lent && !self.handler_settings.is_shared {
            true => self.end_handler(statement, None),
            false => self.connection.control(statement),
        }
    }

    /// Looks only at the end of a group what its handlers have set, unless a group had to be undone for that: to put it back
    /// after each of them takes as long as a short handler. Where a block ends a message, it looks anyway.
    pub(crate) fn share_settings(&mut self) {
        self.handler_settings.is_shared = !self.handler_settings.shares_no_more && C::Backend::OTHER_SETTINGS.is_none();
    }

    /// Ends that, and says whether settings were shared.
    pub(crate) fn end_sharing(&mut self) -> bool {
        std::mem::take(&mut self.handler_settings.is_shared)
    }

    /// Whether a handler has set something among those that have shared their settings.
    pub(crate) fn has_shared_settings(&mut self) -> QueryResult<bool> {
        self.handler_settings.is_lent = self.has_other_settings()?;
        self.handler_settings.shares_no_more |= self.handler_settings.is_lent;
        Ok(self.handler_settings.is_lent)
    }

    /// Runs the statement that ends a handler's savepoint, puts back what the handler has set, before or after it, and runs another
    /// statement.
    pub(crate) fn end_handler(&mut self, end: &'static str, then: Option<&'static str>) -> QueryResult<()> {
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
        (self.handler_settings.is_lent, self.handler_settings.is_spoilt) =
            (false, self.handler_settings.is_spoilt || !is_as_it_was);
        Ok(())
    }

    /// Puts back what a handler may have set that has had the session since the last time.
    pub(crate) fn put_settings_back(&mut self) -> QueryResult<()> {
        if self.handler_settings.is_lent {
            let is_as_it_was = self.connection.put_settings_back(&self.handler_settings.own)?;
            (self.handler_settings.is_lent, self.handler_settings.is_spoilt) =
                (false, self.handler_settings.is_spoilt || !is_as_it_was);
        }
        Ok(())
    }

    /// Whether a handler has set what the next one would find.
    pub(crate) fn has_other_settings(&mut self) -> QueryResult<bool> {
        Ok(self.handler_settings.is_lent && self.connection.has_other_settings(&self.handler_settings.own)?)
    }

    /// Says that the settings are what they were, because the end of the message has looked.
    pub(crate) fn has_own_settings(&mut self) {
        self.handler_settings.is_lent = false;
    }

    /// Whether something that a handler has set stays, so that no other one may run on the session.
    pub(crate) fn is_spoilt(&self) -> bool {
        self.handler_settings.is_spoilt
    }

    /// Whether the next message may be worked on the session.
    pub(crate) fn is_fit(&mut self) -> bool {
        self.put_settings_back().is_ok() && !self.handler_settings.is_spoilt
    }

    /// How long its statements wait for a lock when nothing else is said.
    pub(crate) fn lock_timeout(&self) -> Duration {
        self.lock_timeout
    }

    /// Begins a message's transaction, unless it has begun with the end of the last. `finish` writes the statement by which
    /// messages of the queue `T` end, and `lock` the one by which the next of them is locked; `try_reading` reads rows ahead.
    pub(crate) fn begin_message<T: 'static>(
        &mut self,
        finish: impl Fn() -> QueryResult<Option<String>>,
        lock: impl Fn() -> QueryResult<Option<String>>,
        try_reading: impl Fn(&mut C) -> QueryResult<()>,
    ) -> QueryResult<()> {
        self.next.begins_next = true;
        if !C::Backend::FINISHES_AT_ONCE || self.statements.finishes.contains_key(&TypeId::of::<T>()) {
            if self.continues(Begun::Message)? {
                return Ok(());
            }
        } else {
            self.roll_back_idle()?;
            let number = self.statements.finishes.len();
            let (name, lock_name) = (format!("queueable_finish_{number}"), format!("queueable_lock_{number}"));
            // Outside of any transaction, so that an error costs nothing: messages end by several statements then.
            let finish = finish()?.filter(|statement| {
                self.connection.prepare_finish(&name, statement, Some(&self.handler_settings.own)).is_ok()
            });
            let lock = match finish {
                Some(_) => lock()?.filter(|statement| {
                    // Rights are asked for only when a statement is run.
                    self.connection.prepare_lock(&lock_name, statement).is_ok()
                        && try_reading(&mut self.connection).is_ok()
                }),
                None => None,
            };
            let finishes = Finishes { finish: finish.map(|_| name), lock: lock.map(|_| lock_name) };
            self.statements.finishes.insert(TypeId::of::<T>(), finishes);
        }
        self.connection.begin()
    }

    /// Goes on in the transaction in which the next row was locked with the end of the last message. `false`: it is over.
    pub(crate) fn goes_on_with_locked(&mut self) -> QueryResult<bool> {
        self.next.begins_next = true;
        self.continues(Begun::Locked)
    }

    /// Whether the last prefetched row could not be locked, once: somebody is at it, and the next claim is to find it as
    /// soon as it is free.
    pub(crate) fn takes_note_of_miss(&mut self) -> bool {
        std::mem::take(&mut self.next.has_missed)
    }

    /// Begins a transaction, unless it has begun with the end of the last message.
    pub(crate) fn begin_claim(&mut self) -> QueryResult<()> {
        if self.continues(Begun::Message)? { Ok(()) } else { self.connection.begin() }
    }

    /// Prepares the statements by which answers under leases of the queue `T` are written, in no transaction.
    pub(crate) fn prepare_lease<T: 'static>(
        &mut self,
        finish: impl Fn() -> QueryResult<Option<(String, String)>>,
    ) -> QueryResult<Option<usize>> {
        if let Some(number) = self.statements.lease_finishes.get(&TypeId::of::<T>()) {
            return Ok(*number);
        }
        let number = self.statements.lease_finishes.len();
        let prepared = finish()?.filter(|(hold, finish)| {
            let mut prepare = |name: &str, text, settings| {
                self.connection.prepare_finish(&format!("{name}_{number}"), text, settings)
            };
            prepare(HOLD, hold, None)
                .and_then(|()| prepare(FINISH_LEASE, finish, Some(&self.handler_settings.own)))
                .is_ok()
        });
        let number = prepared.map(|_| number);
        self.statements.lease_finishes.insert(TypeId::of::<T>(), number);
        Ok(number)
    }

    /// The number of the statements by which answers under leases of the queue `T` are written, if there are any.
    pub(crate) fn lease_finish_of<T: 'static>(&self) -> Option<usize> {
        *self.statements.lease_finishes.get(&TypeId::of::<T>())?
    }

    /// The name of the statement by which a message of the queue `T` ends in one round trip, if there is one.
    pub(crate) fn finish_of<T: 'static>(&self) -> Option<&str> {
        self.statements.finishes.get(&TypeId::of::<T>())?.finish.as_deref()
    }

    /// The name of the statement that locks the next prefetched row of the queue `T`, if there is one.
    pub(crate) fn lock_of<T: 'static>(&self) -> Option<&str> {
        self.statements.finishes.get(&TypeId::of::<T>())?.lock.as_deref()
    }

    /// Ends a message in one round trip, and locks the next row if that is asked for, see [`QueueConnection::finish`].
    pub(crate) fn finish(&mut self, savepoint: &str, settle: &str, lock: Option<&str>) -> Result<bool, Unfinished> {
        let next = match lock {
            // Two tokens in turn: each is part of a text, and statistics of a server's statements keep every text that they see.
            Some(lock) => AfterFinish::Lock(lock, self.next.commit_token ^ 1),
            None if self.next.begins_next => AfterFinish::Begin,
            None => AfterFinish::Nothing,
        };
        let finished = self.connection.finish(savepoint, settle, next, &self.handler_settings.own);
        match (next, &finished) {
            (AfterFinish::Lock(_, token), Ok(_)) => self.next.commit_token = token,
            // Either of the two may be the session's now: from here on it is two others.
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

    /// Says whether the next transaction is to begin with the end of this one: a message of this queue is claimed next.
    pub(crate) fn begin_next(&mut self, begins: bool) {
        self.next.begins_next = begins;
    }

    /// Says that the next transaction begins with the next statement, or has begun.
    pub(crate) fn next_has_begun(&mut self) {
        self.next.has_begun = Some(Begun::Message);
    }

    /// Commits; where it costs nothing, the next transaction begins with it.
    pub(crate) fn commit(&mut self) -> QueryResult<()> {
        if C::Backend::COMMITS_AND_BEGINS && self.is_in_our_transaction_alone() {
            self.connection.commit_and_begin()?;
            self.next.has_begun = Some(Begun::Message);
            return Ok(());
        }
        C::TransactionManager::commit_transaction(&mut *self.connection)
    }

    /// Begins a group's transaction in the same way, see [`QueueConnection::begin_impatiently`].
    pub(crate) fn begin_group(&mut self, wait: Duration) -> QueryResult<()> {
        if self.continues(Begun::Group(wait))? {
            return Ok(());
        }
        self.is_impatient = true;
        self.connection.begin_impatiently(wait)
    }

    /// Commits a group; where it costs nothing, the next one begins with it.
    pub(crate) fn commit_group(&mut self, wait: Duration) -> QueryResult<()> {
        if !self.is_in_our_transaction_alone() {
            // A handler has left a transaction of its own open, or has ended ours: to be told as what it is.
            return C::TransactionManager::commit_transaction(&mut *self.connection);
        }
        if self.connection.commit_group(Some(wait))? {
            self.next.has_begun = Some(Begun::Group(wait));
        }
        Ok(())
    }

    /// Whether the transaction that is wanted has begun already. Another one that has is ended.
    fn continues(&mut self, wanted: Begun) -> QueryResult<bool> {
        if self.next.has_begun == Some(wanted) {
            self.next.has_begun = None;
            return Ok(true);
        }
        self.roll_back_idle().map(|()| false)
    }

    /// Whether Diesel counts one transaction: a handler may have left another one open in it.
    pub(crate) fn is_in_our_transaction_alone(&mut self) -> bool {
        let status = C::TransactionManager::transaction_manager_status_mut(&mut *self.connection);
        matches!(status.transaction_depth(), Ok(Some(depth)) if depth.get() == 1)
    }

    /// Whether Diesel knows that the transaction has ended: on PostgreSQL it sees that at once.
    pub(crate) fn is_in_no_transaction(&mut self) -> bool {
        let status = C::TransactionManager::transaction_manager_status_mut(&mut *self.connection);
        matches!(status.transaction_depth(), Ok(None))
    }

    /// Ends a transaction that has begun and in which no handler has run, and makes the session as patient as it was.
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

/// What the names of the statements begin with that are run by a text under a lease.
pub(crate) const HOLD: &str = "queueable_hold";

pub(crate) const FINISH_LEASE: &str = "queueable_finish_lease";

impl<C: QueueConnection> Deref for Session<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.connection
    }
}

impl<C: QueueConnection> DerefMut for Session<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.connection
    }
}

/// What a session listens for.
#[derive(Default)]
pub(crate) struct Subscriptions {
    pub(crate) channels: Vec<String>,
    /// When it is told again of the channels on which it could not listen.
    pub(crate) next_try: Option<Instant>,
}

impl Subscriptions {
    pub(crate) fn listen(&self, channel: &str) -> bool {
        self.channels.iter().any(|listened| listened == channel)
    }
}
