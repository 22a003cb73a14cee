//! Queue columns in the queries that an application writes around its table: joins, groups, aliases, times.

use std::time::SystemTime;

use chrono::{DateTime, FixedOffset, TimeDelta, Utc};
use diesel::dsl::{count_star, exists, max, now};
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::columns::{Instant, Now};
use queueable::{Migrations, QueueState, Queueable, Status};
use time::OffsetDateTime;

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, companies, ledger, payment_queue, payments};

/// A second queue, on the table that the first one's is joined with.
#[derive(Debug, PartialEq, Queryable, Selectable, Queueable)]
#[diesel(table_name = companies)]
#[queue(prefix = "review_")]
struct Company {
    id: i64,
    balance_cents: i64,
}

// Diesel's own rule for columns of two tables.
diesel::allow_columns_to_appear_in_same_group_by_clause!(companies::balance_cents, payments::company_id);

/// A line of an application's list, with the queue's state.
#[derive(Debug, PartialEq, Queryable, Selectable)]
#[diesel(table_name = payments)]
struct Listed {
    id: i64,
    #[diesel(select_expression = payment_queue::status)]
    status: Status,
    #[diesel(select_expression = payment_queue::queue_state)]
    state: QueueState,
}

/// Company 1 has a due payment and one in error, the others have none.
fn bank() -> (Bank, Conn) {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection.run_pending_migrations(Migrations::new().entity::<Company>()).unwrap();
    bank.enqueue([100, 200]);
    diesel::update(payments::table.find(2))
        .set((payment_queue::status.eq(Status::Error), payment_queue::last_attempt_time.eq(DateTime::UNIX_EPOCH)))
        .execute(&mut connection)
        .unwrap();
    (bank, connection)
}

#[test]
fn queue_columns_are_selected_from_joins() {
    let (_bank, mut connection) = bank();
    type Row = (Payment, Company, Status, QueueState, Option<DateTime<Utc>>);
    let inner: Vec<Row> = payments::table
        .inner_join(companies::table)
        .order(payments::id)
        .select((
            Payment::as_select(),
            Company::as_select(),
            payment_queue::status,
            Payment::queue_state(),
            company_queue::next_attempt_time,
        ))
        .load(&mut connection)
        .unwrap();
    assert_eq!(
        inner.iter().map(|row| (row.0.id, row.1.id, row.2)).collect::<Vec<_>>(),
        [(1, 1, Status::NotAttempted), (2, 1, Status::Error)]
    );
    assert!(inner.iter().all(|row| row.2 == row.3.status && row.4.is_none()));

    let by_on: Vec<(i64, Status, Status)> = companies::table
        .inner_join(
            payments::table.on(payments::company_id.eq(companies::id).and(payment_queue::status.ne(Status::Error))),
        )
        .select((companies::id, payment_queue::status, company_queue::status))
        .load(&mut connection)
        .unwrap();
    assert_eq!(by_on, [(1, Status::NotAttempted, Status::NotAttempted)]);

    let of_three: Vec<(Status, Option<i64>)> = payments::table
        .inner_join(companies::table)
        .left_join(ledger::table.on(ledger::payment_id.eq(payments::id)))
        .order(payment_queue::try_count)
        .then_order_by(payments::id)
        .select((payment_queue::status, ledger::id.nullable()))
        .load(&mut connection)
        .unwrap();
    assert_eq!(of_three, [(Status::NotAttempted, None), (Status::Error, None)]);
}

