//! Queue columns are ordinary Diesel columns, beside the ones of the user's untouched `table!`.

use std::time::Duration;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use diesel::connection::SimpleConnection;
use diesel::dsl::{count_star, max};
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use queueable::columns::{Instant, Now};
use queueable::{QueueState, Queueable, Status};

use crate::db::{Conn, TIME_DIGITS};
use crate::suite::bank::{Bank, NewPayment, Payment, companies, payment_queue, payments};

/// Three payments: due, in error after two tries, and one that was never enqueued.
fn three_payments() -> (Bank, Conn) {
    let bank = Bank::new();
    let mut connection = bank.connect();
    bank.enqueue([100, 200]);
    insert(&mut connection, 3345, 300);
    diesel::update(payments::table.find(2))
        .set((
            payment_queue::status.eq(Status::Error),
            payment_queue::try_count.eq(2),
            payment_queue::last_attempt_error_message.eq(Some("no route")),
            payment_queue::last_attempt_time.eq(Some(Instant::from(DateTime::UNIX_EPOCH))),
        ))
        .execute(&mut connection)
        .unwrap();
    (bank, connection)
}

fn insert(connection: &mut Conn, company_id: i64, amount_cents: i64) {
    diesel::insert_into(payments::table).values(NewPayment { company_id, amount_cents }).execute(connection).unwrap();
}

fn now(connection: &mut Conn) -> DateTime<Utc> {
    let now: Option<Instant> = diesel::select(Now).get_result(connection).unwrap();
    now.expect("the present is not null").into()
}

#[test]
fn queue_columns_are_filtered_ordered_and_selected_beside_the_domains_own() {
    let (_bank, mut connection) = three_payments();
    let failing: Vec<(Payment, i32, Option<String>)> = payments::table
        .filter(payments::company_id.eq(1))
        .filter(payment_queue::status.eq(Status::Error))
        .select((Payment::as_select(), payment_queue::try_count, payment_queue::last_attempt_error_message))
        .load(&mut connection)
        .unwrap();
    let second = Payment { id: 2, company_id: 1, amount_cents: 200 };
    assert_eq!(failing, [(second, 2, Some("no route".to_owned()))]);

    let by_tries: Vec<i64> = payments::table
        .filter(payment_queue::next_attempt_time.is_not_null())
        .filter(payment_queue::next_attempt_time.le(Now))
        .order((payment_queue::try_count.desc(), payments::id))
        .select(payments::id)
        .load(&mut connection)
        .unwrap();
    assert_eq!(by_tries, [2, 1]);

    let of_either: Vec<i64> = payments::table
        .filter(payment_queue::status.eq_any([Status::Error, Status::Failed]).or(payments::company_id.eq(3345)))
        .order(payments::id)
        .select(payments::id)
        .load(&mut connection)
        .unwrap();
    assert_eq!(of_either, [2, 3]);
}

#[test]
fn the_queue_state_is_selected_as_one_value() {
    let (_bank, mut connection) = three_payments();
    let rows: Vec<(Payment, QueueState)> = payments::table
        .order(payments::id)
        .select((Payment::as_select(), Payment::queue_state()))
        .load(&mut connection)
        .unwrap();
    let (failing, untouched) = (&rows[1].1, &rows[2].1);
    assert_eq!((failing.status, failing.try_count), (Status::Error, 2));
    assert_eq!(failing.last_attempt_time, Some(DateTime::UNIX_EPOCH));
    assert_eq!(failing.last_attempt_error_message.as_deref(), Some("no route"));
    let never_enqueued = QueueState {
        status: Status::NotAttempted,
        next_attempt_time: None,
        try_count: 0,
        last_attempt_time: None,
        last_attempt_error_message: None,
    };
    assert_eq!(*untouched, never_enqueued);
}

#[test]
fn an_ordinary_insert_enqueues_nothing() {
    let bank = Bank::new();
    insert(&mut bank.connect(), 1, 100);
    assert_eq!(bank.state(1).next_attempt_time, None);
}

#[test]
fn an_insert_enqueues_one_row_or_many() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    let before = now(&mut connection);
    let new = NewPayment { company_id: 1, amount_cents: 100 };
    diesel::insert_into(payments::table).values((&new, Payment::due_now())).execute(&mut connection).unwrap();
    let many: Vec<_> = (0..3).map(|_| (new.clone(), Payment::due_at(DateTime::UNIX_EPOCH))).collect();
    diesel::insert_into(payments::table).values(&many).execute(&mut connection).unwrap();
    let later: Vec<_> = (0..2).map(|_| (new.clone(), Payment::due_in(Duration::from_secs(3600)))).collect();
    diesel::insert_into(payments::table).values(later).execute(&mut connection).unwrap();
    let after = now(&mut connection);

    let due: Vec<Option<Instant>> =
        payments::table.order(payments::id).select(payment_queue::next_attempt_time).load(&mut connection).unwrap();
    let due: Vec<DateTime<Utc>> = due.into_iter().map(|time| time.expect("enqueued").into()).collect();
    assert!((before..=after).contains(&due[0]), "{before} <= {} <= {after}", due[0]);
    assert_eq!(due[1..4], [DateTime::UNIX_EPOCH; 3]);
    let hour = TimeDelta::hours(1);
    assert!(due[4..].iter().all(|time| (before + hour..=after + hour).contains(time)), "{due:?}");
}

