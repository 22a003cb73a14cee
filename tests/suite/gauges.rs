//! The gauges of a poller, as Prometheus scrapes them.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use prometheus_parse::{Scrape, Value};
use queueable::{Error, HandlerResult, Lease, Message, Migrations, Outcome, Pause, Poller, Queueable, Window};

use crate::db::Conn;
use crate::suite::bank::{Bank, NewPayment, Payment, payments};
use crate::suite::metrics::{Twin, address, other, twins};

macro_rules! payments {
    ($($name:ident($($key:tt)*);)*) => {$(
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        #[queue(retry = fixed("1h"), $($key)*)]
        #[allow(dead_code, reason = "no row of it runs")]
        struct $name {
            id: i64,
        }
    )*};
}

payments! {
    Gauged(report_index);
    GaugedCall(lease = "60s");
    GaugedElsewhere(max_tries = 4);
    GaugedBeside(prefix = "other_", module = gauged_beside_queue);
    GaugedInTrouble(max_tries = 6);
    GaugedManyValues(max_tries = 7);
}

/// Long enough for a reading on a machine that is busy with everything else. After one of three seconds the next comes in a minute.
const PATIENCE: Duration = Duration::from_secs(1200);

fn fail<Q>(_: &Q, _: &mut Message<'_, Conn>) -> HandlerResult {
    panic!("no window is open")
}

/// A window that is closed now, so that due rows stay due.
fn closed() -> Window {
    let (from, to) = (Utc::now() + TimeDelta::hours(2), Utc::now() - TimeDelta::hours(2));
    format!("{}-{} UTC", from.format("%H:%M"), to.format("%H:%M")).parse().unwrap()
}

fn scraped() -> String {
    ureq::get(address()).call().unwrap().body_mut().read_to_string().unwrap()
}

/// Returns the value of a gauge with exactly these labels, and that of the queue if it is not among them, if it was ever set.
fn gauge(name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let scrape = Scrape::parse(scraped().lines().map(|line| Ok(line.to_owned()))).unwrap();
    let has_labels = |sample: &&prometheus_parse::Sample| {
        sample.metric == name
            && sample.labels.len() == labels.len() + usize::from(labels.iter().all(|(label, _)| *label != "queue"))
            && labels.iter().all(|(label, value)| sample.labels.get(label) == Some(*value))
    };
    scrape.samples.iter().find(has_labels).map(|sample| match sample.value {
        Value::Gauge(value) => value,
        ref other => panic!("{name} is no gauge: {other:?}"),
    })
}

/// The gauges for which the dashboard and the alerts ask.
fn asked_for() -> BTreeSet<String> {
    let files = [
        include_str!("../../docs/monitoring/grafana-dashboard.json"),
        include_str!("../../docs/monitoring/alerts.yml"),
    ];
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = files.iter().flat_map(|text| text.split(|c| !is_part(c)));
    let is_gauge =
        |word: &&str| word.starts_with("queueable_") && !word.ends_with("_total") && !word.ends_with("_bucket");
    words.filter(is_gauge).map(str::to_owned).collect()
}

/// Waits until a gauge is as expected.
pub(crate) fn until(name: &str, labels: &[(&str, &str)], is_so: impl Fn(f64) -> bool) {
    await_so(|| match gauge(name, labels) {
        Some(value) if is_so(value) => Ok(()),
        value => Err(format!("{name} {labels:?} is {value:?}")),
    });
}

/// Asks again and again until it is so.
fn await_so(ask: impl Fn() -> Result<(), String>) {
    let (begun, (_nobody, pace)) = (Instant::now(), mpsc::channel::<()>());
    while let Err(why) = ask() {
        assert!(begun.elapsed() < PATIENCE, "{why}");
        let _ = pace.recv_timeout(Duration::from_millis(20));
    }
}

fn rows(entity: &str, state: &str) -> Option<f64> {
    gauge("queueable_rows", &[("entity", entity), ("state", state)])
}

fn until_rows(entity: &str, state: &str, expected: f64) {
    let is_so = |value: f64| value == expected || (value.is_nan() && expected.is_nan());
    until("queueable_rows", &[("entity", entity), ("state", state)], is_so);
}