#[test]
fn after_an_outer_join_queue_columns_are_nullable() {
    let (_bank, mut connection) = bank();
    type Row = (i64, Option<Status>, Option<i32>, Option<DateTime<Utc>>, Option<QueueState>, Option<Payment>);
    let rows: Vec<Row> = companies::table
        .left_join(payments::table)
        .order((companies::id, payments::id))
        .select((
            companies::id,
            payment_queue::status.nullable(),
            payment_queue::try_count.nullable(),
            payment_queue::last_attempt_time.nullable(),
            Payment::queue_state().nullable(),
            Option::<Payment>::as_select(),
        ))
        .load(&mut connection)
        .unwrap();
    let [due, failing, .., without] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((due.0, due.1, due.2, due.3), (1, Some(Status::NotAttempted), Some(0), None));
    assert_eq!(failing.4.as_ref().unwrap().last_attempt_time, Some(DateTime::UNIX_EPOCH));
    assert_eq!((failing.1, failing.3), (Some(Status::Error), Some(DateTime::UNIX_EPOCH)));
    assert_eq!((without.0, without.1, without.2, &without.4, &without.5), (3345, None, None, &None, &None));
}

#[test]
fn rows_are_grouped_by_columns_of_the_domain_and_of_the_queue_together() {
    let (_bank, mut connection) = bank();
    let per_company: Vec<(i64, Status, i64)> = payments::table
        .group_by((payments::company_id, payment_queue::status))
        .select((payments::company_id, payment_queue::status, count_star()))
        .order(payment_queue::status)
        .load(&mut connection)
        .unwrap();
    assert_eq!(per_company, [(1, Status::Error, 1), (1, Status::NotAttempted, 1)]);

    let by_two: Vec<(i32, Status, Option<i64>)> = payments::table
        .group_by((payment_queue::status, payment_queue::try_count))
        .having(max(payments::amount_cents).gt(100))
        .select((payment_queue::try_count, payment_queue::status, max(payments::amount_cents)))
        .load(&mut connection)
        .unwrap();
    assert_eq!(by_two, [(0, Status::Error, Some(200))]);

    let of_a_join: Vec<(i64, i64, Status, Option<Instant>)> = payments::table
        .inner_join(companies::table)
        .filter(payment_queue::status.eq(Status::Error))
        .group_by((companies::balance_cents, payment_queue::status, payments::company_id))
        .select((
            companies::balance_cents,
            payments::company_id,
            payment_queue::status,
            max(payment_queue::last_attempt_time),
        ))
        .load(&mut connection)
        .unwrap();
    assert_eq!(of_a_join, [(0, 1, Status::Error, Some(Instant::from(DateTime::UNIX_EPOCH)))]);
}

#[test]
fn a_struct_of_the_application_selects_queue_columns_by_their_names() {
    let (_bank, mut connection) = bank();
    let listed: Vec<Listed> =
        payments::table.select(Listed::as_select()).order(payments::id).load(&mut connection).unwrap();
    assert_eq!(
        listed.iter().map(|row| (row.id, row.status)).collect::<Vec<_>>(),
        [(1, Status::NotAttempted), (2, Status::Error)]
    );
    assert!(listed.iter().all(|row| row.status == row.state.status));
    let joined: Vec<(Listed, i64)> = companies::table
        .inner_join(payments::table)
        .select((Listed::as_select(), companies::id))
        .order(payments::id)
        .load(&mut connection)
        .unwrap();
    assert!(joined.into_iter().map(|(row, _)| row).eq(listed));
}

#[test]
fn queue_columns_are_found_in_subqueries_and_aliases() {
    let (_bank, mut connection) = bank();
    let with_tries: Vec<i64> = companies::table
        .filter(company_queue::try_count.eq_any(payments::table.select(payment_queue::try_count)))
        .order(companies::id)
        .select(companies::id)
        .load(&mut connection)
        .unwrap();
    assert_eq!(with_tries, [1, 2, 3345]);

    let with_errors: Vec<i64> = companies::table
        .filter(exists(
            payments::table
                .filter(payments::company_id.eq(companies::id))
                .filter(payment_queue::status.eq(Status::Error)),
        ))
        .select(companies::id)
        .load(&mut connection)
        .unwrap();
    assert_eq!(with_errors, [1]);

    let other = diesel::alias!(payments as other);
    let pairs: Vec<(i64, i64, Status)> = payments::table
        .inner_join(other.on(other.field(payments::company_id).eq(payments::company_id)))
        .filter(payment_queue::status.eq(Status::Error))
        .filter(other.field(payment_queue::status).ne(Status::Error))
        .select((payments::id, other.field(payments::id), other.field(payment_queue::status)))
        .load(&mut connection)
        .unwrap();
    assert_eq!(pairs, [(2, 1, Status::NotAttempted)]);
}

