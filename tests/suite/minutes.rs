//! What pollers have done, minute by minute, in a table of the library's own.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queue_core::internals::backend::{SessionLimits, SessionSetup};
use queue_core::internals::{Minutes, merge_minutes};
use queueable::report::{AttemptCounts, Counted, Interval, PeriodCounts, Statistics};
use queueable::{Error, Event, Failure, Message, Migrations, Outcome, Queueable};

use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::group::entity;
use crate::suite::metrics::{Twin, other, twins};
use crate::suite::reports::odd_times;
use crate::suite::stages::{Invoice, InvoiceStage, one_invoice};

entity!(GroupByMinute, group_by_minute_queue, group = 20);

diesel::table! {
    queueable_minutes (queue, part) {
        queue -> Text,
        stage -> Text,
        part -> BigInt,
        seconds -> Integer,
        succeeded -> BigInt,
        gave_up -> BigInt,
        advanced -> BigInt,
    }
}

/// Long enough for what takes ten seconds on a machine that is busy with everything else.
const PATIENCE: Duration = Duration::from_secs(1200);

fn bank() -> Bank {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().minutes()).unwrap();
    bank
}

/// What the handlers of these tests answer, by the payment's amount.
fn answer(amount: i64) -> queueable::HandlerResult {
    match amount {
        1 | 2 => Ok(Outcome::Done),
        3 => Ok(Outcome::Skip),
        4 => Err(Failure::retry("later")),
        _ => Err(Failure::fatal("never")),
    }
}

fn charge(payment: &Payment, _: &mut Message<'_, Conn>) -> queueable::HandlerResult {
    answer(payment.amount_cents)
}

fn statistics(bank: &Bank, interval: Interval) -> Statistics {
    Payment::queue().statistics(&mut bank.connect(), interval).unwrap()
}

/// Adds up what the periods have: rows that succeeded and that failed, those skipped, and those that will be retried.
fn sums(statistics: &Statistics) -> [i64; 4] {
    assert_eq!(statistics.counted, Counted::Attempts);
    let of = |period: &PeriodCounts| {
        let AttemptCounts { skipped, will_retry, .. } = period.attempts.as_ref().unwrap();
        [period.succeeded, period.failed, *skipped, *will_retry]
    };
    statistics.periods.iter().map(of).fold([0; 4], |sums, of| std::array::from_fn(|i| sums[i] + of[i]))
}

/// The events of one run: two successes, one row skipped, one that will be retried and one that has failed.
fn events() -> Vec<Event> {
    let bank = Bank::new();
    bank.enqueue(1..=5);
    let (sender, events) = mpsc::channel();
    let poller = Payment::poller(bank.pool(1), charge).workers(1);
    poller.on_event(move |event: &Event| sender.send(event.clone()).unwrap()).run_until_idle().unwrap();
    events.iter().collect()
}

