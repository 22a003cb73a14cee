//! Moves the clock of a test: of the library's statements on this thread, until the test's transaction or its connection ends.

use std::sync::{Arc, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use diesel::connection::{Instrumentation, InstrumentationEvent};
use diesel::result::QueryResult;
use diesel::sql_types::Nullable;

use crate::backend::{QueueConnection, load_first};
use crate::error::refused;
use crate::in_test::{MovedClock, TestClock, clock, follow, moved_clock};
use crate::row::{Instant, TimestampUtc};
use crate::statement;

/// Has the connection keep the clock, so that the clock ends with it.
struct KeepsClock(TestClock);

impl Instrumentation for KeepsClock {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::RollbackTransaction { depth, .. }
            | InstrumentationEvent::CommitTransaction { depth, .. }
                if depth.get() == 1 =>
            {
                set(&self.0, None);
            }
            _ => {}
        }
    }
}

fn set(clock: &TestClock, moved: Option<MovedClock>) {
    *clock.lock().unwrap_or_else(PoisonError::into_inner) = moved;
}

/// Sets how the clock differs from the database's. A connection that has none yet gets one.
fn set_on<C: QueueConnection>(connection: &mut C, moved: MovedClock) {
    let clock = clock().unwrap_or_else(|| {
        let clock = TestClock::default();
        connection.set_instrumentation(KeepsClock(Arc::clone(&clock)));
        follow(&clock);
        clock
    });
    set(&clock, Some(moved));
}

/// Reads the time of the test's clock.
pub fn present<C: QueueConnection>(connection: &mut C) -> QueryResult<DateTime<Utc>> {
    let present = load_first::<Nullable<TimestampUtc>, Option<Instant>, _>(connection, &statement::present())?;
    present.flatten().map(DateTime::from).ok_or_else(|| refused("the database has no time".to_owned()))
}

/// Moves the clock on, or back.
pub fn travel<C: QueueConnection>(connection: &mut C, by: TimeDelta) {
    let by = by.num_microseconds().unwrap_or(if by < TimeDelta::zero() { i64::MIN } else { i64::MAX });
    let moved = match moved_clock() {
        None => MovedClock::Later(by),
        Some(MovedClock::Later(before)) => MovedClock::Later(before.saturating_add(by)),
        Some(MovedClock::At(at)) => MovedClock::At(at.saturating_add(by)),
    };
    set_on(connection, moved);
}

/// Moves the clock to a time. If it stands still, it stands still there.
pub fn travel_to<C: QueueConnection>(connection: &mut C, time: DateTime<Utc>) -> QueryResult<()> {
    if let Some(MovedClock::At(_)) = moved_clock() {
        set_on(connection, MovedClock::At(time.timestamp_micros()));
        return Ok(());
    }
    let by = time.signed_duration_since(present(connection)?);
    travel(connection, by);
    Ok(())
}

/// Stops the clock at the present.
pub fn freeze<C: QueueConnection>(connection: &mut C) -> QueryResult<()> {
    let present = present(connection)?;
    set_on(connection, MovedClock::At(present.timestamp_micros()));
    Ok(())
}

/// The clock of a test whose connection has another instrumentation meanwhile.
pub struct HeldClock(TestClock, Option<MovedClock>);

impl HeldClock {
    /// Moves the clock to where it was when it was taken, relative to the database's.
    pub fn restore(&self) {
        set(&self.0, self.1);
    }

    /// Has the connection keep the clock again.
    pub fn give_back<C: QueueConnection>(self, connection: &mut C) {
        self.restore();
        connection.set_instrumentation(KeepsClock(self.0));
    }
}

/// Takes the clock from the connection that keeps it, so that the connection can have another instrumentation.
pub fn hold_clock<C: QueueConnection>(connection: &mut C) -> HeldClock {
    let moved = moved_clock();
    set_on(connection, moved.unwrap_or(MovedClock::Later(0)));
    HeldClock(clock().expect("it was set"), moved)
}

/// Has the clock agree with the database's again.
pub fn travel_back() {
    if let Some(clock) = clock() {
        set(&clock, None);
    }
}
