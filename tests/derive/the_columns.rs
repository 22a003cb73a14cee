//! The queue columns are ordinary Diesel columns.

use super::*;

#[test]
fn are_filtered_and_ordered_by() {
    let connection = &mut database();
    let ids: Vec<i64> = payments::table
        .filter(payments::amount_cents.gt(50).and(payment_queue::status.eq(Status::Error)))
        .order((payment_queue::try_count.asc(), payments::id.desc()))
        .select(payments::id)
        .load(connection)
        .unwrap();
    assert_eq!(ids, [3, 1]);
}

#[test]
fn are_selected_beside_the_entity() {
    let connection = &mut database();
    let row: (Payment, i32, Option<String>) = payments::table
        .find(1)
        .select((Payment::as_select(), payment_queue::try_count, payment_queue::last_attempt_error_message))
        .first(connection)
        .unwrap();
    assert_eq!(row, (Payment { id: 1, company_id: 1, amount_cents: 100 }, 3, Some("no route".into())));
}

#[test]
fn are_selected_as_one_state() {
    let connection = &mut database();
    let (payment, state): (Payment, QueueState) =
        payments::table.find(2).select((Payment::as_select(), Payment::queue_state())).first(connection).unwrap();
    assert_eq!((payment.id, state.status, state.try_count), (2, Status::Success, 1));
    assert_eq!((state.next_attempt_time, state.last_attempt_error_message), (None, None));
}

#[test]
fn are_updated() {
    let connection = &mut database();
    let changed = diesel::update(payments::table.filter(payment_queue::try_count.ge(2)))
        .set((payment_queue::status.eq(Status::Skipped), payment_queue::last_attempt_error_message.eq(None::<String>)))
        .execute(connection)
        .unwrap();
    assert_eq!(changed, 1);
    let status: Status = payments::table.find(1).select(payment_queue::status).first(connection).unwrap();
    assert_eq!(status, Status::Skipped);
}

#[test]
fn are_inserted_with_due_now_and_returned() {
    let connection = &mut database();
    let new = Payment { id: 9, company_id: 2, amount_cents: 900 };
    let (status, tries): (Status, i32) = diesel::insert_into(payments::table)
        .values((&new, Payment::due_now()))
        .returning((payment_queue::status, payment_queue::try_count))
        .get_result(connection)
        .unwrap();
    assert_eq!((status, tries), (Status::NotAttempted, 0));
    let state: QueueState = payments::table.find(9).select(Payment::queue_state()).first(connection).unwrap();
    assert!(state.next_attempt_time.is_some());
}

#[test]
fn make_an_existing_row_due() {
    let connection = &mut database();
    diesel::update(payments::table.find(1)).set(Payment::due_in(Duration::from_secs(60))).execute(connection).unwrap();
    let state: QueueState = payments::table.find(1).select(Payment::queue_state()).first(connection).unwrap();
    assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0));
    assert!(state.next_attempt_time.is_some());
}

#[test]
fn are_grouped_by() {
    let connection = &mut database();
    let counts: Vec<(Status, i64)> = payments::table
        .group_by(payment_queue::status)
        .select((payment_queue::status, count_star()))
        .order(payment_queue::status)
        .load(connection)
        .unwrap();
    assert_eq!(counts, [(Status::Error, 2), (Status::Success, 1)]);
}

#[test]
fn stand_in_boxed_queries() {
    let connection = &mut database();
    let mut query = payments::table.into_boxed();
    query = query.filter(payment_queue::status.eq(Status::Error));
    query = query.or_filter(payment_queue::last_attempt_time.is_not_null()).order(payment_queue::try_count.desc());
    let ids: Vec<i64> = query.select(payments::id).load(connection).unwrap();
    assert_eq!(ids, [1, 3]);
}

#[test]
fn are_filtered_by_in_a_join() {
    let connection = &mut database();
    let names: Vec<String> = companies::table
        .inner_join(payments::table)
        .filter(payment_queue::status.eq(Status::Error).and(payments::amount_cents.gt(200)))
        .select(companies::name)
        .load(connection)
        .unwrap();
    assert_eq!(names, ["Grace"]);
}

#[test]
fn are_named_with_their_table() {
    assert_eq!(
        sql(&payments::table.filter(payment_queue::status.eq(Status::Error)).select(payment_queue::try_count)),
        "SELECT `payments`.`try_count` FROM `payments` WHERE (`payments`.`status` = ?)"
    );
}

#[test]
fn have_their_names_in_debug_output() {
    assert_eq!(format!("{:?}", payment_queue::next_attempt_time), "next_attempt_time");
}
