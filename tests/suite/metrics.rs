//! What a recorder of the facade `metrics` counts, as Prometheus scrapes it.

use std::collections::HashMap;
use std::sync::{OnceLock, mpsc};
use std::thread;

use chrono::{TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use prometheus_parse::{Sample, Scrape, Value};
use queueable::{Event, Failure, HandlerResult, Lease, Message, Migrations, Outcome, Poller, Queueable};

use crate::db::{AUTO_KEY, Conn, NAME};
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::group::entity;

entity!(MeteredAlone, metered_alone_queue,);
entity!(MeteredGroup, metered_group_queue, group = 20);
entity!(Unmetered, unmetered_queue,);

/// An entity whose name another one has too.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = first_twin_queue, retry = fixed("1h"), timeout = "30s")]
#[allow(dead_code, reason = "rows are only counted")]
pub(crate) struct Twin {
    id: i64,
}

pub(crate) mod other {
    use diesel::prelude::*;
    use queueable::Queueable;

    diesel::table! {
        refunds (id) {
            id -> BigInt,
        }
    }

    /// The other entity of this name.
    #[derive(Debug, Queryable, Selectable, Queueable)]
    #[diesel(table_name = refunds)]
    #[queue(retry = fixed("1h"), timeout = "30s")]
    #[allow(dead_code, reason = "rows are only counted")]
    pub(crate) struct Twin {
        id: i64,
    }
}

/// Two due rows of one entity, and one of another with the same name.
pub(crate) fn twins() -> Bank {
    let bank = Bank::new();
    bank.enqueue(1..=2);
    let connection = &mut bank.connect();
    connection.batch_execute(&format!("CREATE TABLE refunds (id {AUTO_KEY} NOT NULL)")).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<other::Twin>().minutes()).unwrap();
    diesel::insert_into(other::refunds::table).values(other::Twin::due_now()).execute(connection).unwrap();
    bank
}

/// The bank's payments, each charged by a call to the outside world.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = metered_call_queue, lease = "60s", retry = fixed("1h"))]
struct MeteredCall {
    id: i64,
    amount_cents: i64,
}

/// The address at which this process's metrics can be scraped. A process has one recorder.
pub(crate) fn address() -> &'static str {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    ADDRESS.get_or_init(|| {
        let waits = Matcher::Full("queueable_attempt_wait_seconds".to_owned());
        let builder = PrometheusBuilder::new().set_buckets_for_metric(waits, &[60.0, 3600.0, 7200.0]).unwrap();
        let recorder = builder.install_recorder().unwrap();
        let server = tiny_http::Server::http("127.0.0.1:0").unwrap();
        let address = format!("http://{}/metrics", server.server_addr());
        thread::spawn(move || serve(&server, &recorder));
        address
    })
}

fn serve(server: &tiny_http::Server, recorder: &PrometheusHandle) {
    for request in server.incoming_requests() {
        request.respond(tiny_http::Response::from_string(recorder.render())).unwrap();
    }
}

/// Scrapes the metrics of an entity, by their names and outcomes.
fn scrape(entity: &str) -> HashMap<(String, String), Value> {
    scrape_of(entity, "payments.status")
}

fn scrape_of(entity: &str, queue: &str) -> HashMap<(String, String), Value> {
    let text = ureq::get(address()).call().unwrap().body_mut().read_to_string().unwrap();
    let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap();
    let labels = [Some(entity), Some(queue)];
    let is_of = |sample: &Sample| [sample.labels.get("entity"), sample.labels.get("queue")] == labels;
    scrape
        .samples
        .into_iter()
        .filter(is_of)
        .map(|sample| ((sample.metric, sample.labels.get("outcome").unwrap_or_default().to_owned()), sample.value))
        .collect()
}

/// What the handlers of these tests answer, by the payment's amount.
fn answer(amount: i64) -> HandlerResult {
    match amount {
        1 | 2 => Ok(Outcome::Done),
        3 => Ok(Outcome::Skip),
        4 => Err(Failure::retry("later")),
        _ => Err(Failure::fatal("never")),
    }
}

