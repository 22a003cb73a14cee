//! Works rows inline, by the worker's own code.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use queue_core::internals::testing::{Closed, Turned, Workbench, travel_to};

use super::attempt::{Attempted, attempt_by_hand};
use super::rehearse::Rehearsal;
use crate::__derive::QueueTable;
use crate::bounds::{AsQueueConnection, Explains, Filtered, HandlerFor, LoadsRows, QueueConnection, RowCondition};
use crate::{AttemptEvent, Error, Event, Paused, Queueable};

/// How many attempts a call makes at most, unless the test says otherwise.
const ATTEMPTS: usize = 10_000;

/// How often in a row the clock is moved without an attempt. A guess: schedules and windows come to a row sooner.
const IN_VAIN: usize = 100;

/// Works rows in a test, on the test's own connection: the calls on an entity.
///
/// ```
/// use queueable::testing::TestQueue;
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64, company_id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, company_id BIGINT NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// connection.begin_test_transaction()?;
/// for (id, company) in [(1, 3345), (2, 3345), (3, 7)] {
///     diesel::insert_into(payments::table)
///         .values((payments::id.eq(id), payments::company_id.eq(company), Payment::due_now()))
///         .execute(&mut connection)?;
/// }
/// let of_company = Payment::drain_where(&mut connection, &charge, payments::company_id.eq(3345))?;
/// assert_eq!(of_company.succeeded(), 2);
/// assert_eq!(Payment::drain(&mut connection, &charge)?.succeeded(), 1);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub trait TestQueue: Queueable + 'static {
    /// Works everything of this entity that is due, also what becomes due meanwhile, and returns each attempt.
    ///
    /// If a transaction is open, as in Diesel's `test_transaction`, everything happens inside it: each attempt is a savepoint, and
    /// nothing is committed. If none is, the attempts are committed, one by one.
    ///
    /// It is a worker's own turn: claim, savepoint, handler, settlement, retry policy, stages, turns by column, conditions, groups;
    /// in lease mode, the call and the application of its answer. [Pauses](crate::Queueable::pause), limits at run time and
    /// [windows](crate::Window) count as they do for a poller; [`Drained::kept`] says what they kept back. There is no second
    /// thread, so no timeout ends a handler, and no heartbeat extends a lease.
    ///
    /// # Errors
    ///
    /// [`Error::Unsafe`] if the table is not what the entity needs. [`Error::Setting`] if a handler ends the transaction of the
    /// test, or if rows go round: after 10,000 attempts, or as many as [`Drain::attempts_at_most`] says. [`Error::Database`].
    fn drain<C, H>(connection: &mut C, handler: &H) -> Result<Drained, Error>
    where
        C: AsQueueConnection,
        H: HandlerFor<Self, C::Connection>,
    {
        on(connection).serve::<Self>(handler)?.drain()
    }

    /// Makes one attempt, on the row that is next. In group mode, it is one group; with `AsyncCalls`, as many calls begin as have
    /// places. Empty: no row is due.
    ///
    /// # Errors
    ///
    /// Those of [`drain`](Self::drain).
    fn drain_one<C, H>(connection: &mut C, handler: &H) -> Result<Drained, Error>
    where
        C: AsQueueConnection,
        H: HandlerFor<Self, C::Connection>,
    {
        on(connection).serve::<Self>(handler)?.drain_one()
    }

    /// Works the due rows for which a condition holds, once each and one by one, those first that have been due longest. Other rows
    /// stay as they are, also those whose turn would come first.
    ///
    /// # Errors
    ///
    /// Those of [`drain`](Self::drain).
    fn drain_where<C, H, E>(connection: &mut C, handler: &H, filter: E) -> Result<Drained, Error>
    where
        C: AsQueueConnection + LoadsRows<Self, crate::bounds::Filtered<E>>,
        H: HandlerFor<Self, C::Connection>,
        E: RowCondition<<Self::Queue as crate::__derive::QueueTable>::Table>,
    {
        let keys = Self::queue().filter(filter).due().keys(connection)?;
        let mut drain = on(connection).serve::<Self>(handler)?;
        drain.bench.only::<Self>(0, keys);
        let mut drained = drain.drain()?;
        // Those of other rows are none of this call's.
        drained.kept.retain(|kept| !matches!(kept, Kept::Due { .. }));
        Ok(drained)
    }

    /// Works this entity until nothing is left that will ever be due: where nothing is due now, it [moves the
    /// clock](crate::testing::travel_to) to the next due time. So retries come after their backoff, schedules after their
    /// intervals, and the test waits for none of it. The clock stays where it is then.
    ///
    /// # Errors
    ///
    /// Those of [`drain`](Self::drain). A schedule has no end: bound it by [`Drain::attempts_at_most`], or by
    /// [`Drain::until`].
    fn drain_until_idle<C, H>(connection: &mut C, handler: &H) -> Result<Drained, Error>
    where
        C: AsQueueConnection,
        H: HandlerFor<Self, C::Connection>,
    {
        on(connection).serve::<Self>(handler)?.drain_until_idle()
    }

    /// Makes exactly one attempt on the row with this key, due or not, and returns what it did: the attempt, and the row before
    /// and after.
    ///
    /// A row that waits for its time is [made due](crate::QueueRows::retry_now) first, and the attempt's end then writes the next
    /// time as after any attempt: the old one is gone. A scheduled row that is made due early has no
    /// [scheduled time](crate::Message::scheduled_for) in this attempt. A closed [window](crate::Window) does not keep the row,
    /// because it is a matter of the time too. In group mode the row is a group of its own; in lease mode the attempt is the call
    /// and the application of its answer.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`], with the words of [`explain`](crate::Queueable::explain), if there is no such row, or if something else
    /// than its time keeps it: it is finished or stopped, a worker holds it, its condition is not true, its queue is paused, another
    /// row's turn comes first. A row that was made due before stays due then. Also if the handler ends the transaction of the test. [`Error::Unsafe`], [`Error::Database`].
    ///
    /// ```
    /// use queueable::testing::{AttemptEnd, TestQueue, hours};
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable, Status};
    /// # diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }
    /// # diesel::table! { ledger (payment_id) { payment_id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64, amount_cents: i64 }
    /// fn charge(payment: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    ///     diesel::insert_into(ledger::table).values(ledger::payment_id.eq(payment.id)).execute(message.connection())?;
    ///     if payment.amount_cents < 0 {
    ///         return Err(std::io::Error::other("card declined").into());
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    ///
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, amount_cents BIGINT NOT NULL);
    /// #     CREATE TABLE ledger (payment_id BIGINT NOT NULL PRIMARY KEY)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// connection.begin_test_transaction()?;
    /// let in_an_hour = Payment::due_in(std::time::Duration::from_secs(3600));
    /// diesel::insert_into(payments::table)
    ///     .values((payments::id.eq(7), payments::amount_cents.eq(-1), in_an_hour))
    ///     .execute(&mut connection)?;
    ///
    /// let attempted = Payment::attempt(&mut connection, &charge, &7)?;
    /// assert_eq!(attempted.attempt.end, AttemptEnd::WillRetry);
    /// assert!(attempted.was_made_due);
    /// let (_, before) = attempted.before;
    /// let (_, after) = attempted.after.unwrap();
    /// assert_eq!((before.status, after.status), (Status::NotAttempted, Status::Error));
    /// assert_eq!(after.last_attempt_error_message.as_deref(), Some("card declined"));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    fn attempt<C, H>(connection: &mut C, handler: &H, key: &Self::Key) -> Result<Attempted<Self>, Error>
    where
        C: AsQueueConnection + Explains<Self> + LoadsRows<Self, Filtered<Self::IsKey>>,
        H: HandlerFor<Self, C::Connection>,
        Self::IsKey: RowCondition<<Self::Queue as QueueTable>::Table>,
    {
        attempt_by_hand(connection, handler, key, false)
    }

    /// Does the same, and also returns the statements that the handler ran.
    ///
    /// It listens by the connection's [instrumentation](diesel::connection::Instrumentation). What listens by
    /// [default](diesel::connection::set_default_instrumentation) hears the statements too, and the [clock of the
    /// test](super::travel) goes on. Diesel hands no other instrumentation back: one that the test has set on this very connection
    /// is gone, and the test sets it again.
    ///
    /// # Errors
    ///
    /// Those of [`attempt`](Self::attempt).
    ///
    /// ```
    /// use queueable::testing::TestQueue;
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable, Status};
    /// # diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }
    /// # diesel::table! { ledger (payment_id) { payment_id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64, amount_cents: i64 }
    /// fn charge(payment: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    ///     diesel::insert_into(ledger::table).values(ledger::payment_id.eq(payment.id)).execute(message.connection())?;
    ///     if payment.amount_cents < 0 {
    ///         return Err(std::io::Error::other("card declined").into());
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    ///
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, amount_cents BIGINT NOT NULL);
    /// #     CREATE TABLE ledger (payment_id BIGINT NOT NULL PRIMARY KEY)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// connection.begin_test_transaction()?;
    /// diesel::insert_into(payments::table)
    ///     .values((payments::id.eq(7), payments::amount_cents.eq(100), Payment::due_now()))
    ///     .execute(&mut connection)?;
    ///
    /// let attempted = Payment::attempt_with_sql(&mut connection, &charge, &7)?;
    /// let [insert] = &*attempted.statements else { panic!("{attempted}") };
    /// assert_eq!(insert.sql, "INSERT INTO `ledger` (`payment_id`) VALUES (?) -- binds: [7]");
    /// assert_eq!(insert.written_table().as_deref(), Some("ledger"));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    fn attempt_with_sql<C, H>(connection: &mut C, handler: &H, key: &Self::Key) -> Result<Attempted<Self>, Error>
    where
        C: AsQueueConnection + Explains<Self> + LoadsRows<Self, Filtered<Self::IsKey>>,
        H: HandlerFor<Self, C::Connection>,
        Self::IsKey: RowCondition<<Self::Queue as QueueTable>::Table>,
    {
        attempt_by_hand(connection, handler, key, true)
    }

    /// Tries handlers on due rows, at most so many of them, and takes all of it back: what would a new build do with the rows that
    /// wait now? Those rows come first that have been due longest.
    ///
    /// Give it a copy of the database, as a backup makes one. Each attempt runs in a transaction, or in a savepoint if one is
    /// open, that is always rolled back; only a handler that commits by itself can leave something behind, and it is named at
    /// once. Two things are not taken back: what a handler does outside of the database, such as an e-mail, and the numbers that
    /// sequences have given. Constraints that a database checks only at a commit are not checked.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if the keys of the rows cannot be read.
    ///
    /// ```
    /// use queueable::testing::TestQueue;
    /// # use diesel::prelude::*;
    /// # use diesel::connection::SimpleConnection;
    /// # use diesel_migrations::MigrationHarness;
    /// # use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable, Status};
    /// # diesel::table! { payments (id) { id -> BigInt, amount_cents -> BigInt, } }
    /// # diesel::table! { ledger (payment_id) { payment_id -> BigInt, } }
    /// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64, amount_cents: i64 }
    /// fn charge(payment: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
    ///     diesel::insert_into(ledger::table).values(ledger::payment_id.eq(payment.id)).execute(message.connection())?;
    ///     if payment.amount_cents < 0 {
    ///         return Err(std::io::Error::other("card declined").into());
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    ///
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL, amount_cents BIGINT NOT NULL);
    /// #     CREATE TABLE ledger (payment_id BIGINT NOT NULL PRIMARY KEY)")?;
    /// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
    /// for (id, amount) in [(1, 100), (2, -5)] {
    ///     diesel::insert_into(payments::table)
    ///         .values((payments::id.eq(id), payments::amount_cents.eq(amount), Payment::due_now()))
    ///         .execute(&mut connection)?;
    /// }
    /// let lenient = |payment: &Payment, message: &mut Message<'_, SqliteConnection>| {
    ///     diesel::insert_into(ledger::table).values(ledger::payment_id.eq(payment.id)).execute(message.connection())?;
    ///     Ok(Outcome::Done)
    /// };
    ///
    /// let rehearsed = Payment::rehearse(&mut connection, Payment::queue(), 50)?
    ///     .with("today", &charge)?
    ///     .with("new build", &lenient)?
    ///     .report();
    /// println!("{rehearsed}");
    /// let [row] = &rehearsed.differing().collect::<Vec<_>>()[..] else { panic!("{rehearsed}") };
    /// assert_eq!(row.key, "2");
    /// assert_eq!(ledger::table.count().get_result(&mut connection), Ok(0));
    /// assert_eq!(Payment::queue().due().count(&mut connection)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    fn rehearse<C, F>(
        connection: &mut C,
        rows: crate::QueueRows<Self, F>,
        at_most: usize,
    ) -> Result<Rehearsal<'_, Self, C>, Error>
    where
        C: AsQueueConnection + Explains<Self> + LoadsRows<Self, F>,
        F: crate::bounds::Selection,
    {
        let keys = rows.due().first_keys(connection, at_most)?;
        Ok(Rehearsal::of(connection, keys))
    }
}