#[test]
fn a_time_comes_back_as_exactly_as_the_database_keeps_it() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    let ids = bank.enqueue([1]);
    for text in ["2026-03-01T12:34:56.123456Z", "1999-12-31T23:59:59.999999Z", "2400-02-29T00:00:00Z"] {
        let time: DateTime<Utc> = text.parse().unwrap();
        diesel::update(payments::table.find(ids[0])).set(Payment::due_at(time)).execute(&mut connection).unwrap();
        assert_eq!(bank.state(ids[0]).next_attempt_time, Some(time.trunc_subsecs(TIME_DIGITS)));
        let found: i64 = payments::table
            .filter(payment_queue::next_attempt_time.eq(Some(Instant::from(time))))
            .count()
            .get_result(&mut connection)
            .unwrap();
        assert_eq!(found, 1, "{text}");
    }
}

#[test]
fn a_time_at_the_end_of_the_calendar_is_kept_or_refused() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    let id = bank.enqueue([1])[0];
    for text in ["+262142-12-31T23:59:59Z", "+10000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "-262143-01-01T00:00:00Z"]
    {
        let time: DateTime<Utc> = text.parse().unwrap();
        let before = bank.state(id).next_attempt_time;
        let written = diesel::update(payments::table.find(id)).set(Payment::due_at(time)).execute(&mut connection);
        let expected = if written.is_ok() { Some(time) } else { before };
        assert_eq!(bank.state(id).next_attempt_time, expected, "{text}: {written:?}");
    }
}

#[test]
fn a_delay_of_any_length_makes_a_row_due_at_a_finite_time() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    let ids = bank.enqueue([1]);
    for delay in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(1),
        queueable::columns::MAX_DELAY,
        Duration::MAX,
    ] {
        let before = now(&mut connection);
        diesel::update(payments::table.find(ids[0])).set(Payment::due_in(delay)).execute(&mut connection).unwrap();
        let due = bank.state(ids[0]).next_attempt_time.expect("a finite time");
        let added = TimeDelta::from_std(delay.min(queueable::columns::MAX_DELAY)).unwrap();
        // The database may round the delay, which makes the row due that much earlier.
        assert!(due + TimeDelta::milliseconds(1) >= before + added, "{delay:?}: {due}");
        assert!(due <= now(&mut connection) + added + TimeDelta::milliseconds(1), "{delay:?}: {due}");
    }
}

#[test]
fn an_update_with_due_now_is_a_new_enqueueing() {
    let (bank, mut connection) = three_payments();
    diesel::update(payments::table.filter(payment_queue::status.eq(Status::Error)))
        .set((payments::amount_cents.eq(250), Payment::due_now()))
        .execute(&mut connection)
        .unwrap();
    let state = bank.state(2);
    assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0));
    assert!(state.next_attempt_time.is_some());
}

#[test]
fn rows_are_grouped_and_counted_by_queue_columns() {
    let (_bank, mut connection) = three_payments();
    let mut counts: Vec<(Status, i64)> = payments::table
        .group_by(payment_queue::status)
        .select((payment_queue::status, count_star()))
        .load(&mut connection)
        .unwrap();
    counts.sort();
    assert_eq!(counts, [(Status::NotAttempted, 2), (Status::Error, 1)]);
    let most: Option<i32> = payments::table.select(max(payment_queue::try_count)).get_result(&mut connection).unwrap();
    assert_eq!(most, Some(2));
}

#[test]
fn boxed_queries_take_queue_columns() {
    let (_bank, mut connection) = three_payments();
    let ids = |only_failing: bool, connection: &mut Conn| -> Vec<i64> {
        let mut query = payments::table.select(payments::id).into_boxed();
        if only_failing {
            query = query.filter(payment_queue::try_count.gt(0));
        }
        query.order(payment_queue::last_attempt_time.desc()).then_order_by(payments::id).load(connection).unwrap()
    };
    assert_eq!(ids(true, &mut connection), [2]);
    assert_eq!(ids(false, &mut connection).len(), 3);
}

#[test]
fn joined_queries_are_filtered_by_queue_columns() {
    let (_bank, mut connection) = three_payments();
    let inner: Vec<(i64, i64)> = payments::table
        .inner_join(companies::table)
        .filter(payment_queue::status.eq(Status::Error))
        .select((payments::id, companies::id))
        .load(&mut connection)
        .unwrap();
    assert_eq!(inner, [(2, 1)]);
    let left: Vec<(i64, Option<i64>)> = companies::table
        .left_join(payments::table)
        .filter(payment_queue::next_attempt_time.is_null())
        .order(companies::id)
        .select((companies::id, payments::id.nullable()))
        .load(&mut connection)
        .unwrap();
    assert_eq!(left, [(2, None), (3345, Some(3))]);
}

#[test]
fn a_status_of_somebody_else_is_an_error_value() {
    let (_bank, mut connection) = three_payments();
    connection.batch_execute("UPDATE payments SET status = 'DONE' WHERE id = 1").unwrap();
    let status = payments::table.find(1).select(payment_queue::status).get_result::<Status>(&mut connection);
    let Err(DieselError::DeserializationError(error)) = status else { panic!("{status:?}") };
    let cause = error.source().expect("the field's error has a cause").to_string();
    assert!(cause.starts_with("unknown queue status `DONE`, expected NOT_ATTEMPTED"), "{cause}");
    let state = payments::table.find(1).select(Payment::queue_state()).get_result::<QueueState>(&mut connection);
    assert!(matches!(state, Err(DieselError::DeserializationError(_))), "{state:?}");
    // The status can still be read as text.
    let text: String = payments::table.find(1).select(payment_queue::status).get_result(&mut connection).unwrap();
    assert_eq!(text, "DONE");
}