/// Runs messages with each answer, and checks what is scraped.
fn expect_to_be_counted(entity: &str, serve: impl FnOnce(Poller<Conn>) -> Poller<Conn>) {
    address();
    let bank = Bank::new();
    bank.enqueue(1..=5);
    let half_an_hour_ago = Utc::now() - TimeDelta::minutes(30);
    diesel::update(payments::table).set(Payment::due_at(half_an_hour_ago)).execute(&mut bank.connect()).unwrap();
    serve(Poller::new(bank.pool(1))).workers(1).metrics().run_until_idle().unwrap();
    let scraped = scrape(entity);
    let of = |metric: &str, outcome: &str| scraped.get(&(metric.to_owned(), outcome.to_owned()));
    for (outcome, attempts) in [("succeeded", 2.0), ("skipped", 1.0), ("will_retry", 1.0), ("gave_up", 1.0)] {
        assert_eq!(of("queueable_attempts_total", outcome), Some(&Value::Counter(attempts)), "{scraped:#?}");
        let durations = of("queueable_attempt_duration_seconds_count", outcome);
        assert_eq!(durations, Some(&Value::Untyped(attempts)), "{scraped:#?}");
    }
    let waits = of("queueable_attempt_wait_seconds", "");
    if (NAME, entity) == ("sqlite", "MeteredCall") {
        // SQLite's claim under a lease never reads the due time.
        return assert_eq!(waits, None);
    }
    let Some(Value::Histogram(buckets)) = waits else { panic!("{scraped:#?}") };
    let counts: Vec<_> = buckets.iter().map(|bucket| (bucket.less_than, bucket.count)).collect();
    let begun = counts.last().unwrap().1;
    // A group that is undone begins its messages again, one by one.
    assert!(begun >= 5.0, "{scraped:#?}");
    assert_eq!(counts[..3], [(60.0, 0.0), (3600.0, begun), (7200.0, begun)], "{scraped:#?}");
}

#[test]
fn each_outcome_is_counted_with_its_duration_and_the_wait_before_it() {
    expect_to_be_counted("MeteredAlone", |poller| {
        poller.serve::<MeteredAlone>(|row: &MeteredAlone, _: &mut Message<'_, Conn>| answer(row.payment().amount_cents))
    });
}

#[test]
fn each_outcome_in_a_group_is_counted_with_its_duration_and_the_wait_before_it() {
    expect_to_be_counted("MeteredGroup", |poller| {
        poller.serve::<MeteredGroup>(|row: &MeteredGroup, _: &mut Message<'_, Conn>| answer(row.payment().amount_cents))
    });
}

#[test]
fn each_outcome_under_a_lease_is_counted_with_its_duration_and_the_wait_before_it() {
    expect_to_be_counted("MeteredCall", |poller| {
        let apply = |row: &MeteredCall, _: &(), _: &mut Message<'_, Conn>| answer(row.amount_cents);
        let call = |row: &MeteredCall, _: &Lease| {
            assert!(row.id > 0);
            Ok(())
        };
        poller.serve::<MeteredCall>((call, apply))
    });
}

#[test]
fn a_poller_that_is_not_asked_for_metrics_counts_nothing() {
    address();
    let bank = Bank::new();
    bank.enqueue([1]);
    let handler = |row: &Unmetered, _: &mut Message<'_, Conn>| answer(row.payment().amount_cents);
    let tally = Unmetered::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 1);
    assert!(scrape("Unmetered").is_empty());
}

#[test]
fn entities_of_the_same_name_are_counted_each_with_its_queue() {
    address();
    let bank = twins();
    let (sender, events) = mpsc::channel();
    let poller = Twin::poller(bank.pool(1), |_: &Twin, _: &mut Message<'_, Conn>| Ok(Outcome::Done))
        .serve::<other::Twin>(|_: &other::Twin, _: &mut Message<'_, Conn>| Err(Failure::fatal("never")));
    let poller = poller.workers(1).metrics().on_event(move |event: &Event| sender.send(event.clone()).unwrap());
    poller.run_until_idle().unwrap();
    let queues = ["payments.status", "refunds.status"];
    let [of_one, of_other] = queues.map(|queue| {
        let scraped = scrape_of("Twin", queue);
        let attempts = |outcome: &str| scraped[&("queueable_attempts_total".to_owned(), outcome.to_owned())].clone();
        let others = ["queueable_handlers_past_timeout_total", "queueable_heartbeats_late_total"];
        assert!(others.iter().all(|name| scraped.contains_key(&((*name).to_owned(), String::new()))), "{scraped:#?}");
        [attempts("succeeded"), attempts("gave_up")]
    });
    assert_eq!(of_one, [Value::Counter(2.0), Value::Counter(0.0)]);
    assert_eq!(of_other, [Value::Counter(0.0), Value::Counter(1.0)]);
    let events: Vec<_> = events.iter().collect();
    assert!(matches!(&events[0], Event::PollerStarted { queues: found, .. } if found[..] == queues), "{:?}", events[0]);
    let gave_up = events.iter().find(|event| matches!(event, Event::GaveUp(_))).unwrap();
    assert_eq!(&*gave_up.attempt().unwrap().queue, "refunds.status");
    assert!(serde_json::to_string(gave_up).unwrap().contains(r#""entity":"Twin","queue":"refunds.status","key":"1""#));
}
