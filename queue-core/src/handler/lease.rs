//! The lease that a call holds on its row.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::lease_clock::{LeaseClock, LeaseEnd};
use crate::row::{Details, QueueState, Stage};

/// The lease of a message that `call` is working on: the row belongs to this attempt, and no transaction is open.
///
/// ```
/// use std::time::Duration;
/// use queueable::{Failure, Lease};
///
/// # struct Report { pages: u32 }
/// # fn render(page: u32, timeout: Duration) -> Result<(), std::io::Error> { Ok(()) }
/// fn print(report: &Report, lease: &Lease) -> Result<u32, Failure> {
///     for page in 0..report.pages {
///         lease.extend(Duration::from_secs(30))?; // a lost lease is a failure: there is no use in going on
///         render(page, lease.remaining())?;
///     }
///     Ok(report.pages)
/// }
/// # let _ = print;
/// ```
pub struct Lease {
    pub(crate) clock: Arc<LeaseClock>,
    pub(crate) state: QueueState,
    pub(crate) details: Details,
    pub(crate) try_number: u32,
    pub(crate) idempotency_key: String,
}

impl Lease {
    /// Returns a key for external calls that is the same at every attempt of this message, see
    /// [`Message::idempotency_key`](crate::Message::idempotency_key).
    pub fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    /// Returns the number of this attempt since the row was enqueued; the first is 1.
    pub fn try_number(&self) -> u32 {
        self.try_number
    }

    /// Returns the queue columns as the claim left them: the status is `IN_PROGRESS`, and this attempt is counted. The
    /// end of the lease is not among them, because the heartbeat extends the lease while the handler runs.
    pub fn queue_state(&self) -> &QueueState {
        &self.state
    }

    /// Returns the row's stage, see [`Message::stage`](crate::Message::stage).
    pub fn stage<S: Stage>(&self) -> S {
        self.details.stage()
    }

    /// Returns the scheduled time of this run, see [`Message::scheduled_for`](crate::Message::scheduled_for).
    pub fn scheduled_for(&self) -> Option<DateTime<Utc>> {
        self.details.scheduled_for()
    }

    /// Asks for more time: the handler may run for `by` from now, if that is more than it has left. The row stays with
    /// this attempt meanwhile, because the heartbeat extends its lease in the background.
    ///
    /// # Errors
    ///
    /// [`LeaseLost`] if the lease has already ended. `?` makes a failure of it, which uses a try.
    pub fn extend(&self, by: Duration) -> Result<(), LeaseLost> {
        self.clock.extend(by).map_err(LeaseLost::from)
    }

    /// Returns how much time the handler has left. Use it as the timeout of an external call.
    pub fn remaining(&self) -> Duration {
        self.clock.deadline().saturating_duration_since(Instant::now())
    }

    /// Tells whether the lease has ended: the row may soon belong to another worker, and there is no point in going on.
    /// A handler that works in steps should ask between them.
    ///
    /// It is true as soon as half the lease has passed without an answer from the database, the handler's time is over,
    /// somebody else has changed the row, or the poller is shutting down and its grace is over. Once true, it stays
    /// true.
    pub fn lease_lost(&self) -> bool {
        self.clock.ended().is_some()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("idempotency_key", &self.idempotency_key)
            .field("try_number", &self.try_number)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Why a lease has ended. The row may belong to another worker by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseLost {
    /// Somebody else has changed the row: an operator, the application, or another worker.
    #[error("the lease is lost: somebody else has changed the row")]
    Overtaken,
    /// Half the lease has passed without an answer from the database. Another worker may soon claim the row.
    #[error("the lease is lost: half of it has passed without an answer from the database")]
    Unconfirmed,
    /// The handler has taken longer than it may. This is recorded as the failure of the attempt.
    #[error("the lease is lost: the handler's time is over")]
    TimedOut,
    /// The poller is shutting down and its grace is over. The worker gives the row back.
    #[error("the lease is lost: the poller shuts down")]
    Shutdown,
}

impl From<LeaseEnd> for LeaseLost {
    fn from(why: LeaseEnd) -> Self {
        match why {
            LeaseEnd::Overtaken => LeaseLost::Overtaken,
            LeaseEnd::Unconfirmed => LeaseLost::Unconfirmed,
            LeaseEnd::TimedOut => LeaseLost::TimedOut,
            LeaseEnd::Shutdown => LeaseLost::Shutdown,
        }
    }
}