impl<Q: Queueable + 'static> TestQueue for Q {}

/// Works rows in a test, on the test's own connection, for several entities together.
///
/// ```
/// use queueable::testing;
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # diesel::table! { emails (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # #[derive(Queryable, Selectable, Queueable)] struct Email { id: i64 }
/// # fn send(_: &Email, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// fn charge(payment: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
///     let email = (emails::id.eq(payment.id), Email::due_now());
///     diesel::insert_into(emails::table).values(email).execute(message.connection())?;
///     Ok(Outcome::Done)
/// }
///
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL);
/// #     CREATE TABLE emails (id INTEGER PRIMARY KEY NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>().entity::<Email>())?;
/// connection.begin_test_transaction()?;
/// diesel::insert_into(payments::table).values((payments::id.eq(1), Payment::due_now())).execute(&mut connection)?;
///
/// let drained = testing::on(&mut connection).serve::<Payment>(&charge)?.serve::<Email>(&send)?.drain()?;
/// assert_eq!(drained.to_string(), "Payment 1: try 1 succeeded, enqueued Email\nEmail 1: try 1 succeeded\n");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub fn on<C: AsQueueConnection>(connection: &mut C) -> Drain<'_, C::Connection> {
    Drain { bench: Workbench::new(connection.as_queue_connection()), most: ATTEMPTS, until: None }
}