fn time(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// The rows of the table: the length of the period, and how many attempts have succeeded.
fn rows(connection: &mut Conn) -> Vec<(i32, i64)> {
    let rows = queueable_minutes::table.select((queueable_minutes::seconds, queueable_minutes::succeeded));
    rows.order((queueable_minutes::seconds, queueable_minutes::succeeded)).load(connection).unwrap()
}

#[test]
fn statistics_count_every_attempt_with_its_outcome_wait_and_duration() {
    let bank = bank();
    bank.enqueue(1..=5);
    let half_an_hour_ago = Utc::now() - TimeDelta::minutes(30);
    diesel::update(payments::table).set(Payment::due_at(half_an_hour_ago)).execute(&mut bank.connect()).unwrap();
    Payment::poller(bank.pool(2), charge).workers(1).minutes().run_until_idle().unwrap();
    for interval in [Interval::Minute, Interval::Hour, Interval::Day] {
        let statistics = statistics(&bank, interval);
        assert_eq!(sums(&statistics), [2, 1, 1, 1], "{statistics:?}");
        for period in &statistics.periods {
            let wait = period.attempts.as_ref().unwrap().p50_wait.unwrap();
            assert!((Duration::from_secs(300)..=Duration::from_secs(3600)).contains(&wait), "{wait:?}");
            assert!(period.p95 >= period.p50 && period.p50.is_some() && period.mean.is_some(), "{period:?}");
        }
        let text = statistics.to_string();
        assert!(text.contains("succeeded") && !text.contains("newest"), "{text}");
    }
    let within =
        |time| Payment::queue().attempted_within(time).statistics(&mut bank.connect(), Interval::Hour).unwrap();
    assert_eq!(sums(&within(Duration::from_secs(24 * 3600))), [2, 1, 1, 1]);
    // A filter picks rows, and of those nobody counts the attempts.
    let filtered = Payment::queue().filter(payments::company_id.eq(1));
    let filtered = filtered.statistics(&mut bank.connect(), Interval::Day).unwrap();
    let sum = |of: fn(&PeriodCounts) -> i64| filtered.periods.iter().map(of).sum::<i64>();
    assert_eq!((filtered.counted, sum(|period| period.succeeded), sum(|period| period.failed)), (Counted::Rows, 2, 1));
}

#[test]
fn attempts_in_groups_and_in_stages_are_counted() {
    let bank = bank();
    bank.enqueue(1..=5);
    let handler = |row: &GroupByMinute, _: &mut Message<'_, Conn>| answer(row.payment().amount_cents);
    GroupByMinute::poller(bank.pool(2), handler).workers(1).minutes().run_until_idle().unwrap();
    let statistics = GroupByMinute::queue().statistics(&mut bank.connect(), Interval::Day).unwrap();
    assert_eq!(sums(&statistics), [2, 1, 1, 1]);
    let database = one_invoice();
    let connection = &mut database.connect();
    connection.run_pending_migrations(Migrations::new().minutes()).unwrap();
    let done = |_: &Invoice, message: &mut Message<'_, Conn>| {
        Ok(match message.stage() {
            InvoiceStage::Render => Outcome::next(InvoiceStage::Send),
            InvoiceStage::Send => Outcome::next(InvoiceStage::Book),
            InvoiceStage::Book => Outcome::Done,
        })
    };
    Invoice::poller(database.pool(4), done).workers(1).minutes().run_until_idle().unwrap();
    let columns = (queueable_minutes::stage, queueable_minutes::advanced, queueable_minutes::succeeded);
    let by_stage: Vec<(String, i64, i64)> = queueable_minutes::table.select(columns).load(connection).unwrap();
    let of = |stage: InvoiceStage| {
        let rows = by_stage.iter().filter(|(name, ..)| name == queueable::Stage::name(stage));
        rows.fold((0, 0), |(advanced, succeeded), row| (advanced + row.1, succeeded + row.2))
    };
    let (render, send, book) = (of(InvoiceStage::Render), of(InvoiceStage::Send), of(InvoiceStage::Book));
    assert_eq!([render, send, book], [(1, 0), (1, 0), (0, 1)], "{by_stage:?}");
}

