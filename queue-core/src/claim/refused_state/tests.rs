use chrono::DateTime;

use super::*;

fn at(second: i64) -> Due {
    Due::from(DateTime::UNIX_EPOCH + TimeDelta::seconds(second))
}

fn row(key: i64) -> RowKey<i64> {
    RowKey::new(key, key.to_string())
}

fn rows(keys: impl IntoIterator<Item = i64>) -> Vec<RowKey<i64>> {
    keys.into_iter().map(row).collect()
}

fn state(refused: impl IntoIterator<Item = i64>, now: Instant) -> RefusedState<i64> {
    let mut state = RefusedState::new(Turns::ByDueTime, now);
    refused.into_iter().for_each(|key| assert!(state.refuse(&row(key), due(at(key)), 0, now).is_first));
    state
}

fn due(due: Due) -> Place {
    (Some(due), None, false)
}

fn step(state: &mut RefusedState<i64>, now: Instant) -> Step<i64> {
    state.next_step(1, now)
}

#[test]
fn claims_begin_behind_the_refused_rows_however_many_they_are() {
    let now = Instant::now();
    let mut state = state(0..10_000, now);
    assert!(matches!(step(&mut state, now), Step::Survey(_)), "a survey comes first");
    // Two sound rows among them, and many behind them.
    let keys = (0..9000).chain([-1]).chain(9000..9500).chain([-2]).chain(9500..16_384 - 2);
    state.arrive(rows(keys), 16_384, at(20_000), now);
    for key in [-1, -2] {
        assert_eq!(step(&mut state, now), Step::Only(rows([key])));
    }
    let floor = Some(at(9999));
    assert_eq!(step(&mut state, now), Step::From { floor, except: rows([9999]), is_new: true });
    assert_eq!(step(&mut state, now), Step::From { floor, except: rows([9999]), is_new: false });
}

#[test]
fn a_claim_leaps_over_rows_that_are_probably_refused_too_and_they_take_a_small_part_of_the_time() {
    let now = Instant::now();
    let mut state = state(0..51, now);
    assert_eq!(state.start.floor, Some(at(50)));
    for (refused, floor) in [(51, 52), (52, 54), (54, 58), (58, 66)] {
        state.refuse(&row(refused), due(at(refused)), 0, now);
        assert_eq!(state.start.floor, Some(at(floor)));
    }
    // A sound row behind the floor.
    state.end(&KeyText::from("70"));
    assert_eq!(state.start.leap, FIRST_LEAP * 8);
    assert!(!state.survey.is_all_refused);
    // The survey finds the rows that were leapt over.
    state.arrive(rows(0..1024), 1024, at(20_000), now);
    assert_eq!(state.start.floor, Some(at(58)));
    assert_eq!(step(&mut state, now), Step::Only(rows([53])));
    let took = Duration::from_millis(10);
    state.refuse(&row(53), due(at(53)), 0, now + took);
    assert!(matches!(step(&mut state, now + took * PAUSE_PER_TRY), Step::From { .. }));
    let later = now + took * (PAUSE_PER_TRY + 1);
    assert_eq!(step(&mut state, later), Step::Only(rows([55])));
    state.refuse(&row(55), due(at(55)), 0, later + took);
    assert!(state.release_found(later + took), "nothing else is due");
    assert_eq!(step(&mut state, later + took), Step::Only(rows([56])));
    assert!(state.release_found(later + took), "another worker is idle too");
    state.refuse(&row(56), due(at(56)), 0, later + took * 2);
    assert!(matches!(step(&mut state, later + took * 2), Step::From { .. }), "other rows come first");
    assert!(state.release_found(later + took * 2));
    assert_eq!(step(&mut state, later + took * 2), Step::Only(rows([57])));
    assert!(!state.release_found(later + took * 2), "none is left");
}

#[test]
fn what_a_survey_has_found_is_tried_alone_after_a_refusal_and_together_after_a_success() {
    let now = Instant::now();
    let mut state = state(0..60, now);
    state.arrive(rows(0..66), 2048, at(100), now);
    assert_eq!(state.next_step(2, now), Step::Only(rows([60, 61])));
    state.refuse(&row(60), due(at(60)), 0, now);
    assert_eq!(state.next_step(2, now), Step::Only(rows([62])));
    assert_eq!(state.next_step(2, now), Step::Only(rows([63])));
    state.end(&KeyText::from("63"));
    assert_eq!(state.next_step(2, now), Step::Only(rows([64, 65])));
}

