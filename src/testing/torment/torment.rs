//! What is tormented, and how the world ends each time.

use std::any::TypeId;
use std::fmt;
use std::mem;

use diesel::connection::TransactionManager;
use queue_core::internals::testing::hold_clock;

use super::effects::{Effects, Terms};
use super::run::{Run, Work};
use super::story::Story;
use super::tables::{self, Tables};
use super::watch::Fault;
use crate::__derive::QueueTable;
use crate::bounds::{AsQueueConnection, Explains, HandlerFor, LeaseMode, QueueConnection};
use crate::testing::rolled_back::{depth_of, roll_back_to};
use crate::{Error, Queueable};

/// Torments a handler with one row: works the row again and again, each time from the same beginning, and each time the world ends
/// at another point. It reports the first effect that is missing or doubled in the end.
///
/// Where the world can end:
///
/// - The process is killed: before the handler begins, before each of its statements and after the last one, after each
///   [`step`](crate::testing::step) of the outside world, before the commit, and after the commit, whose answer is lost. In lease
///   mode also before the call, after it, and all of that in the transaction that applies its answer; a lease that is lost between
///   the two is the same to a handler.
/// - The database ends the transaction with a deadlock, at each statement of the handler.
/// - In lease mode the lease is lost while a call is at a [`step`](crate::testing::step), and a second worker makes the whole call
///   meanwhile: the same row is handled twice at the same time. The row's lock keeps that from the other modes.
/// - The worker takes the transaction away because the handler took too long, or, in lease mode, drops the answer of a call.
///
/// Whatever was committed stays, and whatever was not is gone, as in the real world. Then a worker attempts the row again, and the
/// clock moves to each retry and to the end of each lease, until the row has come to its end. In a schedule that is the end of one
/// occasion. The effects are compared with those of a run that nothing disturbed:
///
/// - the rows of all tables in the connection's schema, or of [those that you name](Torment::tables). Left out are times of day,
///   the queue's own columns, and, of new rows, keys that the database counts up and values that differ between two undisturbed
///   runs;
/// - what your model of the [outside world](Torment::outside) shows.
///
/// Everything happens on the one connection, inside its transaction: a commit is the release of a savepoint there, and a crash is a
/// rollback to the last one. So it works alike on PostgreSQL, MySQL, MariaDB and SQLite, beside other tests on the same database,
/// the row has the same key each time, and nothing is left behind. If no transaction is open, this opens one and rolls it back.
///
/// A crash is a panic with a private payload that unwinds the handler, so the destructors of its values run. A deadlock and a
/// timeout unwind it too, as `?` would: the code of a handler that catches the database's errors is not reached. Statements on
/// other connections, and calls on other threads, are no points; give them a [`step`](crate::testing::step). The connection's
/// [instrumentation](diesel::connection::Instrumentation) is torment's meanwhile, and none afterwards.
///
/// ```
/// use std::sync::Mutex;
/// use queueable::testing;
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # diesel::table! { ledger (id) { id -> BigInt, payment_id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL);
/// #     CREATE TABLE ledger (id INTEGER PRIMARY KEY NOT NULL, payment_id BIGINT NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// diesel::insert_into(payments::table).values((payments::id.eq(7), Payment::due_now())).execute(&mut connection)?;
///
/// // Books the payment, and sends an e-mail: a server that knows no keys sends a second one when the attempt is repeated.
/// let sent = Mutex::new(Vec::new());
/// let charge = |payment: &Payment, message: &mut Message<'_, SqliteConnection>| -> HandlerResult {
///     diesel::insert_into(ledger::table).values(ledger::payment_id.eq(payment.id)).execute(message.connection())?;
///     sent.lock().unwrap().push(format!("receipt for {}", payment.id));
///     testing::step("the e-mail was sent");
///     Ok(Outcome::Done)
/// };
/// let report = testing::torment::<Payment>(7)
///     .outside(|| sent.lock().unwrap().clear(), || sent.lock().unwrap().clone())
///     .run(&mut connection, &charge)?;
///
/// let story = report.story.unwrap();
/// assert_eq!(story.end, "killed after the e-mail was sent and before the handler returned");
/// assert_eq!(story.effects[0].to_string(), r#"outside twice instead of once: "receipt for 7""#);
///
/// // Without the e-mail, the handler is idempotent.
/// let book = |payment: &Payment, message: &mut Message<'_, SqliteConnection>| -> HandlerResult {
///     diesel::insert_into(ledger::table).values(ledger::payment_id.eq(payment.id)).execute(message.connection())?;
///     Ok(Outcome::Done)
/// };
/// testing::torment::<Payment>(7).run(&mut connection, &book)?.assert_ok();
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub fn torment<'t, Q: Queueable>(key: Q::Key) -> Torment<'t, Q> {
    Torment { keys: vec![key], outside: None, tables: Vec::new(), ignored: Vec::new() }
}

