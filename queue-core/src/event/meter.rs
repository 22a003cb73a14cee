//! Counts what happens for the facade `metrics`.

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::counts::OUTCOMES;
use super::event::{AttemptEvent, Event, Gauge, Measure};

const ATTEMPTS: &str = "queueable_attempts_total";
const DURATION: &str = "queueable_attempt_duration_seconds";
const WAIT: &str = "queueable_attempt_wait_seconds";
const PAST_TIMEOUT: &str = "queueable_handlers_past_timeout_total";
const STUCK: &str = "queueable_workers_stuck_total";
const STALLED: &str = "queueable_queues_stalled_total";
const LOST: &str = "queueable_connections_lost_total";
const REPLACED: &str = "queueable_connections_replaced_total";
const LATE: &str = "queueable_heartbeats_late_total";
const UPKEEP: &str = "queueable_upkeep_rows_total";
const DROPPED: &str = "queueable_events_dropped_total";

/// Records what a poller has measured.
pub(crate) fn record_for_metrics(measure: &Measure<'_>) {
    match measure {
        Measure::Event(event) => count(event),
        Measure::LateHeartbeats(entity, queue, leases) => {
            counter!(LATE, labels(entity, queue, &[])).increment(*leases);
        }
        Measure::ReplacedConnection => counter!(REPLACED).increment(1),
        Measure::DroppedEvents(events) => counter!(DROPPED).increment(*events),
        Measure::Upkeep { entity, queue, status, outcome, rows } => {
            let labels = labels(entity, queue, &[("status", status), ("outcome", outcome)]);
            counter!(UPKEEP, labels).increment(*rows as u64);
        }
        Measure::Gauge(Gauge { name, labels, value }) => {
            let labels: Vec<_> = labels.iter().map(|(name, value)| Label::new(*name, value.clone())).collect();
            gauge!(*name, labels).set(*value);
        }
        Measure::Description(gauges) => gauges.iter().for_each(|(name, text)| describe_gauge!(*name, *text)),
    }
}

/// Counts an event. With the first one, which says that the poller starts, the recorder hears what the metrics mean.
fn count(event: &Event) {
    match event {
        Event::Begun(AttemptEvent { entity, queue, waited: Some(waited), .. }) => {
            histogram!(WAIT, labels(entity, queue, &[])).record(waited.as_secs_f64());
        }
        Event::TimedOut(AttemptEvent { entity, queue, .. }) => {
            counter!(PAST_TIMEOUT, labels(entity, queue, &[])).increment(1);
        }
        Event::WorkerStuck { attempt: AttemptEvent { entity, queue, .. }, .. } => {
            counter!(STUCK, labels(entity, queue, &[])).increment(1);
        }
        Event::ConnectionLost { .. } => counter!(LOST).increment(1),
        Event::QueueStalled { entity, queue, .. } => counter!(STALLED, labels(entity, queue, &[])).increment(1),
        Event::PollerStarted { entities, queues, .. } => {
            describe();
            begin_at_zero(entities.iter().zip(queues));
        }
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
    describe_counter!(REPLACED, Unit::Count, "Connections that a thread of a poller has opened in place of another");
    describe_counter!(LATE, Unit::Count, "Leases that were extended after a quarter of their length or more");
    describe_counter!(UPKEEP, Unit::Count, "Rows that the upkeep has removed, or has had to leave");
    describe_counter!(DROPPED, Unit::Count, "Events that were dropped because the listeners were too slow");
}

/// Returns the labels of an entity's metric. Structs of two modules may have the same name, so the queue's tells them apart.
fn labels(entity: &'static str, queue: &str, more: &[(&'static str, &'static str)]) -> Vec<Label> {
    let more = more.iter().map(|(name, value)| Label::from_static_parts(name, value));
    [Label::from_static_parts("entity", entity), Label::new("queue", queue.to_owned())]
        .into_iter()
        .chain(more)
        .collect()
}

/// Shows the counters of the entities before they have counted anything: a rule about an increase does not see a counter that begins
/// at 1.
fn begin_at_zero<'a>(entities: impl Iterator<Item = (&'a &'static str, &'a String)>) {
    for (entity, queue) in entities {
        for outcome in OUTCOMES {
            counter!(ATTEMPTS, labels(entity, queue, &[("outcome", outcome)])).increment(0);
        }
        for name in [PAST_TIMEOUT, STUCK, STALLED, LATE] {
            counter!(name, labels(entity, queue, &[])).increment(0);
        }
    }
    for name in [LOST, REPLACED, DROPPED] {
        counter!(name).increment(0);
    }
}

fn ended(attempt: &AttemptEvent, outcome: &'static str) {
    let labels = labels(attempt.entity, &attempt.queue, &[("outcome", outcome)]);
    if let Some(duration) = attempt.duration {
        histogram!(DURATION, labels.clone()).record(duration.as_secs_f64());
    }
    counter!(ATTEMPTS, labels).increment(1);
}