#[test]
fn a_leap_ends_at_the_present() {
    let now = Instant::now();
    let mut state = state(0..51, now);
    state.arrive(rows(0..1024), 1024, at(62), now);
    // A little later, within one millisecond of the database's time.
    let now = now + Duration::from_micros(500);
    for (refused, floor) in [(51, 52), (52, 54), (54, 58), (58, 61)] {
        state.refuse(&row(refused), due(at(refused)), 0, now);
        assert_eq!(state.start.floor, Some(at(floor)));
    }
}

#[test]
fn where_nothing_else_is_due_claims_begin_shortly_before_the_survey() {
    let now = Instant::now();
    let mut state = state(0..10_000, now);
    state.arrive(rows(0..10_000), 16_384, at(20_000), now);
    let expected = Step::From { floor: Some(at(19_999)), except: Vec::new(), is_new: true };
    assert_eq!(step(&mut state, now), expected);
}

#[test]
fn rows_that_share_their_due_time_with_many_refused_ones_are_claimed_by_their_keys() {
    let now = Instant::now();
    let mut state = RefusedState::new(Turns::ByDueTime, now);
    (0..60).for_each(|key| assert!(state.refuse(&row(key), due(at(1)), 0, now).is_left_alone));
    state.arrive(rows(0..2048), 2048, at(2), now);
    let found: Vec<_> = std::iter::repeat_with(|| step(&mut state, now)).take(1988).collect();
    assert_eq!(found.first(), Some(&Step::Only(rows([60]))));
    assert_eq!(found.last(), Some(&Step::Only(rows([2047]))));
    // The next survey finds the rest, at once or soon.
    assert!(matches!(step(&mut state, now), Step::Survey(_) | Step::Nothing));
}

#[test]
fn a_refused_row_is_tried_again_after_growing_pauses_and_one_at_a_time() {
    let now = Instant::now();
    let mut state = state([1, 2], now);
    state.arrive(rows([1, 2]), 1024, at(20), now);
    let later = now + FIRST_REFUSAL_PAUSE * 2;
    let retried = state.retry(later).expect("the first pause is over");
    assert_eq!(state.retry(later), None, "one at a time");
    let took = Duration::from_millis(5);
    assert!(!state.refuse(&retried, due(at(*retried)), 0, later + took).is_first);
    assert_eq!(state.retry(later + took * PAUSE_PER_TRY), None, "it is a small part of the time");
    let other = state.retry(later + took * (PAUSE_PER_TRY + 1)).expect("it is the other one's turn");
    assert_ne!(other, retried);
    assert!(
        state.rows[retried.text()].until >= later + FIRST_REFUSAL_PAUSE * REFUSAL_PAUSE_GROWTH,
        "the pause has grown"
    );
}

#[test]
fn rows_that_wait_by_themselves_do_not_draw_claims_past_the_sound_ones() {
    let now = Instant::now();
    let mut state = state(0..60, now);
    for key in 0..60 {
        // Due again, ten seconds later, and refused once more.
        assert!(!state.refuse(&row(key), (Some(at(key + 1000)), None, true), 0, now).is_first);
        assert!(state.rows[&*key.to_string()].until >= now + (FIRST_REFUSAL_PAUSE * REFUSAL_PAUSE_GROWTH).mul_f64(1.1));
    }
    // Some are due again.
    state.arrive(rows((0..60).chain(100..2048)), 2008, at(5000), now);
    let floor = Some(at(59));
    assert_eq!(step(&mut state, now), Step::From { floor, except: rows([59]), is_new: true });
    // None is.
    state.arrive(rows(100..2148), 2048, at(5000), now);
    assert_eq!(state.start.floor, floor);
    assert_eq!(step(&mut state, now), Step::Only(rows([100])));
    assert_eq!(state.found.waiting.len(), 2047);
    // One can no longer be made to wait, so it stays where it is now.
    state.refuse(&row(7), due(at(2000)), 0, now);
    assert!(state.start.floor > Some(at(2000)), "{:?}", state.start.floor);
}