/// What is tormented, made by [`torment`].
#[must_use = "nothing is tormented before `run` is called"]
pub struct Torment<'t, Q: Queueable> {
    keys: Vec<Q::Key>,
    outside: Option<Outside<'t>>,
    tables: Vec<String>,
    ignored: Vec<String>,
}

/// The test's model of the outside world.
struct Outside<'t> {
    clear: Box<dyn FnMut() + 't>,
    effects: Box<dyn FnMut() -> Vec<String> + 't>,
}

impl<Q: Queueable> fmt::Debug for Torment<'_, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Torment { keys, tables, ignored, .. } = self;
        let mut shown = f.debug_struct("Torment");
        shown.field("keys", keys).field("tables", tables).field("ignored", ignored).finish_non_exhaustive()
    }
}

impl<'t, Q: Queueable + 'static> Torment<'t, Q> {
    /// Works this row too. In group mode the rows share a transaction, and one handler's crash is the other's.
    pub fn and(mut self, key: Q::Key) -> Self {
        self.keys.push(key);
        self
    }

    /// Compares a model of the outside world too, such as a mock of an e-mail server: `clear` makes it as it was before each run,
    /// and `effects` returns what it has done since, in any order.
    ///
    /// Let the model do what the real receiver does: if that knows idempotency keys, so should the model. Values that differ each
    /// time, such as random ones, do not belong to the effects.
    pub fn outside<E>(mut self, clear: impl FnMut() + 't, mut effects: impl FnMut() -> E + 't) -> Self
    where
        E: IntoIterator<Item: fmt::Debug>,
    {
        let effects = move || effects().into_iter().map(|effect| format!("{effect:?}")).collect();
        self.outside = Some(Outside { clear: Box::new(clear), effects: Box::new(effects) });
        self
    }

    /// Compares the rows of these tables only. The default is all tables in the connection's schema, without the library's own;
    /// each is read once in each run.
    pub fn tables<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.tables.extend(names.into_iter().map(Into::into));
        self
    }

    /// Does not compare the columns of this name, in any table: for random values and for times as numbers. Such columns are
    /// found without it as long as two runs in a row give them different values.
    pub fn ignoring(mut self, column: impl Into<String>) -> Self {
        self.ignored.push(column.into());
        self
    }

    /// Runs it.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the row does not succeed when nothing disturbs its handler, or if two such runs have different
    /// effects; if a handler ends the transaction of the test; if a call waits for one that is at a [`step`](crate::testing::step); and if a table of [`tables`](Self::tables) does not exist.
    /// [`Error::Unsafe`] if the table is not what the entity needs. [`Error::Database`].
    pub fn run<C, H>(mut self, connection: &mut C, handler: &H) -> Result<TormentReport, Error>
    where
        C: AsQueueConnection<Connection: Explains<Q>>,
        H: HandlerFor<Q, C::Connection>,
    {
        let connection = connection.as_queue_connection();
        let outer = depth_of(connection);
        if outer == 0 {
            begin(connection)?;
        }
        let clock = hold_clock(connection);
        let report = self.run_each(connection, handler, &mut || clock.restore());
        clock.give_back(connection);
        let rolled_back = roll_back_to(connection, outer);
        let report = report?;
        rolled_back?;
        Ok(report)
    }

    fn run_each<C, H>(
        &mut self,
        connection: &mut C,
        handler: &H,
        restore_clock: &mut dyn FnMut(),
    ) -> Result<TormentReport, Error>
    where
        C: QueueConnection + Explains<Q>,
        H: HandlerFor<Q, C>,
    {
        let (keys, named) = (self.keys.clone(), mem::take(&mut self.ignored));
        let before = tables::read(connection, &self.tables)?;
        let work = Work::<Q, H> { handler, keys: &keys };
        let mut run = |end, like: Option<&Run>| {
            let depth = depth_of(connection);
            begin(connection)?;
            let ran = self.run_once(&work, connection, end, like);
            restore_clock();
            // The error of a handler that has ended the transaction comes first.
            let rolled_back = roll_back_to(connection, depth);
            let ran = ran?;
            rolled_back?;
            Ok::<_, Error>(ran)
        };
        let (first, expected) = run(None, None)?;
        check_undisturbed(&first)?;
        // The second one, because the first may fill caches: the handler's, and Diesel's own of the database's types.
        let (undisturbed, again) = run(None, None)?;
        let terms = terms::<Q>(&named, &before, &expected, &again);
        if let Some(effect) = again.differences(&expected, &terms).first() {
            return Err(Error::Setting {
                setting: "the effects that torment compares",
                found: format!("other ones in a second run that nothing disturbed: {effect}"),
                expected: "the same effects each time: make the model of the outside world as it was in `clear`, and leave random \
                           values out of the effects",
            });
        }
        let row = undisturbed.attempts.last().map_or_else(String::new, |last| format!("{} {}", last.entity, last.key));
        let mut report = TormentReport { row, ends: Vec::new(), story: None };
        for (number, point) in undisturbed.points.iter().enumerate() {
            for fault in point.faults {
                let end = point.story(*fault);
                let (ran, found) = run(Some((number, *fault)), Some(&undisturbed))?;
                if !ran.has_struck {
                    return Err(Error::Setting {
                        setting: "the points at which torment ends the world",
                        found: format!("others than in the run before: this one was not reached: {end}"),
                        expected: "a handler that does the same each time; keep what it does once out of the test, or do it before",
                    });
                }
                report.story = story::<Q>(&end, &ran, &found, &undisturbed, &expected, &terms);
                report.ends.push(end);
                if report.story.is_some() {
                    return Ok(report);
                }
            }
        }
        Ok(report)
    }

    /// Works the rows once, and reads what they have done.
    fn run_once<C, H>(
        &mut self,
        work: &Work<'_, Q, H>,
        connection: &mut C,
        end: Option<(usize, Fault)>,
        like: Option<&Run>,
    ) -> Result<(Run, Effects), Error>
    where
        C: QueueConnection + Explains<Q>,
        H: HandlerFor<Q, C>,
    {
        if let Some(outside) = &mut self.outside {
            (outside.clear)();
        }
        let run = work.run(connection, end, like)?;
        let outside = self.outside.as_mut().map_or_else(Vec::new, |outside| (outside.effects)());
        Ok((run, Effects { outside, tables: tables::read(connection, &self.tables)? }))
    }
}