/// What is to be worked, made by [`on`].
#[must_use = "nothing is worked before a drain is called"]
pub struct Drain<'t, C: QueueConnection> {
    pub(super) bench: Workbench<'t, C>,
    most: usize,
    until: Option<DateTime<Utc>>,
}

impl<C: QueueConnection> fmt::Debug for Drain<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entities: Vec<_> = (0..self.bench.served()).map(|number| self.bench.entity(number)).collect();
        f.debug_struct("Drain").field("entities", &entities).field("most", &self.most).finish_non_exhaustive()
    }
}

impl<'t, C: QueueConnection> Drain<'t, C> {
    /// Serves an entity with a handler, as [`Poller::serve`](crate::Poller::serve) does.
    ///
    /// # Errors
    ///
    /// [`Error::Unsafe`] if the entity's attributes make no sense on this database, [`Error::Database`].
    pub fn serve<Q: Queueable>(mut self, handler: &'t impl HandlerFor<Q, C>) -> Result<Self, Error> {
        self.bench.serve::<Q>(handler)?;
        Ok(self)
    }

    /// Makes at most so many attempts. The default is 10,000. One more is an error that names the rows that go round.
    pub fn attempts_at_most(mut self, attempts: usize) -> Self {
        self.most = attempts;
        self
    }