#[test]
fn a_row_that_stays_where_it_has_moved_to_is_excepted_once() {
    let now = Instant::now();
    let mut state = state([1, 2], now);
    state.refuse(&row(1), (Some(at(11)), None, true), 0, now);
    assert_eq!(state.start.excepted, rows([1, 2]));
    state.refuse(&row(1), due(at(21)), 0, now);
    assert_eq!(state.start.excepted, rows([2, 1]));
}

#[test]
fn the_first_row_of_an_exclusive_queue_waits_no_longer_than_it_says() {
    let now = Instant::now();
    let mut state = RefusedState::new(Turns::OneByOne, now);
    state.refuse(&row(1), (Some(at(1)), None, true), 0, now);
    let longest = FIRST_REFUSAL_PAUSE.mul_f64(1.1);
    assert!(state.waits(&KeyText::from("1"), now).is_some_and(|waits| waits <= longest));
}

#[test]
fn a_row_that_was_written_is_forgotten() {
    let now = Instant::now();
    let mut state = state([1, 2], now);
    state.end(&KeyText::from("1"));
    assert!(state.rows.contains_key("2") && state.start.excepted == rows([2]));
    state.end(&KeyText::from("2"));
    assert!(state.retries.by_time.is_empty() && state.by_due_time.is_empty() && state.start.excepted.is_empty());
}

#[test]
fn the_pause_ends_at_an_hour() {
    assert!((FIRST_REFUSAL_PAUSE..FIRST_REFUSAL_PAUSE * 2).contains(&pause_after(0)));
    assert!((LONGEST_REFUSAL_PAUSE..LONGEST_REFUSAL_PAUSE * 2).contains(&pause_after(u32::MAX)));
}

#[test]
fn a_row_that_finds_no_place_when_it_is_tried_again_stays_refused() {
    let now = Instant::now();
    let mut state = state(0..2, now);
    let later = now + FIRST_REFUSAL_PAUSE * 2;
    let Step::Only(keys) = step(&mut state, later) else { panic!("a pause is over") };
    let text = keys[0].text().clone();
    state.retries.end(&text, now);
    state.end_unless_put_off(&text);
    assert_eq!((state.rows.len(), state.rows[&text].times), (2, 1));
    assert!(state.waits(&text, later).is_some());
    // Without that, others have it, or it is no longer due.
    let Step::Only(keys) = step(&mut state, later) else { panic!("the pause of the other one is over") };
    assert_ne!(*keys[0].text(), text);
    state.end_unless_put_off(keys[0].text());
    assert_eq!(state.rows.keys().collect::<Vec<_>>(), [&text]);
}

#[test]
fn rows_that_are_found_and_cannot_be_tried_make_surveys_rare() {
    let now = Instant::now();
    let mut state = state(0..2, now);
    state.arrive(rows(0..10), 11, at(20), now);
    state.survey.next = now;
    // Others hold it, and may have done what is to do.
    let Step::Only(keys) = step(&mut state, now) else { panic!("a row was found") };
    state.end_unless_put_off(keys[0].text());
    assert_eq!(state.survey.next, now);
    let Step::Only(keys) = step(&mut state, now) else { panic!("another row was found") };
    let (look, then) = (SURVEY_INTERVAL / 10, now + SURVEY_INTERVAL);
    state.put_off(&keys, then, then + look);
    assert_eq!(state.survey.next, then + look + look * PAUSE_PER_TRY);
    for (only_found, longest) in [(false, FIRST_REFUSAL_PAUSE), (true, SURVEY_INTERVAL)] {
        state.start.only_found = only_found;
        // Also after a look that took very long.
        let later = state.survey.next + FIRST_REFUSAL_PAUSE;
        state.put_off(&keys, now, later);
        assert_eq!(state.survey.next, later + longest);
    }
    let next = state.survey.next;
    state.put_off(&keys, now, next - SURVEY_INTERVAL * 2);
    assert_eq!(state.survey.next, next, "a pause is not shortened");
}