#[test]
fn entities_of_the_same_name_are_counted_apart() {
    let bank = twins();
    let poller = Twin::poller(bank.pool(2), |_: &Twin, _: &mut Message<'_, Conn>| Ok(Outcome::Done))
        .serve::<other::Twin>(|_: &other::Twin, _: &mut Message<'_, Conn>| Err(Failure::fatal("never")));
    poller.workers(1).minutes().run_until_idle().unwrap();
    let connection = &mut bank.connect();
    let counted = [
        Twin::queue().statistics(connection, Interval::Day),
        other::Twin::queue().statistics(connection, Interval::Day),
    ];
    assert_eq!(counted.map(|statistics| sums(&statistics.unwrap())), [[2, 0, 0, 0], [0, 1, 0, 0]]);
}

#[test]
fn a_minute_that_is_written_again_after_it_was_merged_is_not_counted_twice() {
    let (bank, events) = (bank(), events());
    let connection = &mut bank.connect();
    let (noon, next_day) = (time("2026-03-01T12:00:30Z"), time("2026-03-02T15:00:00Z"));
    let merge = |connection: &mut Conn| {
        merge_minutes(connection, "payments.status", next_day, (|| true, || ())).unwrap();
    };
    let count = |minutes: &Minutes| events.iter().for_each(|event| minutes.count(event));
    // Without this column an update finds no row, and an insert fails.
    let rename = |connection: &mut Conn, from, to| {
        connection.batch_execute(&format!("ALTER TABLE queueable_minutes RENAME COLUMN {from} TO {to}")).unwrap();
    };
    let begin_in_doubt = |connection: &mut Conn, now| {
        let minutes = Minutes::default();
        count(&minutes);
        rename(connection, "seconds", "elsewhere");
        minutes.write(connection, now, || ()).unwrap_err();
        rename(connection, "elsewhere", "seconds");
        minutes
    };
    // The insert arrives, and its answer does not.
    let arrived = begin_in_doubt(connection, noon);
    let unanswered = arrived.as_known();
    arrived.write(connection, noon, || ()).unwrap();
    // Another one never arrives.
    let lost = begin_in_doubt(connection, noon + TimeDelta::hours(1));
    merge(connection);
    assert_eq!(rows(connection), [(3600, 2)]);
    unanswered.write(connection, next_day, || ()).unwrap();
    assert_eq!(rows(connection), [(3600, 2)], "the minute was among those that were merged");
    lost.write(connection, next_day, || ()).unwrap();
    assert_eq!(rows(connection), [(60, 2), (3600, 2)], "no minute of this hour was merged");
    // What comes in the same minute after the doubtful numbers is counted.
    let earlier = noon - TimeDelta::hours(2);
    let arrived = begin_in_doubt(connection, earlier);
    let unanswered = arrived.as_known();
    arrived.write(connection, earlier, || ()).unwrap();
    merge(connection);
    count(&unanswered);
    unanswered.write(connection, earlier, || ()).unwrap();
    unanswered.write(connection, earlier, || ()).unwrap();
    assert_eq!(sums(&statistics(&bank, Interval::Day)), [8, 4, 4, 4]);
}

#[test]
fn nothing_is_counted_twice_when_a_write_is_repeated_or_the_clock_jumps() {
    let (bank, events) = (bank(), events());
    let connection = &mut bank.connect();
    let minutes = Minutes::default();
    let count = |minutes: &Minutes| events.iter().for_each(|event| minutes.count(event));
    minutes.write(connection, time("2026-03-01T12:00:00Z"), || ()).unwrap();
    count(&minutes);
    // The table is away at first, so the numbers wait under their key; then the answer to the insert is lost.
    connection.batch_execute("ALTER TABLE queueable_minutes RENAME TO elsewhere").unwrap();
    minutes.write(connection, time("2026-03-01T12:00:10Z"), || ()).unwrap_err();
    connection.batch_execute("ALTER TABLE elsewhere RENAME TO queueable_minutes").unwrap();
    let unanswered = minutes.as_known();
    minutes.write(connection, time("2026-03-01T12:00:11Z"), || ()).unwrap();
    assert_eq!(rows(connection), [(60, 2)]);
    unanswered.write(connection, time("2026-03-01T12:00:12Z"), || ()).unwrap();
    assert_eq!(rows(connection), [(60, 2)], "the insert is repeated");
    // The next ten seconds are in the same minute, and so in the same row.
    count(&minutes);
    minutes.write(connection, time("2026-03-01T12:00:20Z"), || ()).unwrap();
    assert_eq!(rows(connection), [(60, 4)]);
    for now in ["2026-03-01T11:59:00Z", "2026-03-01T12:00:30Z", "2026-03-03T00:00:00Z", "1970-01-01T00:00:00Z"] {
        count(&minutes);
        minutes.write(connection, time(now), || ()).unwrap();
    }
    count(&minutes);
    minutes.write(connection, time("2026-03-01T12:01:00Z"), || ()).unwrap();
    assert_eq!(sums(&statistics(&bank, Interval::Day)), [14, 7, 7, 7]);
    // Another process in the same minute has rows of its own.
    let other = Minutes::default();
    count(&other);
    other.write(connection, time("2026-03-01T12:00:00Z"), || ()).unwrap();
    assert_eq!(sums(&statistics(&bank, Interval::Day)), [16, 8, 8, 8]);
}

#[test]
fn numbers_that_cannot_be_written_wait_and_none_is_lost() {
    let (bank, events) = (bank(), events());
    let connection = &mut bank.connect();
    let minutes = Minutes::default();
    connection.batch_execute("ALTER TABLE queueable_minutes RENAME TO elsewhere").unwrap();
    for minute in 0..3 {
        events.iter().for_each(|event| minutes.count(event));
        let now = time("2026-03-01T12:00:00Z") + TimeDelta::minutes(minute);
        minutes.write(connection, now, || ()).unwrap_err();
    }
    connection.batch_execute("ALTER TABLE elsewhere RENAME TO queueable_minutes").unwrap();
    minutes.write(connection, time("2026-03-01T13:00:00Z"), || ()).unwrap();
    assert_eq!(sums(&statistics(&bank, Interval::Day)), [6, 3, 3, 3]);
    assert_eq!(statistics(&bank, Interval::Minute).periods.len(), 3);
    // A row that is gone takes what it had with it, and what comes later is written all the same.
    events.iter().for_each(|event| minutes.count(event));
    minutes.write(connection, time("2026-03-01T13:00:10Z"), || ()).unwrap();
    connection.batch_execute("DELETE FROM queueable_minutes").unwrap();
    events.iter().for_each(|event| minutes.count(event));
    minutes.write(connection, time("2026-03-01T13:00:20Z"), || ()).unwrap();
    minutes.write(connection, time("2026-03-01T13:00:30Z"), || ()).unwrap();
    assert_eq!(sums(&statistics(&bank, Interval::Day)), [2, 1, 1, 1]);
}

#[test]
fn old_minutes_become_hours_once_whoever_merges_them() {
    let (bank, events) = (bank(), events());
    let connection = &mut bank.connect();
    let start = time("2026-03-01T12:58:00Z");
    let pollers = [Minutes::default(), Minutes::default()];
    for minute in 0..4 {
        for minutes in &pollers {
            minutes.write(connection, start + TimeDelta::minutes(minute), || ()).unwrap();
            events.iter().for_each(|event| minutes.count(event));
            minutes.write(connection, start + TimeDelta::minutes(minute) + TimeDelta::seconds(1), || ()).unwrap();
        }
    }
    assert_eq!(rows(connection), [(60, 2); 8]);
    merge_minutes(connection, "payments.status", start + TimeDelta::hours(25), (|| true, || ())).unwrap();
    assert_eq!(rows(connection), [(60, 2); 8], "the hour has not ended 25 hours ago");
    let later = start + TimeDelta::hours(28);
    let merging = [(); 4].map(|()| {
        let mut connection = bank.connect();
        let (lock_timeout, timeout) = (Duration::from_secs(5), Duration::from_secs(30));
        let limits = SessionLimits { lock_timeout, timeout, statement_timeout: timeout, attempts: false };
        connection.prepare_session(limits).unwrap();
        thread::spawn(move || {
            // A deadlock or a busy file is an error, and the next hour brings the next try.
            let begun = Instant::now();
            while let Err(error) = merge_minutes(&mut connection, "payments.status", later, (|| true, || ())) {
                assert!(begun.elapsed() < PATIENCE, "{error}");
            }
        })
    });
    merging.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(rows(connection), [(3600, 8); 2]);
    assert_eq!(sums(&statistics(&bank, Interval::Day)), [16, 8, 8, 8]);
    assert_eq!(statistics(&bank, Interval::Minute).periods.len(), 2);
    // A poller whose clock was wrong goes on in a minute that is merged already.
    events.iter().for_each(|event| pollers[0].count(event));
    pollers[0].write(connection, start + TimeDelta::minutes(3) + TimeDelta::seconds(2), || ()).unwrap();
    pollers[0].write(connection, start + TimeDelta::minutes(3) + TimeDelta::seconds(3), || ()).unwrap();
    assert_eq!(sums(&statistics(&bank, Interval::Day)), [18, 9, 9, 9]);
    merge_minutes(connection, "payments.status", start + TimeDelta::days(900), (|| true, || ())).unwrap();
    assert_eq!(rows(connection), [], "hours are kept for 800 days");
}

#[test]
fn a_running_poller_writes_the_minute_that_has_not_ended() {
    let bank = bank();
    bank.enqueue(1..=5);
    let handle = Payment::poller(bank.pool(2), charge).workers(1).minutes().start().unwrap();
    let (begun, (_nobody, pace)) = (Instant::now(), mpsc::channel::<()>());
    let done = |found: &Statistics| found.counted == Counted::Attempts && sums(found) == [2, 1, 1, 1];
    while !done(&statistics(&bank, Interval::Hour)) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", statistics(&bank, Interval::Hour));
        let _ = pace.recv_timeout(Duration::from_millis(20));
    }
    handle.shutdown(Duration::from_secs(60));
    assert_eq!(sums(&statistics(&bank, Interval::Hour)), [2, 1, 1, 1], "the last write repeats nothing");
}

#[test]
fn without_the_table_a_poller_that_counts_does_not_start_and_statistics_count_rows() {
    let bank = Bank::new();
    bank.enqueue(1..=5);
    let poller = || Payment::poller(bank.pool(2), charge).workers(1);
    let Err(Error::Unsafe(findings)) = poller().minutes().start() else { panic!("it has started") };
    assert_eq!(findings[0].entity, "minutes");
    assert!(findings[0].problem.contains("no table queueable_minutes"), "{findings:?}");
    assert!(findings[0].mend.contains("Migrations::new().minutes()"), "{findings:?}");
    poller().run_until_idle().unwrap();
    assert_eq!(statistics(&bank, Interval::Day).counted, Counted::Rows);
    bank.connect().run_pending_migrations(Migrations::new().minutes()).unwrap();
    // A table in which nobody has counted this queue says nothing about it.
    let found = statistics(&bank, Interval::Day);
    let succeeded: i64 = found.periods.iter().map(|period| period.succeeded).sum();
    assert_eq!((found.counted, succeeded), (Counted::Rows, 2));
    let source = || Migrations::new().entity::<Payment>().minutes();
    bank.connect().revert_all_migrations(source()).unwrap();
    // Another table of this name is left alone.
    bank.connect().batch_execute("CREATE TABLE queueable_minutes (note VARCHAR(9))").unwrap();
    bank.connect().run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap();
    let Err(Error::Unsafe(_)) = poller().minutes().start() else { panic!("it has started") };
    let refused = bank.connect().run_pending_migrations(Migrations::new().minutes()).unwrap_err().to_string();
    assert!(refused.contains("queueable_minutes that is not the queue's") && refused.contains("gave_up"), "{refused}");
    assert_eq!(statistics(&bank, Interval::Day).counted, Counted::Rows);
}

#[test]
fn rows_that_somebody_has_written_by_hand_spoil_nothing() {
    let (bank, events) = (bank(), events());
    let connection = &mut bank.connect();
    let minutes = Minutes::default();
    events.iter().for_each(|event| minutes.count(event));
    minutes.write(connection, time("2026-03-01T12:00:00Z"), || ()).unwrap();
    for (number, (odd, _)) in odd_times().into_iter().enumerate() {
        let mode = if NAME == "mysql" { "SET SESSION sql_mode = ''; " } else { "" };
        let insert = format!(
            "{mode}INSERT INTO queueable_minutes (queue, period_start, part, stage, seconds, succeeded) VALUES \
             ('payments.status', {odd}, {number}, '<script>', 60, 7)"
        );
        if insert.contains("x'") {
            continue;
        }
        connection.batch_execute(&insert).unwrap();
    }
    connection
        .batch_execute(
            "INSERT INTO queueable_minutes (queue, period_start, part, stage, seconds, took_1s, took_us) VALUES \
             ('payments.status', '2026-03-01 12:00:00.000', 5, 'B', -1, -5, -7)",
        )
        .unwrap();
    assert_eq!(sums(&statistics(&bank, Interval::Day)), [2, 1, 1, 1]);
    merge_minutes(connection, "payments.status", time("2026-03-09T12:00:00Z"), (|| true, || ())).unwrap();
    assert_eq!(sums(&statistics(&bank, Interval::Day)), [2, 1, 1, 1]);
    assert!(rows(connection).contains(&(3600, 2)));
}

#[test]
fn a_poller_whose_table_is_dropped_goes_on() {
    let bank = bank();
    let handle = Payment::poller(bank.pool(2), charge).workers(1).minutes().start().unwrap();
    bank.connect().batch_execute("DROP TABLE queueable_minutes").unwrap();
    bank.enqueue([1]);
    let (begun, (_nobody, pace)) = (Instant::now(), mpsc::channel::<()>());
    while bank.state(1).status != queueable::Status::Success {
        assert!(begun.elapsed() < PATIENCE);
        let _ = pace.recv_timeout(Duration::from_millis(20));
    }
    assert_eq!(handle.shutdown(Duration::from_secs(60)).tally.succeeded, 1);
}