/// Three due rows, two of company 1 and one of company 2; two that are scheduled; one that has failed, of company 3345.
fn with_rows_in_each_state() -> Bank {
    let bank = Bank::new();
    let connection = &mut bank.connect();
    connection.run_pending_migrations(Migrations::new().entity::<Gauged>()).unwrap();
    bank.enqueue([100, 200]);
    diesel::insert_into(payments::table)
        .values((NewPayment { company_id: 2, amount_cents: -7 }, Payment::due_now()))
        .execute(connection)
        .unwrap();
    diesel::update(payments::table).set(Payment::due_at(Utc::now() - TimeDelta::hours(1))).execute(connection).unwrap();
    for _ in 0..2 {
        diesel::insert_into(payments::table)
            .values((NewPayment { company_id: 1, amount_cents: 1000 }, Payment::due_in(Duration::from_secs(3600))))
            .execute(connection)
            .unwrap();
    }
    connection
        .batch_execute(
            "INSERT INTO payments (company_id, amount_cents, status, try_count) VALUES (3345, 5000, 'FAILED', 3)",
        )
        .unwrap();
    bank
}

#[test]
fn the_rows_in_each_state_are_scraped_with_the_oldest_and_the_sums() {
    address();
    let bank = with_rows_in_each_state();
    let handle = Gauged::poller(bank.pool(2), fail::<Gauged>)
        .workers(1)
        .window(closed())
        .gauges(Duration::from_secs(1))
        .gauges_by::<Gauged, _>(payments::company_id, 10)
        .gauges_sum::<Gauged, _>(payments::amount_cents)
        .start()
        .unwrap();
    // The last gauge of a reading.
    until("queueable_pauses", &[("entity", "Gauged")], |pauses| pauses == 0.0);
    for (state, expected) in [("due", 3.0), ("scheduled", 2.0), ("held_back", 0.0), ("failed", 1.0)] {
        assert_eq!(rows("Gauged", state), Some(expected), "{state}");
    }
    assert_eq!(rows("Gauged", "running"), None, "outside leases nobody can count them");
    let oldest = gauge("queueable_oldest_due_seconds", &[("entity", "Gauged")]).unwrap();
    assert!((3600.0..7200.0).contains(&oldest), "{oldest}");
    let by_value = |name: &str, state: &str, value: &str, more: &[(&str, &str)]| {
        let labels = [("entity", "Gauged"), ("state", state), ("by", "company_id"), ("value", value)];
        gauge(name, &[&labels[..], more].concat())
    };
    let rows_of = |state: &str, value: &str| by_value("queueable_rows_by_value", state, value, &[]);
    assert_eq!(
        [rows_of("due", "1"), rows_of("due", "2"), rows_of("scheduled", "1")],
        [Some(2.0), Some(1.0), Some(2.0)]
    );
    assert_eq!([rows_of("failed", "3345"), rows_of("failed", "1")], [Some(1.0), None]);
    let sum = |state: &str| gauge("queueable_sum", &[("entity", "Gauged"), ("state", state), ("of", "amount_cents")]);
    assert_eq!([sum("due"), sum("failed")], [Some(293.0), Some(5000.0)]);
    let sum_of = |value: &str| by_value("queueable_sum_by_value", "due", value, &[("of", "amount_cents")]);
    assert_eq!([sum_of("1"), sum_of("2")], [Some(300.0), Some(-7.0)]);
    let text = ureq::get(address()).call().unwrap().body_mut().read_to_string().unwrap();
    let of_leases = "queueable_rows_claimed_ahead";
    let missing: Vec<_> = asked_for().into_iter().filter(|name| name != of_leases && !text.contains(name)).collect();
    assert!(missing.is_empty() && asked_for().len() >= 6, "{missing:?}");
    // A value without rows is zero, and is not forgotten at its last number.
    diesel::delete(payments::table.filter(payments::company_id.eq(2))).execute(&mut bank.connect()).unwrap();
    let labels = [("entity", "Gauged"), ("state", "due"), ("by", "company_id"), ("value", "2")];
    until("queueable_rows_by_value", &labels, |rows| rows == 0.0);
    until("queueable_workers", &[("poller", "Gauged"), ("state", "idle")], |workers| workers == 1.0);
    handle.shutdown(Duration::from_secs(60));
    // A process that reports no more claims nothing.
    assert!(rows("Gauged", "due").unwrap().is_nan());
}

