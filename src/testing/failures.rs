//! Failures on demand.

use std::any::{Any, type_name};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use queue_core::internals::testing::{
    AroundHandlers, CallOfHandler, around_handlers, end_lease, fail_commit, fail_no_more, time_out,
};

use crate::{Failure, Lease, LeaseLost, Queueable};

/// What goes wrong in an attempt, asked for by [`fail_next`].
///
/// The first six are answers of the handler, in the place of its own. In lease mode, [`Error`](Fault::Error),
/// [`Fatal`](Fault::Fatal), [`With`](Fault::With) and [`Panic`](Fault::Panic) are answers of `call`, and
/// [`Conflict`](Fault::Conflict) and [`LostConnection`](Fault::LostConnection) are answers of `apply`, which has the connection.
///
/// The faults of a connection and of a commit are answers that the worker gets: the connection of the test stays open, and
/// so does its transaction.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Fault {
    /// The handler answers with an error of this text, and the retry policy applies.
    Error(&'static str),
    /// The handler answers with an error of this text that is not retried.
    Fatal(&'static str),
    /// The handler answers with this failure, which may have an error of the application's own.
    With(fn() -> Failure),
    /// The handler panics with this text.
    Panic(&'static str),
    /// A statement of the handler ends with a conflict, as after a deadlock or a serialization failure. The worker interrupts
    /// the attempt, which uses no try.
    Conflict,
    /// A statement of the handler ends because the connection is lost. The worker interrupts the attempt, which uses no try.
    LostConnection,
    /// The handler returns after its timeout. In lease mode, `call` does.
    Timeout,
    /// In lease mode: another session has changed the row when `call` returns. The worker writes nothing.
    LostLease,
    /// The database refuses the commit, as a deferred constraint does, and rolls back.
    CommitRefused,
    /// The connection is lost before the commit reaches the database, which rolls back. The worker finds out.
    CommitLost,
    /// The database commits, and the connection is lost before the worker has the answer. The worker finds out.
    AnswerLost,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Error(_) => "an error of the handler",
            Fault::Fatal(_) => "a fatal error of the handler",
            Fault::With(_) => "a failure of the handler",
            Fault::Panic(_) => "a panic of the handler",
            Fault::Conflict => "a conflict",
            Fault::LostConnection => "a lost connection",
            Fault::Timeout => "a timeout",
            Fault::LostLease => "a lost lease",
            Fault::CommitRefused => "a refused commit",
            Fault::CommitLost => "a commit that does not reach the database",
            Fault::AnswerLost => "a commit whose answer is lost",
        })
    }
}

impl Fault {
    /// Tells whether it happens to such a call: in a transaction, or under a lease.
    fn is_of(self, lease: Option<&Lease>) -> bool {
        match self {
            Fault::LostLease => lease.is_some(),
            Fault::Conflict | Fault::LostConnection | Fault::CommitRefused | Fault::CommitLost | Fault::AnswerLost => {
                lease.is_none()
            }
            _ => true,
        }
    }

    /// Tells whether it is an answer of the handler.
    fn is_answer(self) -> bool {
        self.answer().is_some() || matches!(self, Fault::Panic(_))
    }

    /// Returns the answer of the handler that it is.
    fn answer(self) -> Option<Failure> {
        Some(match self {
            Fault::Error(text) => Failure::retry(text),
            Fault::Fatal(text) => Failure::fatal(text),
            Fault::With(failure) => failure(),
            Fault::Conflict => refusal(DatabaseErrorKind::SerializationFailure, "a conflict").into(),
            Fault::LostConnection => refusal(DatabaseErrorKind::ClosedConnection, "a lost connection").into(),
            _ => return None,
        })
    }

    /// Has it happen. Returns the handler's answer, if it is one.
    fn happen(self, lease: Option<&Lease>) -> Option<Failure> {
        let lost = || refusal(DatabaseErrorKind::ClosedConnection, "a lost connection");
        match (self, lease) {
            (Fault::Panic(text), _) => panic!("{text}"),
            (Fault::Timeout, None) => time_out(),
            (Fault::Timeout, Some(lease)) => end_lease(lease, LeaseLost::TimedOut),
            (Fault::LostLease, Some(lease)) => end_lease(lease, LeaseLost::Overtaken),
            (Fault::CommitRefused, _) => {
                fail_commit(refusal(DatabaseErrorKind::CheckViolation, "a refused commit"), false)
            }
            (Fault::CommitLost, _) => fail_commit(lost(), false),
            (Fault::AnswerLost, _) => fail_commit(lost(), true),
            _ => return self.answer(),
        }
        None
    }
}

/// Returns an error as Diesel has it from a database.
fn refusal(kind: DatabaseErrorKind, what: &str) -> DieselError {
    DieselError::DatabaseError(kind, Box::new(format!("{what}, asked for by `testing::fail_next`")))
}

