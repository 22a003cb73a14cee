//! Counts what happens for the facade `metrics`.

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use super::event::{AttemptEvent, Event};

const ATTEMPTS: &str = "queueable_attempts_total";
const DURATION: &str = "queueable_attempt_duration_seconds";
const WAIT: &str = "queueable_attempt_wait_seconds";
const PAST_TIMEOUT: &str = "queueable_handlers_past_timeout_total";
const STUCK: &str = "queueable_workers_stuck_total";
const STALLED: &str = "queueable_queues_stalled_total";
const LOST: &str = "queueable_connections_lost_total";

/// Counts an event. With the first one, which says that the poller starts, the recorder hears what the metrics mean.
pub(crate) fn count_for_metrics(event: &Event) {
    match event {
        Event::Begun(AttemptEvent { entity, waited: Some(waited), .. }) => {
            histogram!(WAIT, "entity" => *entity).record(waited.as_secs_f64());
        }
        Event::TimedOut(attempt) => counter!(PAST_TIMEOUT, "entity" => attempt.entity).increment(1),
        Event::WorkerStuck { attempt, .. } => counter!(STUCK, "entity" => attempt.entity).increment(1),
        Event::ConnectionLost { .. } => counter!(LOST).increment(1),
        Event::QueueStalled { entity, .. } => counter!(STALLED, "entity" => *entity).increment(1),
        Event::PollerStarted { .. } => describe(),
        event => {
            if let Some((outcome, attempt)) = event.end() {
                ended(attempt, outcome);
            }
        }
    }
}

fn describe() {
    describe_counter!(ATTEMPTS, Unit::Count, "Attempts that have ended, by entity and outcome");
    describe_histogram!(DURATION, Unit::Seconds, "From the call of the handler to the known commit");
    describe_histogram!(WAIT, Unit::Seconds, "From the due time to the call of the handler");
    describe_counter!(PAST_TIMEOUT, Unit::Count, "Handlers that were past their timeout");
    describe_counter!(STUCK, Unit::Count, "Handlers that did not return after their timeout");
    describe_counter!(STALLED, Unit::Count, "Times at which a queue began to stand still because of its table");
    describe_counter!(LOST, Unit::Count, "Times at which a poller's threads began to lack connections");
}

fn ended(attempt: &AttemptEvent, outcome: &'static str) {
    counter!(ATTEMPTS, "entity" => attempt.entity, "outcome" => outcome).increment(1);
    if let Some(duration) = attempt.duration {
        histogram!(DURATION, "entity" => attempt.entity, "outcome" => outcome).record(duration.as_secs_f64());
    }
}
