use chrono::DateTime;

use super::*;
use crate::row::Status;

fn passed_rows<K: Clone>() -> PassedRows<K> {
    PassedRows::of(&Options::NONE)
}

#[test]
fn a_row_is_passed_over_while_its_attempt_is_concluded() {
    let passed = passed_rows();
    let (one, two) = (RowKey::new(1, "1"), RowKey::new(2, "2"));
    let concluded = passed.while_concluded(&one);
    assert_eq!(passed.passed_over(), std::slice::from_ref(&one));
    // A survey has found both.
    passed.with_refused(|refused| refused.refuse(&RowKey::new(3, "3"), (None, None, false), 0, Instant::now()));
    passed.with_refused(|refused| refused.found.waiting.extend([one.clone(), two.clone()]));
    assert_eq!(passed.next_step(2).0, Step::Only(vec![two]));
    assert!(!passed.any_interrupted());
    drop(concluded);
    assert_eq!(passed.passed_over(), []);
}

#[test]
fn only_a_row_that_was_set_aside_is_passed_over_until_its_state_is_written() {
    let passed = passed_rows();
    let (one, two) = (RowKey::new(1, "1"), RowKey::new(2, "2"));
    let (first, times) = passed.pause(&one, false);
    assert!((FIRST_BACKOFF..=FIRST_BACKOFF * 2).contains(&first) && times == 1);
    assert!(passed.any_interrupted());
    assert_eq!(passed.passed_over(), []);
    passed.skip_for_a_while(&two);
    assert_eq!(passed.passed_over(), std::slice::from_ref(&two));
    passed.end(&two);
    assert_eq!(passed.passed_over(), []);
    assert!((0..40).all(|_| passed.pause(&one, false).0 <= LONGEST_BACKOFF * 2));
    assert_eq!(passed.pause(&one, false).1, 42);
    // Interruptions by a full disk are counted separately.
    assert_eq!((passed.pause(&one, true).1, passed.pause(&one, false).1, passed.pause(&one, true).1), (1, 43, 2));
}

fn due(second: i64) -> QueueState {
    QueueState { next_attempt_time: DateTime::from_timestamp(second, 0), ..STATE }
}

const STATE: QueueState = QueueState {
    status: Status::Error,
    next_attempt_time: None,
    try_count: 2,
    last_attempt_time: None,
    last_attempt_error_message: None,
};

#[test]
fn a_row_has_returned_once_for_each_time_it_was_written() {
    let passed = passed_rows();
    let claimed = passed.claimed_as(&RowKey::new(1, "1"), &due(7));
    assert_eq!(passed.take_returned(claimed), None);
    for times in 0..3 {
        assert_eq!(passed.record_written(claimed), times);
        assert!(passed.has_returned(claimed));
        assert_eq!(passed.take_returned(claimed), Some(times));
        assert!(!passed.has_returned(claimed));
    }
}

#[test]
fn the_pauses_of_a_row_that_comes_back_each_time_grow() {
    let passed = passed_rows();
    let (one, mut last) = (RowKey::new(1, "1"), Duration::ZERO);
    let claimed = passed.claimed_as(&one, &due(7));
    assert_eq!(passed.note_settled(&one, Some(claimed)), 0);
    for times in 0..3 {
        assert_eq!(passed.take_returned(claimed), Some(times));
        let refusal = passed.with_refused(|refused| refused.refuse(&one, (None, None, false), times, Instant::now()));
        assert_eq!(refusal.is_first, times == 0);
        assert!(passed.refusal_pause(&one) > last.mul_f64(2.0));
        last = passed.refusal_pause(&one);
        assert_eq!(passed.note_settled(&one, Some(claimed)), times + 1);
        assert!(passed.with_refused(|refused| refused.rows.contains_key(one.text())));
    }
}

#[test]
fn a_row_that_has_gone_through_other_states_begins_anew() {
    let passed = passed_rows();
    let claimed = passed.claimed_as(&RowKey::new(1, "1"), &due(7));
    passed.record_written(claimed);
    assert_eq!(passed.take_returned(claimed), Some(0));
    passed.forget_written(claimed);
    assert_eq!((passed.record_written(claimed), passed.take_returned(claimed)), (0, Some(0)));
}

#[test]
fn a_row_in_another_state_has_not_returned() {
    let (passed, one) = (passed_rows(), RowKey::new(1, "1"));
    passed.record_written(passed.claimed_as(&one, &due(7)));
    let is_another = |key, state| assert!(!passed.has_returned(passed.claimed_as(key, &state)), "{state:?}");
    is_another(&one, due(8));
    is_another(&one, QueueState { try_count: 3, ..due(7) });
    is_another(&one, QueueState { status: Status::NotAttempted, ..due(7) });
    is_another(&one, QueueState { last_attempt_time: DateTime::from_timestamp(7, 0), ..due(7) });
    is_another(&RowKey::new(2, "2"), due(7));
}

#[test]
fn as_many_rows_are_remembered_as_there_is_room_for() {
    let passed = passed_rows();
    let claimed = |number: usize| passed.claimed_as(&RowKey::new(number, number.to_string()), &due(7));
    (0..=WRITTEN_ROWS_REMEMBERED).for_each(|number| assert_eq!(passed.record_written(claimed(number)), 0));
    assert!(!passed.has_returned(claimed(0)));
    assert!(passed.has_returned(claimed(1)));
    assert!(passed.has_returned(claimed(WRITTEN_ROWS_REMEMBERED)));
}