    /// Moves the clock no further than to this time, in [`drain_until_idle`](Self::drain_until_idle).
    pub fn until(mut self, time: impl Into<DateTime<Utc>>) -> Self {
        self.until = Some(time.into());
        self
    }

    /// Works everything that is due, as [`TestQueue::drain`] does, one attempt of each entity in turn.
    ///
    /// # Errors
    ///
    /// Those of [`TestQueue::drain`].
    pub fn drain(mut self) -> Result<Drained, Error> {
        let mut drained = Drained::default();
        self.work(&mut drained)?;
        Ok(drained)
    }

    /// Makes one attempt, as [`TestQueue::drain_one`] does, of the first entity that has a row for it.
    ///
    /// # Errors
    ///
    /// Those of [`TestQueue::drain`].
    pub fn drain_one(mut self) -> Result<Drained, Error> {
        let mut drained = Drained::default();
        self.look(&mut drained)?;
        for number in 0..self.bench.served() {
            if self.turn(number, &mut drained)? {
                break;
            }
        }
        Ok(drained)
    }

    /// Works everything until nothing will ever be due, as [`TestQueue::drain_until_idle`] does.
    ///
    /// # Errors
    ///
    /// Those of [`TestQueue::drain_until_idle`].
    pub fn drain_until_idle(mut self) -> Result<Drained, Error> {
        let (mut drained, mut in_vain) = (Drained::default(), 0);
        loop {
            let before = drained.attempts.len();
            self.work(&mut drained)?;
            // Rows that nothing works, as those of windows that are never open together, end this too.
            in_vain = if drained.attempts.len() == before { in_vain + 1 } else { 0 };
            let mut next = self.bench.next_time()?;
            for number in 0..self.bench.served() {
                let entity = self.bench.entity(number);
                let opens = drained.kept.iter().find_map(|kept| match kept {
                    Kept::OutsideWindow { entity: of, opens } if *of == entity => *opens,
                    _ => None,
                });
                if opens.is_some() && self.bench.has_due(number)? {
                    next = next.into_iter().chain(opens).min();
                }
            }
            let Some(next) = next.filter(|next| self.until.is_none_or(|until| *next <= until)) else { break };
            if in_vain > IN_VAIN {
                break;
            }
            travel_to(self.bench.connection()?, next)?;
        }
        Ok(drained)
    }