fn begin<C: QueueConnection>(connection: &mut C) -> Result<(), Error> {
    Ok(C::TransactionManager::begin_transaction(connection)?)
}

/// Returns an error if the row does not end well when nothing disturbs it.
fn check_undisturbed(run: &Run) -> Result<(), Error> {
    let is_well = run.is_settled && !run.attempts.is_empty() && !run.has_failed();
    if is_well {
        return Ok(());
    }
    let attempts = run.attempts.iter().map(ToString::to_string);
    let states = run.states.iter().map(|state| format!("the row: {state}"));
    let told: Vec<_> = attempts.chain(states).collect();
    Err(Error::Setting {
        setting: "the row that torment works",
        found: format!("not at a good end although nothing disturbed its handler: {}", told.join("; ")),
        expected: "a row that is due, or will be, and whose handler succeeds",
    })
}

/// Returns how the effects are compared: without the columns of these names, and without those of queues with the entity's names of
/// columns, because a disturbed row has other tries.
fn terms<Q: Queueable>(named: &[String], before: &Tables, first: &Effects, second: &Effects) -> Terms {
    let names = <Q::Queue as QueueTable>::COLUMNS;
    let queue = [
        names.status,
        names.next_attempt_time,
        names.try_count,
        names.last_attempt_time,
        names.last_attempt_error_message,
    ];
    let mut terms = Terms::default();
    terms.leave_out(before, |table, column| {
        let is_queue = || queue.iter().all(|name| table.columns.iter().any(|other| other == name));
        named.iter().any(|name| name == column) || queue.contains(&column) && is_queue()
    });
    terms.find_fresh(before, first, second);
    terms
}

/// Tells what went wrong, if something did.
fn story<Q: Queueable + 'static>(
    end: &str,
    ran: &Run,
    found: &Effects,
    undisturbed: &Run,
    expected: &Effects,
    terms: &Terms,
) -> Option<Story> {
    let mut effects = found.differences(expected, terms);
    let mut row = ran.other_end(undisturbed);
    if !ran.is_settled {
        let last = ran.attempts.last().map_or_else(String::new, |last| format!(": {last}"));
        row = Some(format!("the row comes to no end{last}"));
    }
    if ran.is_given_up {
        // It had no other try. A row that is given up has no effects, or those of the attempt that was cut off.
        effects.retain(|effect| effect.is_outside && effect.times > effect.expected);
        row = None;
    }
    let is_lease = TypeId::of::<Q::Mode>() == TypeId::of::<LeaseMode>();
    let key = if is_lease { "lease.idempotency_key()" } else { "message.idempotency_key()" };
    let attempts = ran.attempts.iter().map(ToString::to_string).collect();
    (!effects.is_empty() || row.is_some()).then(|| Story { end: end.to_owned(), row, effects, attempts, key })
}

/// What [`Torment::run`] has found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TormentReport {
    /// The row, with its entity's name.
    pub row: String,
    /// How the world ended, in each run.
    pub ends: Vec<String>,
    /// What went wrong in the last of them, if something did.
    pub story: Option<Story>,
}

impl TormentReport {
    /// Does nothing if the effects were the same in each run.
    ///
    /// # Panics
    ///
    /// With the story, if they were not.
    #[track_caller]
    pub fn assert_ok(&self) {
        assert!(self.story.is_none(), "{self}");
    }
}

impl fmt::Display for TormentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.story {
            Some(story) => write!(f, "the handler of {} is not idempotent.\n{story}", self.row),
            None => {
                write!(f, "the handler of {} has the same effects wherever the world ends:", self.row)?;
                self.ends.iter().try_for_each(|end| write!(f, "\n  {end}"))
            }
        }
    }
}