#[test]
fn running_rows_have_a_gauge_under_a_lease_and_failed_rows_that_no_index_finds_have_none() {
    address();
    let bank = with_rows_in_each_state();
    let (call, apply) = (
        |_: &GaugedCall, _: &Lease| panic!("no window is open"),
        |_: &GaugedCall, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    );
    diesel::update(payments::table.filter(payments::amount_cents.eq(100)))
        .set(GaugedCall::due_in(Duration::from_secs(600)))
        .execute(&mut bank.connect())
        .unwrap();
    bank.connect()
        .batch_execute("UPDATE payments SET status = 'IN_PROGRESS', try_count = 1 WHERE amount_cents = 100")
        .unwrap();
    let reporting = |poller: Poller<Conn>| poller.workers(1).window(closed()).gauges(Duration::from_secs(1));
    let handle = reporting(GaugedCall::poller(bank.pool(2), (call, apply))).start().unwrap();
    until("queueable_pauses", &[("entity", "GaugedCall")], |pauses| pauses == 0.0);
    let of_calls = ["due", "scheduled", "running"].map(|state| rows("GaugedCall", state));
    assert_eq!(of_calls, [Some(2.0), Some(2.0), Some(1.0)]);
    assert_eq!(rows("GaugedCall", "failed"), None);
    until("queueable_rows_claimed_ahead", &[("entity", "GaugedCall")], |rows| rows == 0.0);
    handle.shutdown(Duration::from_secs(60));
}

#[test]
fn one_poller_at_a_time_reports_a_queue_and_another_takes_over() {
    address();
    let bank = with_rows_in_each_state();
    let reporting = |poller: Poller<Conn>| poller.workers(1).window(closed()).gauges(Duration::from_secs(1));
    let first = reporting(GaugedElsewhere::poller(bank.pool(2), fail::<GaugedElsewhere>)).start().unwrap();
    until_rows("GaugedElsewhere", "due", 3.0);
    bank.connect().run_pending_migrations(Migrations::new().entity::<GaugedBeside>()).unwrap();
    diesel::update(payments::table).set(GaugedBeside::due_now()).execute(&mut bank.connect()).unwrap();
    let second = reporting(GaugedElsewhere::poller(bank.pool(3), fail::<GaugedElsewhere>))
        .serve::<GaugedBeside>(fail::<GaugedBeside>)
        .gauges_by::<GaugedElsewhere, _>(payments::company_id, 5)
        .start()
        .unwrap();
    // The second poller has asked for the lock of the other queue before this one's.
    until_rows("GaugedBeside", "due", 6.0);
    let of_second = [("entity", "GaugedElsewhere"), ("state", "due"), ("by", "company_id"), ("value", "1")];
    assert_eq!(gauge("queueable_rows_by_value", &of_second), None);
    first.shutdown(Duration::from_secs(60));
    until("queueable_rows_by_value", &of_second, |rows| rows == 2.0);
    second.shutdown(Duration::from_secs(60));
}

#[test]
fn entities_of_the_same_name_have_gauges_each_with_its_queue() {
    address();
    let bank = twins();
    let handle = Twin::poller(bank.pool(2), fail::<Twin>)
        .serve::<other::Twin>(fail::<other::Twin>)
        .workers(1)
        .window(closed())
        .gauges(Duration::from_secs(1))
        .start()
        .unwrap();
    let of = |queue| [("entity", "Twin"), ("queue", queue)];
    // The last gauge of the last queue.
    until("queueable_pauses", &of("refunds.status"), |pauses| pauses == 0.0);
    let due = |queue| gauge("queueable_rows", &[&of(queue)[..], &[("state", "due")]].concat());
    assert_eq!(["payments.status", "refunds.status"].map(due), [Some(2.0), Some(1.0)]);
    // The parser takes no comma in a label's value.
    let idle = r#"queueable_workers{poller="Twin,Twin",queue="payments.status,refunds.status",state="idle"} 1"#;
    await_so(|| if scraped().contains(idle) { Ok(()) } else { Err(scraped()) });
    handle.shutdown(Duration::from_secs(60));
}