    fn work(&mut self, drained: &mut Drained) -> Result<(), Error> {
        self.look(drained)?;
        loop {
            let mut is_idle = true;
            for number in 0..self.bench.served() {
                is_idle &= !self.turn(number, drained)?;
            }
            if is_idle {
                return self.note_left(drained);
            }
        }
    }

    /// Notes which entities have rows that are due and were not worked.
    fn note_left(&mut self, drained: &mut Drained) -> Result<(), Error> {
        for number in 0..self.bench.served() {
            let entity = self.bench.entity(number);
            let is_told = drained.kept.iter().any(|kept| match kept {
                Kept::Paused { entity: of, .. } | Kept::OutsideWindow { entity: of, .. } | Kept::Due { entity: of } => {
                    *of == entity
                }
            });
            if !is_told && self.bench.has_due(number)? {
                drained.kept.push(Kept::Due { entity });
            }
        }
        Ok(())
    }

    fn look(&mut self, drained: &mut Drained) -> Result<(), Error> {
        let kept = self.bench.look()?;
        drained.kept = Vec::new();
        for (number, closed) in kept.into_iter().enumerate() {
            let entity = self.bench.entity(number);
            drained.kept.extend(closed.map(|closed| match closed {
                Closed::Paused(pause) => Kept::Paused { entity, pause: Box::new(pause) },
                Closed::Window(opens) => Kept::OutsideWindow { entity, opens },
            }));
        }
        Ok(())
    }

    /// Takes a turn for an entity. Returns whether it was not idle.
    fn turn(&mut self, number: usize, drained: &mut Drained) -> Result<bool, Error> {
        let turned = self.bench.turn(number)?;
        if turned.is_trouble {
            let found = format!("keeping a worker from {}: {}", self.bench.entity(number), turned.warnings.join("; "));
            return Err(Error::Setting { setting: "the database", found, expected: "a queue that a worker can serve" });
        }
        let is_idle = turned.is_idle;
        drained.attempts.extend(attempts_of(turned));
        if drained.attempts.len() > self.most {
            return Err(self.go_round(drained));
        }
        Ok(!is_idle)
    }

