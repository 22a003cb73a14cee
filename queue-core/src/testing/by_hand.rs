//! Messages and leases without a row, for a test that calls its handler itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use crate::handler::{Lease, LeaseClock, Message, StopSignal};
use crate::row::{Details, QueueState, Status};

/// How long the lease is.
const LEASE: Duration = Duration::from_secs(300);

/// What a message or a lease says of its row.
#[derive(Debug)]
pub struct ByHand {
    /// The queue's columns.
    pub state: QueueState,
    /// The number of the attempt.
    pub try_number: u32,
    /// The key for external calls.
    pub idempotency_key: String,
    /// How long a call under the lease may take.
    pub timeout: Duration,
    details: Details,
    stop: StopSignal,
}

impl ByHand {
    /// Begins with this state, at the first attempt.
    pub fn new(state: QueueState, idempotency_key: String) -> Self {
        let (details, stop) = (Details::default(), StopSignal::default());
        ByHand { state, try_number: 1, idempotency_key, timeout: LEASE, details, stop }
    }

    /// Sets the text of the stage.
    pub fn set_stage(&mut self, stage: &str) {
        self.details.stage = Some(stage.to_owned());
    }

    /// Sets the scheduled time of the run.
    pub fn set_scheduled_time(&mut self, time: DateTime<Utc>) {
        // A schedule of any kind, without which a row has no scheduled time.
        (self.details.scheduled_time, self.details.period) = (Some(time), Some(0));
    }

    /// Returns the message on a connection.
    pub fn message<'a, C>(&'a self, connection: &'a mut C) -> Message<'a, C> {
        Message {
            connection,
            state: &self.state,
            details: &self.details,
            try_number: self.try_number,
            idempotency_key: &self.idempotency_key,
            stop: &self.stop,
        }
    }

    /// Returns the lease, whose call begins now: the row as a claim leaves it.
    pub fn lease(&self) -> Lease {
        let try_count = i32::try_from(self.try_number).unwrap_or(i32::MAX);
        let lease = Lease {
            clock: Arc::new(LeaseClock::new(Instant::now(), LEASE.max(self.timeout.saturating_mul(2)))),
            state: QueueState { status: Status::InProgress, try_count, ..self.state.clone() },
            details: self.details.clone(),
            try_number: self.try_number,
            idempotency_key: self.idempotency_key.clone(),
            timeout: self.timeout,
        };
        lease.begin();
        lease
    }
}
