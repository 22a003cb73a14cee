//! Works rows inline, by the worker's own code.

use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, Utc};
use queue_core::internals::testing::{Closed, Workbench, travel_to};

use super::drained::{Drained, Kept, attempts_of, expect_no_trouble};
use crate::bounds::{AsQueueConnection, HandlerFor, QueueConnection};
use crate::{Error, Queueable};

/// How many attempts a call makes at most, unless the test says otherwise.
const ATTEMPTS: usize = 10_000;

/// How often in a row the clock is moved without an attempt. A guess: schedules and windows come to a row sooner.
const IN_VAIN: usize = 100;

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

    /// Works everything that is due, as [`TestQueue::drain`](super::TestQueue::drain) does, one turn of each entity after the other: an attempt, a
    /// group, or the rows of one claim under a lease.
    ///
    /// # Errors
    ///
    /// Those of [`TestQueue::drain`](super::TestQueue::drain).
    pub fn drain(mut self) -> Result<Drained, Error> {
        let mut drained = Drained::default();
        self.work(&mut drained)?;
        Ok(drained)
    }

    /// Makes one attempt, as [`TestQueue::drain_one`](super::TestQueue::drain_one) does, of the first entity that has a row for it.
    ///
    /// # Errors
    ///
    /// Those of [`TestQueue::drain`](super::TestQueue::drain).
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

    /// Works everything until nothing will ever be due, as [`TestQueue::drain_until_idle`](super::TestQueue::drain_until_idle) does.
    ///
    /// # Errors
    ///
    /// Those of [`TestQueue::drain_until_idle`](super::TestQueue::drain_until_idle).
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
        expect_no_trouble(&turned, self.bench.entity(number))?;
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