    fn go_round(&self, drained: &Drained) -> Error {
        let mut rows = BTreeMap::<_, usize>::new();
        for attempt in &drained.attempts {
            *rows.entry((attempt.entity, &attempt.key)).or_default() += 1;
        }
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        let all = rows.len();
        let most = rows.iter().take(3).map(|((entity, key), times)| format!("{entity} {key} {times} times"));
        let last = drained.attempts.last().map_or_else(String::new, |attempt| format!("; the last one: {attempt}"));
        let found = format!("exceeded: {all} rows were attempted, {}{last}", most.collect::<Vec<_>>().join(", "));
        Error::Setting {
            setting: "the bound on attempts in a test",
            found,
            expected: "rows that come to an end; a row that is due again at once goes round: let its handler answer `Done`, give it a \
                       later time, or raise `attempts_at_most`",
        }
    }
}

/// What a drain did.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Drained {
    /// The attempts, in the order in which they ended.
    pub attempts: Vec<Attempt>,
    /// The entities of which nothing was worked, and why.
    pub kept: Vec<Kept>,
}

/// Why no row of an entity was worked.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Kept {
    /// Its queue is paused.
    #[non_exhaustive]
    Paused {
        /// The entity's name.
        entity: &'static str,
        /// By whom, since when, and why.
        pause: Box<Paused>,
    },
    /// Its window is closed.
    #[non_exhaustive]
    OutsideWindow {
        /// The entity's name.
        entity: &'static str,
        /// When the window opens next, if ever.
        opens: Option<DateTime<Utc>>,
    },
    /// Rows of it are due, and a worker would not take them now: others of their turn come first, places are taken, the database
    /// refused to write on them, or they were interrupted and rest for a moment. [`explain`](crate::Queueable::explain) says which.
    #[non_exhaustive]
    Due {
        /// The entity's name.
        entity: &'static str,
    },
}

impl Drained {
    /// Returns the attempts on the row with this key.
    pub fn of(&self, key: impl fmt::Display) -> impl Iterator<Item = &Attempt> {
        let key = key.to_string();
        self.attempts.iter().filter(move |attempt| *attempt.key == key)
    }

    /// Counts the attempts that ended so.
    pub fn count(&self, end: AttemptEnd) -> usize {
        self.attempts.iter().filter(|attempt| attempt.end == end).count()
    }

    /// Counts the attempts whose rows are `SUCCESS`, or were removed as their handlers wished.
    pub fn succeeded(&self) -> usize {
        self.count(AttemptEnd::Succeeded)
    }

    /// Counts the attempts that have failed and will be retried.
    pub fn retried(&self) -> usize {
        self.count(AttemptEnd::WillRetry)
    }

    /// Counts the attempts whose rows are `FAILED`.
    pub fn failed(&self) -> usize {
        self.count(AttemptEnd::GaveUp)
    }
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.attempts.iter().try_for_each(|attempt| writeln!(f, "{attempt}"))?;
        self.kept.iter().try_for_each(|kept| writeln!(f, "{kept}"))
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kept::Paused { entity, pause } => {
                write!(f, "{entity}: not worked, paused by {}: {}", pause.by, pause.reason)
            }
            Kept::OutsideWindow { entity, opens: Some(opens) } => {
                write!(f, "{entity}: not worked, its window opens at {opens}")
            }
            Kept::Due { entity } => write!(f, "{entity}: rows are due and were not worked; `explain` says why"),
            Kept::OutsideWindow { entity, opens: None } => write!(f, "{entity}: not worked, its window never opens"),
        }
    }
}

/// One attempt in a test.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attempt {
    /// The entity's name.
    pub entity: &'static str,
    /// The row's primary key as the logs write it: the database's text, with commas between the parts of a key of several columns.
    pub key: Arc<str>,
    /// The text of the stage in which it began, if the entity has stages.
    pub stage: Option<&'static str>,
    /// The number of the attempt, from 1.
    pub try_number: u32,
    /// What became of it.
    pub end: AttemptEnd,
    /// Why it failed or was interrupted.
    pub error: Option<String>,
    /// When the row is due again, by the test's clock, if it is. A time that the database counts from its own may differ by
    /// milliseconds.
    pub next: Option<DateTime<Utc>>,
    /// How long the handler and the settlement took. `None`: the handler was not called.
    pub duration: Option<Duration>,
    /// The entities of which rows were given a due time meanwhile, by [`due_now`](crate::Queueable::due_now) and its siblings: the
    /// entity's name if the drain serves it, or else the name of the module that the derive writes.
    pub enqueued: Vec<String>,
}

