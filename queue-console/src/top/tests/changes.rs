//! Keys that change rows and queues.

use std::sync::atomic::Ordering;

use queue_core::internals::by_name::Operate;

use super::super::ask::{Change, News, Target};
use super::super::dialog::Dialog;
use super::*;

/// A screen with the question whether a retry of a row goes on.
fn asking(found: Found) -> (Model, Change) {
    let mut model = with_rows();
    let effects = press(&mut model, "R");
    let Some(Ask::Preview(change)) = asked(&effects) else { panic!("{effects:?}") };
    let change = change.clone();
    model.told(News::Counted(change.clone(), found));
    (model, change)
}

#[test]
fn what_cannot_be_undone_needs_shift() {
    for (key, operate) in [("R", Operate::RetryNow), ("S", Operate::Skip), ("X", Operate::Stop)] {
        let mut model = with_rows();
        let effects = press(&mut model, key);
        let Some(Ask::Preview(change)) = asked(&effects) else { panic!("{effects:?}") };
        assert_eq!(*change, Change { operate, target: Target::Row(place("17")) });
        let mut model = with_rows();
        let effects = press(&mut model, &key.to_lowercase());
        assert!(!matches!(asked(&effects), Some(Ask::Preview(_) | Ask::Apply(..))), "{effects:?}");
    }
}

#[test]
fn a_change_is_applied_after_y_alone() {
    for no in ["n", "\n", "\u{1b}", "N", "q", "x"] {
        let (mut model, _) = asking(found(1, None));
        assert_eq!(press(&mut model, no), []);
        assert_eq!(model.dialog, Dialog::None);
    }
    let (mut model, change) = asking(found(1, None));
    assert_eq!(press(&mut model, "y"), [Effect::Ask(Ask::Apply(change, found(1, None)))]);
    // Nothing else begins meanwhile.
    assert_eq!(press(&mut model, "RSXpuq"), []);
    model.told(News::Done("retry: 1 row changed".to_owned()));
    assert_eq!(model.dialog, Dialog::None);
}

#[test]
fn the_question_is_left_before_its_answer_comes() {
    let mut model = with_rows();
    let effects = press(&mut model, "R");
    let Some(Ask::Preview(change)) = asked(&effects) else { panic!("{effects:?}") };
    press(&mut model, "\u{1b}");
    model.told(News::Counted(change.clone(), found(412, None)));
    assert_eq!(model.dialog, Dialog::None);
}

#[test]
fn no_rows_are_no_question() {
    let (model, _) = asking(found(0, None));
    assert_eq!(model.dialog, Dialog::None);
    assert!(model.said.expect("a message").text.ends_with("nothing to change"));
}

#[test]
fn a_production_is_named_before_many_rows_change() {
    let (mut model, _) = asking(found(1_001, Some("production")));
    assert_eq!(press(&mut model, "y"), []);
    assert_eq!(press(&mut model, "staging\n"), []);
    assert_eq!(model.dialog, Dialog::None);
    let (mut model, change) = asking(found(1_001, Some("production")));
    let effects = press(&mut model, "yproduction\n");
    assert_eq!(effects, [Effect::Ask(Ask::Apply(change, found(1_001, Some("production"))))]);
}

#[test]
fn a_group_of_errors_stays_what_it_is_while_it_is_shown() {
    let mut model = full();
    press(&mut model, "3\n");
    // The group that was the first has gone meanwhile.
    let mut errors = errors();
    errors.groups.remove(0);
    model.told(News::Read(Box::new(Snapshot { errors: Some(errors), ..snapshot() })));
    let effects = press(&mut model, "R");
    let Some(Ask::Preview(change)) = asked(&effects) else { panic!("{effects:?}") };
    assert_eq!(change.target, Target::Group { queue: 0, pattern: "card declined: <n>".to_owned() });
}

#[test]
fn a_change_that_runs_is_stopped_first() {
    let (mut model, _) = asking(found(5_000, None));
    press(&mut model, "y");
    model.told(News::Progress { done: 500, of: 5_000 });
    assert_eq!(control(&mut model, 'c'), []);
    assert!(model.stop.load(Ordering::SeqCst));
    assert_eq!(model.told(News::Done("retry: 1,000 rows changed".to_owned())), [Effect::Interrupt]);
    // Who cannot wait presses it twice.
    let (mut model, _) = asking(found(5_000, None));
    press(&mut model, "y");
    control(&mut model, 'c');
    assert_eq!(control(&mut model, 'c'), [Effect::Interrupt]);
    // Another change begins anew.
    let (mut model, _) = asking(found(5_000, None));
    press(&mut model, "y\u{1b}");
    assert!(model.stop.load(Ordering::SeqCst));
    model.told(News::Done("stopped".to_owned()));
    model.dialog =
        Dialog::Confirming(Change { operate: Operate::Skip, target: Target::Row(place("17")) }, found(1, None));
    press(&mut model, "y");
    assert!(!model.stop.load(Ordering::SeqCst));
}

#[test]
fn a_row_that_is_shown_is_read_again_after_its_change() {
    let mut model = with_rows();
    press(&mut model, "\n");
    let effects = press(&mut model, "R");
    let Some(Ask::Preview(change)) = asked(&effects) else { panic!("{effects:?}") };
    assert_eq!(change.target, Target::Row(place("17")));
    model.told(News::Counted(change.clone(), found(1, None)));
    press(&mut model, "y");
    let effects = model.told(News::Done("retry: 1 row changed".to_owned()));
    assert_eq!(effects, [Effect::Ask(Ask::Explain(place("17")))]);
}

#[test]
fn a_pause_needs_a_reason() {
    let mut model = full();
    press(&mut model, "g");
    assert_eq!(press(&mut model, "p \n"), []);
    assert!(matches!(&model.dialog, Dialog::Typing(_, _, Some(why)) if why == "a pause needs a reason"));
    let queue = model.chosen_queue().expect("a queue");
    let effects = press(&mut model, "bank down\n");
    assert_eq!(effects, [Effect::Ask(Ask::Pause { queue, reason: "bank down".to_owned() })]);
    model.told(News::Done("mails is paused".to_owned()));
    assert_eq!(press(&mut model, "u"), [Effect::Ask(Ask::Unpause { queue })]);
}

#[test]
fn a_read_only_screen_asks_for_no_change() {
    for open in ["1", "3", "3\n", "4", "4\n"] {
        let mut model = with_rows();
        model.read_only = true;
        press(&mut model, open);
        for key in ["p", "u", "R", "S", "X"] {
            assert_eq!(press(&mut model, key), [], "{open}{key}");
            assert_eq!(model.dialog, Dialog::None);
        }
    }
}
