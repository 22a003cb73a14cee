//! The calls of a test on an entity.

use super::attempt::{Attempted, attempt_by_hand};
use super::drain::on;
use super::drained::{Drained, Kept};
use super::rehearse::Rehearsal;
use crate::__derive::QueueTable;
use crate::bounds::{AsQueueConnection, Explains, Filtered, HandlerFor, LoadsRows, RowCondition, Selection};
use crate::{Error, QueueRows, Queueable};
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
    /// test, or if rows go round: after 10,000 attempts, or as many as [`Drain::attempts_at_most`](super::Drain::attempts_at_most) says. [`Error::Database`].
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
        C: AsQueueConnection + LoadsRows<Self, Filtered<E>>,
        H: HandlerFor<Self, C::Connection>,
        E: RowCondition<<Self::Queue as QueueTable>::Table>,
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
    /// Those of [`drain`](Self::drain). A schedule has no end: bound it by [`Drain::attempts_at_most`](super::Drain::attempts_at_most), or by
    /// [`Drain::until`](super::Drain::until).
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
        rows: QueueRows<Self, F>,
        at_most: usize,
    ) -> Result<Rehearsal<'_, Self, C>, Error>
    where
        C: AsQueueConnection + Explains<Self> + LoadsRows<Self, F>,
        F: Selection,
    {
        let keys = rows.due().first_keys(connection, at_most)?;
        Ok(Rehearsal::of(connection, keys))
    }
}

impl<Q: Queueable + 'static> TestQueue for Q {}