/// Has the next attempt on this thread fail, in a drain or in one attempt by hand. The worker's own code meets the fault, and
/// does what it does in production.
///
/// The fault happens when the handler has returned, so what it did before has been done; its writes go as production has them
/// go. [`before`](Failing::before) has the handler not called. [`times`](Failing::times) asks for more than one attempt,
/// [`only`](Failing::only) for certain rows. It ends when the returned value is dropped.
///
/// A group is handled row by row meanwhile. After a failure in a group, the worker may call the handlers of the other rows, and
/// of the same row, again. Calls that `AsyncCalls` runs beside the worker are not reached; the application of
/// their answers is.
///
/// ```
/// use queueable::testing::{self, AttemptEnd, Fault, TestQueue};
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use diesel_migrations::MigrationHarness;
/// # use queueable::{HandlerResult, Message, Migrations, Outcome, Queueable};
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// # fn charge(_: &Payment, _: &mut Message<'_, SqliteConnection>) -> HandlerResult { Ok(Outcome::Done) }
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE payments (id INTEGER PRIMARY KEY NOT NULL)")?;
/// # connection.run_pending_migrations(Migrations::new().entity::<Payment>())?;
/// connection.begin_test_transaction()?;
/// for id in 1..=3 {
///     diesel::insert_into(payments::table).values((payments::id.eq(id), Payment::due_now())).execute(&mut connection)?;
/// }
///
/// let failing = testing::fail_next(Fault::LostConnection).only(|payment: &Payment| payment.id == 2);
/// let drained = Payment::drain(&mut connection, &charge)?;
/// failing.assert_hit();
/// assert_eq!(drained.count(AttemptEnd::Interrupted), 1);
/// // The row is tried again, with the same number of the attempt.
/// let drained = Payment::drain_until_idle(&mut connection, &charge)?;
/// assert_eq!(drained.of(2).map(|attempt| attempt.try_number).collect::<Vec<_>>(), [1]);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub fn fail_next(fault: Fault) -> Failing {
    let asked =
        Asked { fault, times: Some(1), is_before: false, only: None, rows: "a row", calls: 0, wanted: 0, hits: 0 };
    let asked = Rc::new(RefCell::new(asked));
    let of_calls = asked.clone();
    let around = around_handlers(move |call| of_calls.borrow_mut().meet(call));
    Failing { asked, _around: around }
}

/// A condition on the entity of an attempt.
type OnEntity = Box<dyn Fn(&dyn Any) -> bool>;

/// What a test has asked for, and what has come of it.
struct Asked {
    fault: Fault,
    /// `None`: always.
    times: Option<usize>,
    is_before: bool,
    only: Option<OnEntity>,
    rows: &'static str,
    /// How many calls of handlers there were, how many of them were for a wanted row, and how many were hit.
    calls: usize,
    wanted: usize,
    hits: usize,
}

impl Asked {
    fn meet(&mut self, call: &CallOfHandler<'_>) -> Option<Failure> {
        let is_before = self.is_before && self.fault.is_answer();
        if call.has_ended == is_before || call.has_panicked {
            return None;
        }
        self.calls += 1;
        if self.only.as_ref().is_some_and(|only| !only(call.entity)) {
            return None;
        }
        self.wanted += 1;
        if !self.fault.is_of(call.lease) || self.times.is_some_and(|times| self.hits >= times) {
            return None;
        }
        self.hits += 1;
        self.fault.happen(call.lease)
    }
}

/// A failure that was asked for by [`fail_next`]. Dropped, it ends.
#[must_use = "the failure is not asked for any more when this is dropped"]
pub struct Failing {
    asked: Rc<RefCell<Asked>>,
    _around: AroundHandlers,
}

impl Failing {
    /// Has so many attempts fail, one after the other. The default is 1.
    pub fn times(self, times: usize) -> Self {
        self.asked.borrow_mut().times = Some(times);
        self
    }

    /// Has every attempt fail.
    pub fn always(self) -> Self {
        self.asked.borrow_mut().times = None;
        self
    }

    /// Has only attempts on rows of this entity fail for which the condition holds.
    pub fn only<Q: Queueable + 'static>(self, condition: impl Fn(&Q) -> bool + 'static) -> Self {
        {
            let mut asked = self.asked.borrow_mut();
            asked.only = Some(Box::new(move |entity| entity.downcast_ref().is_some_and(&condition)));
            asked.rows = type_name::<Q>().rsplit("::").next().unwrap_or(Q::ENTITY);
        }
        self
    }

    /// Has the handler not called, if the fault is an answer of the handler's: it fails before it has done anything.
    pub fn before(self) -> Self {
        self.asked.borrow_mut().is_before = true;
        self
    }

    /// Returns how often the fault has happened.
    pub fn hits(&self) -> usize {
        self.asked.borrow().hits
    }

    /// Checks that the fault has happened as often as it was asked for, or at least once with [`always`](Self::always).
    ///
    /// # Panics
    ///
    /// If it has not: a test of a failure that never happened tests nothing.
    ///
    /// ```should_panic
    /// use queueable::testing::{Fault, fail_next};
    ///
    /// fail_next(Fault::Conflict).assert_hit(); // no handler was called
    /// ```
    #[track_caller]
    pub fn assert_hit(&self) {
        let Asked { fault, times, rows, calls, wanted, hits, .. } = &*self.asked.borrow();
        if *hits >= times.unwrap_or(1) {
            return;
        }
        let why = match (calls, wanted, hits) {
            (0, ..) => "no handler was called on this thread".to_owned(),
            (calls, 0, _) => format!("{calls} calls of handlers, none for a {rows} that `only` wants"),
            (_, wanted, 0) => format!("{wanted} calls of handlers, none of a kind to which this can happen"),
            (_, wanted, hits) => format!("{hits} times, in {wanted} calls of handlers"),
        };
        let asked = times.map_or("at least once".to_owned(), |times| format!("{times} times"));
        panic!("{fault} was to happen {asked}: {why}");
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        fail_no_more();
    }
}

impl fmt::Debug for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.asked.borrow();
        f.debug_struct("Failing").field("fault", &asked.fault).field("hits", &asked.hits).finish_non_exhaustive()
    }
}