/// What becomes of an attempt, in the words of [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptEnd {
    /// The row is `SUCCESS`, or was removed as its handler wished.
    Succeeded,
    /// The row has gone on to another stage.
    Advanced,
    /// The row runs again later without a failure.
    RunsAgain,
    /// The row is `SKIPPED`.
    Skipped,
    /// The attempt has failed, the row is `ERROR`, and it will be retried.
    WillRetry,
    /// The row is `FAILED`; or the run of a schedule that goes on has failed for good.
    GaveUp,
    /// The attempt has ended without a result, and the row is due again after a pause.
    Interrupted,
    /// The database refuses to write the end of the attempt on its row.
    Refused,
    /// In lease mode: the row was changed or removed meanwhile, and nothing was written.
    LeaseLost,
}

impl fmt::Display for AttemptEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttemptEnd::Succeeded => "succeeded",
            AttemptEnd::Advanced => "advanced",
            AttemptEnd::RunsAgain => "runs again",
            AttemptEnd::Skipped => "skipped",
            AttemptEnd::WillRetry => "will be retried",
            AttemptEnd::GaveUp => "gave up",
            AttemptEnd::Interrupted => "interrupted",
            AttemptEnd::Refused => "refused",
            AttemptEnd::LeaseLost => "lost its lease",
        })
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.entity, self.key)?;
        if let Some(stage) = self.stage {
            write!(f, " in {stage}")?;
        }
        write!(f, ": try {} {}", self.try_number, self.end)?;
        if let Some(next) = self.next {
            write!(f, ", due at {}", next.format("%Y-%m-%d %H:%M:%S%.3f UTC"))?;
        }
        if !self.enqueued.is_empty() {
            write!(f, ", enqueued {}", self.enqueued.join(", "))?;
        }
        self.error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

/// Returns the attempts of a turn.
pub(super) fn attempts_of(turned: Turned) -> Vec<Attempt> {
    let Turned { events, mut next, enqueued, .. } = turned;
    let ended = events.iter().filter_map(|event| Some((end_of(event)?, event.attempt()?)));
    let attempt = |(end, attempt): (AttemptEnd, &AttemptEvent)| {
        let AttemptEvent { entity, key, stage, try_number, error, duration, .. } = attempt;
        let place = next.iter().position(|(of, _)| of == key);
        // What a failed attempt has written is undone.
        let stands = !matches!(
            end,
            AttemptEnd::WillRetry | AttemptEnd::GaveUp | AttemptEnd::Interrupted | AttemptEnd::LeaseLost
        );
        let enqueued = enqueued.iter().filter(|enqueued| stands && enqueued.by.as_ref() == Some(key));
        Attempt {
            entity,
            key: key.clone(),
            stage: *stage,
            try_number: *try_number,
            end,
            error: error.clone(),
            next: place.map(|place| next.remove(place).1),
            duration: *duration,
            enqueued: enqueued.map(|enqueued| name_of(enqueued.entity, enqueued.type_name)).collect(),
        }
    };
    ended.map(attempt).collect()
}

/// Returns the name of an entity, or that of the module which the derive writes for it.
fn name_of(entity: Option<&str>, type_name: &str) -> String {
    let module = || type_name.rsplit("::").nth(1).unwrap_or(type_name);
    entity.unwrap_or_else(module).to_owned()
}

fn end_of(event: &Event) -> Option<AttemptEnd> {
    Some(match event {
        Event::Succeeded(_) => AttemptEnd::Succeeded,
        Event::Advanced(_) => AttemptEnd::Advanced,
        Event::RunsAgain(_) => AttemptEnd::RunsAgain,
        Event::Skipped(_) => AttemptEnd::Skipped,
        Event::WillRetry(_) => AttemptEnd::WillRetry,
        Event::GaveUp(_) => AttemptEnd::GaveUp,
        Event::Interrupted(_) => AttemptEnd::Interrupted,
        Event::Refused(_) => AttemptEnd::Refused,
        Event::LeaseLost(_) => AttemptEnd::LeaseLost,
        _ => return None,
    })
}