#[test]
fn gauges_that_cannot_be_read_are_not_numbers_until_they_can() {
    address();
    let bank = with_rows_in_each_state();
    let poller = GaugedInTrouble::poller(bank.pool(2), fail::<GaugedInTrouble>);
    let handle = poller.workers(1).window(closed()).gauges(Duration::from_secs(1)).start().unwrap();
    until_rows("GaugedInTrouble", "due", 3.0);
    bank.connect().batch_execute("ALTER TABLE payments RENAME TO elsewhere").unwrap();
    until_rows("GaugedInTrouble", "due", f64::NAN);
    bank.connect().batch_execute("ALTER TABLE elsewhere RENAME TO payments").unwrap();
    until_rows("GaugedInTrouble", "due", 3.0);
    handle.shutdown(Duration::from_secs(60));
}

#[test]
fn a_pause_is_scraped_and_of_too_many_values_those_with_most_rows() {
    address();
    let bank = with_rows_in_each_state();
    bank.connect().run_pending_migrations(Migrations::new().control()).unwrap();
    GaugedManyValues::pause(&mut bank.connect(), Pause::new("bank down", "ops")).unwrap();
    // A pause of one value is none of the queue's: an alert for the queue still rings.
    bank.connect()
        .batch_execute(
            "INSERT INTO queueable_control (queue, scope, paused_at, paused_by, pause_reason) \
             VALUES ('payments.status', 'value company_id 3345', '2026-01-01 00:00:00', 'ops', 'bankrupt')",
        )
        .unwrap();
    let handle = GaugedManyValues::poller(bank.pool(2), fail::<GaugedManyValues>)
        .workers(1)
        .control()
        .gauges(Duration::from_secs(1))
        .gauges_by::<GaugedManyValues, _>(payments::company_id, 1)
        .start()
        .unwrap();
    until("queueable_pauses", &[("entity", "GaugedManyValues")], |pauses| pauses == 1.0);
    let of = |value| [("entity", "GaugedManyValues"), ("state", "due"), ("by", "company_id"), ("value", value)];
    assert_eq!(gauge("queueable_rows_by_value", &of("1")), Some(2.0));
    assert_eq!(gauge("queueable_rows_by_value", &of("2")), None);
    let connection = &mut bank.connect();
    let of_another = payments::table.filter(payments::amount_cents.ge(200));
    diesel::update(of_another).set(payments::company_id.eq(2)).execute(connection).unwrap();
    until("queueable_rows_by_value", &of("2"), |rows| rows == 2.0);
    // There may be rows of it. The same reading says so a little later.
    until("queueable_rows_by_value", &of("1"), f64::is_nan);
    handle.shutdown(Duration::from_secs(60));
}

#[test]
fn settings_of_gauges_that_make_no_sense_are_refused() {
    let bank = Bank::new();
    let refused = |configure: &dyn Fn(Poller<Conn>) -> Poller<Conn>| {
        let poller = Gauged::poller(bank.pool(2), fail::<Gauged>).workers(1);
        match configure(poller).start() {
            Err(Error::Setting { setting, found, .. }) => format!("{setting}: {found}"),
            other => panic!("{other:?}"),
        }
    };
    let every = Duration::from_secs(15);
    assert_eq!(refused(&|poller| poller.gauges(Duration::from_millis(999))), "gauges: 999ms");
    assert_eq!(refused(&|poller| poller.gauges(Duration::from_secs(3601))), "gauges: 3601s");
    let by = |poller: Poller<Conn>, most| poller.gauges_by::<Gauged, _>(payments::company_id, most);
    assert_eq!(refused(&|poller| by(poller.gauges(every), 0)), "the values of `gauges_by`: 0");
    assert_eq!(refused(&|poller| by(poller.gauges(every), 1001)), "the values of `gauges_by`: 1001");
    assert_eq!(refused(&|poller| by(poller, 10)), "gauges: never");
    let of_another = |poller: Poller<Conn>| poller.gauges_sum::<Payment, _>(payments::amount_cents);
    assert_eq!(refused(&|poller| of_another(poller.gauges(every))), "the gauges of one entity: those of Payment");
    let twice = |poller: Poller<Conn>| by(by(poller.gauges(every), 5), 7);
    assert_eq!(refused(&twice), "`gauges_by`: two columns for Gauged");
    let poller = Gauged::poller(bank.database.pool(2), fail::<Gauged>).workers(1).gauges(every);
    let error = poller.start().unwrap_err().to_string();
    assert!(error.contains("and so do its reports"), "{error}");
}