#[test]
fn columns_of_a_time_are_compared_with_the_times_of_an_application() {
    let (_bank, mut connection) = bank();
    let time = payment_queue::next_attempt_time;
    let tomorrow = Utc::now() + TimeDelta::days(1);
    macro_rules! count {
        ($filter:expr) => {
            payments::table.filter($filter).count().get_result::<i64>(&mut connection).unwrap()
        };
    }
    let zone = FixedOffset::east_opt(3600).unwrap();
    let day = std::time::Duration::from_secs(86_400);
    assert_eq!(count!(time.lt(tomorrow)), 2);
    assert_eq!(count!(time.gt(tomorrow.with_timezone(&zone))), 0);
    assert_eq!(count!(time.le(SystemTime::now() + day)), 2);
    assert_eq!(count!(time.ge(OffsetDateTime::now_utc() + day)), 0);
    assert_eq!(count!(time.le(now)), 2);
    assert_eq!(count!(time.le(Now)), 2);
    assert_eq!(count!(time.between(DateTime::UNIX_EPOCH, now)), 2);
    assert_eq!(count!(time.between(Some(tomorrow), OffsetDateTime::now_utc())), 0);
    assert_eq!(count!(time.gt(payment_queue::last_attempt_time)), 1);
    assert_eq!(count!(payment_queue::last_attempt_time.eq(Some(DateTime::UNIX_EPOCH))), 1);
    assert_eq!(count!(payment_queue::last_attempt_time.ne(OffsetDateTime::UNIX_EPOCH)), 0);
    assert_eq!(count!(payment_queue::last_attempt_time.eq(None::<DateTime<Utc>>)), 0);
    assert_eq!(count!(payment_queue::last_attempt_time.is_null()), 1);
}

#[test]
fn columns_of_a_time_are_written_from_and_loaded_into_the_times_of_an_application() {
    let (_bank, mut connection) = bank();
    let noon: DateTime<Utc> = "2026-03-01T12:00:00.250Z".parse().unwrap();
    let time = payment_queue::next_attempt_time;
    macro_rules! write {
        ($id:expr, $value:expr) => {
            diesel::update(payments::table.find($id)).set(time.eq($value)).execute(&mut connection).unwrap()
        };
    }
    macro_rules! read {
        ($id:expr, $type:ty) => {
            payments::table.find($id).select(time).get_result::<Option<$type>>(&mut connection).unwrap()
        };
    }
    write!(1, noon);
    assert_eq!(read!(1, DateTime<Utc>), Some(noon));
    assert_eq!(read!(1, Instant), Some(Instant::from(noon)));
    let read = read!(1, OffsetDateTime).unwrap();
    assert_eq!((read.unix_timestamp(), read.millisecond()), (noon.timestamp(), 250));
    write!(2, read);
    assert_eq!(read!(2, DateTime<Utc>), Some(noon));
    write!(2, Some(noon + TimeDelta::hours(1)));
    assert_eq!(read!(2, DateTime<Utc>), Some(noon + TimeDelta::hours(1)));
    write!(2, SystemTime::from(noon));
    assert_eq!(read!(2, DateTime<Utc>), Some(noon));
    write!(2, None::<DateTime<Utc>>);
    assert_eq!(read!(2, OffsetDateTime), None);
    let inserted = diesel::insert_into(payments::table)
        .values((payments::company_id.eq(3345), payments::amount_cents.eq(1), time.eq(noon)))
        .execute(&mut connection);
    assert_eq!(inserted, Ok(1));
    assert_eq!(read!(3, DateTime<Utc>), Some(noon));
}
