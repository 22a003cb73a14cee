//! Moves the clock of a test: of the library's statements on this thread, until the test's transaction or its connection ends.

use std::sync::{Arc, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use diesel::connection::{Instrumentation, InstrumentationEvent, TransactionManager, get_default_instrumentation};
use diesel::result::QueryResult;

use crate::backend::QueueConnection;
use crate::error::refused;
use crate::statement;
use crate::sync::in_test::{MovedClock, SharedClock, TestClock, clock, follow};

/// Has a connection keep its test's clock, so that the clock ends with it, and passes on what happens to who listens, and to what
/// listens by default.
struct Listens {
    clock: Option<SharedClock>,
    heard: Option<Heard>,
    default: Option<Box<dyn Instrumentation>>,
}

type Heard = Box<dyn FnMut(&InstrumentationEvent<'_>) + Send>;

impl Listens {
    fn new(clock: Option<SharedClock>, heard: Option<Heard>) -> Self {
        Listens { clock, heard, default: get_default_instrumentation() }
    }
}

impl Instrumentation for Listens {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        if let Some(heard) = &mut self.heard {
            heard(&event);
        }
        if let (
            Some(clock),
            InstrumentationEvent::RollbackTransaction { depth, .. }
            | InstrumentationEvent::CommitTransaction { depth, .. },
        ) = (&self.clock, &event)
            && depth.get() == 1
        {
            let mut clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
            clock.moved = clock.moved.filter(|_| !clock.ends_with_transaction);
        }
        if let Some(default) = &mut self.default {
            default.on_connection_event(event);
        }
    }
}

/// Returns the clock that a connection keeps.
fn kept_by<C: QueueConnection>(connection: &mut C) -> Option<SharedClock> {
    connection.instrumentation().downcast_ref::<Listens>()?.clock.clone()
}

/// Listens to what happens on a connection, in the place of the instrumentation that it has.
pub fn listen<C: QueueConnection>(connection: &mut C, heard: impl FnMut(&InstrumentationEvent<'_>) + Send + 'static) {
    let clock = kept_by(connection);
    connection.set_instrumentation(Listens::new(clock, Some(Box::new(heard))));
}

/// Ends that: the connection keeps the clock of its test again, if it did, or has the default instrumentation.
pub fn end_listening<C: QueueConnection>(connection: &mut C) {
    match kept_by(connection) {
        Some(clock) => connection.set_instrumentation(Listens::new(Some(clock), None)),
        None => connection.set_instrumentation(get_default_instrumentation()),
    }
}

/// Returns the clock that this thread follows from now on: the one that it follows, if another connection has moved it, or else
/// the one that the connection keeps. A connection that keeps none gets one.
fn clock_of<C: QueueConnection>(connection: &mut C) -> SharedClock {
    let is_in_use = |clock: &SharedClock| {
        let clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.is_held || clock.moved.is_some()
    };
    let clock = clock().filter(is_in_use).or_else(|| kept_by(connection)).unwrap_or_else(|| {
        let clock = SharedClock::default();
        connection.set_instrumentation(Listens::new(Some(Arc::clone(&clock)), None));
        clock
    });
    follow(&clock);
    clock
}

/// Returns how the clock of a connection differs from the database's.
fn moved_on<C: QueueConnection>(connection: &mut C) -> Option<MovedClock> {
    clock_of(connection).lock().unwrap_or_else(PoisonError::into_inner).moved
}

/// Sets how the clock of a connection differs from the database's.
fn set_on<C: QueueConnection>(connection: &mut C, moved: MovedClock) {
    let clock = clock_of(connection);
    let is_its_own = kept_by(connection).is_some_and(|kept| Arc::ptr_eq(&kept, &clock));
    let status = C::TransactionManager::transaction_manager_status_mut(connection);
    let is_in_transaction = matches!(status.transaction_depth(), Ok(Some(_)));
    let mut clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
    // The clock of another connection ends with that one's transaction.
    let ends_with_transaction = if is_its_own { is_in_transaction } else { clock.ends_with_transaction };
    *clock = TestClock { moved: Some(moved), ends_with_transaction, ..*clock };
}

/// Reads the time of the test's clock.
pub fn present<C: QueueConnection>(connection: &mut C) -> QueryResult<DateTime<Utc>> {
    let present = statement::read_present(connection)?;
    present.map(DateTime::from).ok_or_else(|| refused("the database has no time".to_owned()))
}

/// Moves the clock on, or back.
pub fn travel<C: QueueConnection>(connection: &mut C, by: TimeDelta) {
    let by = by.num_microseconds().unwrap_or(if by < TimeDelta::zero() { i64::MIN } else { i64::MAX });
    let moved = match moved_on(connection) {
        None => MovedClock::Later(by),
        Some(MovedClock::Later(before)) => MovedClock::Later(before.saturating_add(by)),
        Some(MovedClock::At(at)) => MovedClock::At(at.saturating_add(by)),
    };
    set_on(connection, moved);
}

/// Moves the clock to a time. If it stands still, it stands still there.
pub fn travel_to<C: QueueConnection>(connection: &mut C, time: DateTime<Utc>) -> QueryResult<()> {
    if let Some(MovedClock::At(_)) = moved_on(connection) {
        set_on(connection, MovedClock::At(time.timestamp_micros()));
        return Ok(());
    }
    let by = time.signed_duration_since(present(connection)?);
    travel(connection, by);
    Ok(())
}

/// Stops the clock at the present.
pub fn freeze<C: QueueConnection>(connection: &mut C) -> QueryResult<()> {
    clock_of(connection);
    let present = present(connection)?;
    set_on(connection, MovedClock::At(present.timestamp_micros()));
    Ok(())
}

/// The clock of a test whose connection has another instrumentation meanwhile.
pub struct HeldClock {
    clock: SharedClock,
    was: TestClock,
    /// The clock that the connection itself has kept.
    kept: Option<SharedClock>,
}

impl HeldClock {
    /// Moves the clock to where it was when it was taken, relative to the database's.
    pub fn restore(&self) {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = TestClock { is_held: true, ..self.was };
    }

    /// Has the connection keep its clock again.
    pub fn give_back<C: QueueConnection>(self, connection: &mut C) {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = self.was;
        match self.kept {
            Some(kept) => connection.set_instrumentation(Listens::new(Some(kept), None)),
            None => connection.set_instrumentation(get_default_instrumentation()),
        }
    }
}

/// Takes the clock from the connection that keeps it, so that the connection can have another instrumentation.
pub fn hold_clock<C: QueueConnection>(connection: &mut C) -> HeldClock {
    let clock = clock_of(connection);
    let was = *clock.lock().unwrap_or_else(PoisonError::into_inner);
    let held = HeldClock { clock, was, kept: kept_by(connection) };
    held.restore();
    held
}

/// Has the clock agree with the database's again.
pub fn travel_back() {
    if let Some(clock) = clock() {
        clock.lock().unwrap_or_else(PoisonError::into_inner).moved = None;
    }
}
