//! Messages and leases by hand, for tests that call a handler themselves.

use chrono::{DateTime, Utc};
use queue_core::internals::testing::ByHand;

use crate::{Lease, Message, QueueState, Stage, Status};

/// Begins a message, or a lease, without a row of the queue, for a test that calls its handler as a function.
///
/// No engine is at work: there is no claim, no savepoint, no retry and no settlement, and the handler's writes are the
/// connection's. It shows only what the handler answers and writes. [`TestQueue::attempt`](super::TestQueue::attempt) shows
/// what becomes of a row.
///
/// ```
/// use queueable::testing;
/// # use diesel::prelude::*;
/// # use diesel::connection::SimpleConnection;
/// # use queueable::{HandlerResult, Message, Outcome};
/// # diesel::table! { ledger (payment_id) { payment_id -> BigInt, reference -> Text, } }
/// # struct Payment { id: i64 }
/// fn book(payment: &Payment, message: &mut Message<'_, SqliteConnection>) -> HandlerResult {
///     let reference = message.idempotency_key().to_owned();
///     diesel::insert_into(ledger::table)
///         .values((ledger::payment_id.eq(payment.id), ledger::reference.eq(reference)))
///         .execute(message.connection())?;
///     Ok(if message.try_number() > 2 { Outcome::Skip } else { Outcome::Done })
/// }
///
/// # let mut connection = SqliteConnection::establish(":memory:")?;
/// # connection.batch_execute("CREATE TABLE ledger (payment_id BIGINT NOT NULL PRIMARY KEY, reference TEXT NOT NULL)")?;
/// let message = testing::message().idempotency_key("payments.status:7");
/// let outcome = book(&Payment { id: 7 }, &mut message.on(&mut connection)).unwrap();
/// assert!(matches!(outcome, Outcome::Done));
/// assert_eq!(ledger::table.find(7).select(ledger::reference).first(&mut connection), Ok("payments.status:7".to_owned()));
///
/// let third_try = testing::message().try_number(3);
/// assert!(!matches!(book(&Payment { id: 8 }, &mut third_try.on(&mut connection)).unwrap(), Outcome::Done));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn message() -> MessageByHand {
    let state = QueueState {
        status: Status::NotAttempted,
        next_attempt_time: Some(Utc::now()),
        try_count: 0,
        last_attempt_time: None,
        last_attempt_error_message: None,
    };
    MessageByHand(ByHand::new(state, "test:1".to_owned()))
}

/// What a message or a lease by hand says of its row, made by [`message`].
#[derive(Debug)]
#[must_use = "a handler gets `on(connection)`, or `lease()`"]
pub struct MessageByHand(ByHand);

impl MessageByHand {
    /// Sets the number of the attempt, which is 1 otherwise. The queue's columns follow: before the second attempt and every
    /// later one, the row is `ERROR`.
    ///
    /// # Panics
    ///
    /// If the number is 0 or more than 2³¹.
    pub fn try_number(mut self, number: u32) -> Self {
        let before = number.checked_sub(1).and_then(|before| i32::try_from(before).ok());
        self.0.state.try_count = before.expect("attempts are counted from 1");
        self.0.state.status = if number == 1 { Status::NotAttempted } else { Status::Error };
        self.0.try_number = number;
        self
    }

    /// Sets the key for external calls. It is `test:1` otherwise.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.0.idempotency_key = key.into();
        self
    }

    /// Sets the queue's columns, and the number of the attempt by them: one more than the tries.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut connection = SqliteConnection::establish(":memory:")?;
    /// # let state: queueable::QueueState = serde_json::from_str(
    /// #     r#"{"status":"ERROR","next_attempt_time":null,"try_count":2,"last_attempt_time":null,"last_attempt_error_message":null}"#,
    /// # )?;
    /// let message = queueable::testing::message().state(state.clone());
    /// let message = message.on(&mut connection);
    /// assert_eq!((message.try_number(), message.queue_state()), (3, &state));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn state(mut self, state: QueueState) -> Self {
        self.0.try_number = u32::try_from(state.try_count).unwrap_or(0).saturating_add(1);
        self.0.state = state;
        self
    }

    /// Sets the stage of the row, for [`Message::stage`].
    pub fn stage(mut self, stage: impl Stage) -> Self {
        self.0.set_stage(stage.name());
        self
    }

    /// Sets the scheduled time of the run, for [`Message::scheduled_for`].
    pub fn scheduled_for(mut self, time: impl Into<DateTime<Utc>>) -> Self {
        self.0.set_scheduled_time(time.into());
        self
    }

    /// Sets how long a call under the lease may take. It is 5 minutes otherwise.
    pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
        self.0.timeout = timeout;
        self
    }

    /// Returns the message, whose handler works on this connection. If no transaction is open there, each statement of the
    /// handler is committed by itself.
    pub fn on<'a, C>(&'a self, connection: &'a mut C) -> Message<'a, C> {
        self.0.message(connection)
    }

    /// Returns a lease, for the call of a lease handler. Its time begins now, and no other session can take it.
    ///
    /// ```
    /// use queueable::{Failure, Lease, testing};
    ///
    /// fn render(title: &str, lease: &Lease) -> Result<String, Failure> {
    ///     Ok(format!("{title}, try {}, {}", lease.try_number(), lease.idempotency_key()))
    /// }
    ///
    /// let lease = testing::message().try_number(2).lease();
    /// assert_eq!(render("An invoice", &lease).unwrap(), "An invoice, try 2, test:1");
    /// ```
    pub fn lease(&self) -> Lease {
        self.0.lease()
    }
}
