//! Keys that change nothing but the screen.

use std::time::Duration;

use super::super::ask::{Look, News};
use super::super::dialog::Dialog;
use super::super::model::{Drawn, Over, Sort};
use super::*;
use crate::queue::State;

#[test]
fn tabs_go_round_and_are_read_when_they_are_opened() {
    let mut model = full();
    assert_eq!(asked(&press(&mut model, "l")), Some(&Ask::Look(Look::Running)));
    assert_eq!(asked(&press(&mut model, "l")), Some(&Ask::Look(Look::Errors)));
    press(&mut model, "ll");
    assert_eq!(tab(&model), Tab::Pollers);
    assert_eq!(asked(&press(&mut model, "l")), Some(&Ask::Look(Look::Queues { chosen: 0 })));
    press(&mut model, "h");
    assert_eq!(tab(&model), Tab::Pollers);
    press(&mut model, "3");
    assert_eq!(tab(&model), Tab::Errors);
}

#[test]
fn the_choice_stays_between_the_first_and_the_last_line() {
    let mut model = full();
    assert_eq!(press(&mut model, "k"), []);
    assert_eq!(asked(&press(&mut model, "j")), Some(&Ask::Look(Look::Queues { chosen: 1 })));
    assert_eq!(press(&mut model, "jj"), []);
    assert_eq!(model.line(), 1);
    press(&mut model, "g");
    assert_eq!(model.line(), 0);
    press(&mut model, "G");
    assert_eq!(model.line(), 1);
    // Nothing to choose from is no reason to panic.
    let mut model = fresh();
    press(&mut model, "2jkGg\n3jG\n4G\n5j\n");
}

#[test]
fn the_choice_follows_its_line() {
    let mut model = full();
    press(&mut model, "j");
    assert_eq!(model.chosen_queue(), Some(1));
    let mut queues = queues();
    queues[1].backlog = Err("no such table: mails".to_owned());
    model.told(News::Read(Box::new(Snapshot { queues: Some(queues), ..snapshot() })));
    // What cannot be read comes first.
    assert_eq!((model.sorted(), model.chosen_queue(), model.line()), (vec![1, 0], Some(1), 0));
}

#[test]
fn queues_are_sorted_by_another_column() {
    let mut model = full();
    let mut order = Vec::new();
    for _ in Sort::ALL {
        press(&mut model, "s");
        order.push((model.sort.name(), model.sorted()));
    }
    let expected = [
        ("by oldest due", vec![0, 1]),
        ("by due", vec![0, 1]),
        ("by failed", vec![0, 1]),
        ("by rate", vec![0, 1]),
        ("by name", vec![1, 0]),
        ("the worst first", vec![0, 1]),
    ];
    assert_eq!(order, expected);
    // Rows of it are due, and no process that has registered serves it.
    model.pollers.iter_mut().flatten().for_each(|poller| poller.queues.retain(|of| of.entity == "Payment"));
    assert_eq!(model.sorted(), [1, 0]);
}

#[test]
fn a_state_and_a_filter_choose_the_rows() {
    let mut model = with_rows();
    press(&mut model, "ffff");
    assert_eq!(model.listed().state, Some(State::Failed));
    press(&mut model, "/");
    let effects = press(&mut model, "company_id = 3345\n");
    let Some(Ask::Look(Look::Rows(listed))) = asked(&effects) else { panic!("{effects:?}") };
    assert_eq!(listed.filter.as_deref(), Some("company_id = 3345"));
    // Another queue has other columns.
    press(&mut model, "1j\n");
    assert_eq!((model.listed().state, model.listed().filter), (None, None));
}

#[test]
fn a_filter_that_is_refused_stays_in_its_line() {
    let mut model = with_rows();
    assert_eq!(press(&mut model, "/company_id = 'x'\n"), []);
    let Dialog::Typing(_, input, Some(refused)) = &model.dialog else { panic!("{:?}", model.dialog) };
    assert_eq!(input.text(), "company_id = 'x'");
    assert!(refused.contains("^^^"), "{refused}");
    assert_eq!(press(&mut model, "\u{1b}"), []);
    assert_eq!((model.dialog == Dialog::None, model.listed().filter), (true, None));
    // An empty line ends the filter.
    press(&mut model, "/company_id = 1\n");
    press(&mut model, "/");
    control(&mut model, 'u');
    press(&mut model, "\n");
    assert_eq!(model.listed().filter, None);
}

#[test]
fn a_row_is_explained_over_the_list() {
    let mut model = with_rows();
    assert_eq!(asked(&press(&mut model, "j\n")), Some(&Ask::Explain(place("18"))));
    // What somebody does not look at any more is not shown.
    model.told(News::Explained(place("17"), Some(Vec::new())));
    assert_eq!(model.over, Some(Over::Row(place("18"), None)));
    model.told(News::Explained(place("18"), Some(Vec::new())));
    assert_eq!(model.over, Some(Over::Row(place("18"), Some(Vec::new()))));
    press(&mut model, "\u{1b}");
    assert_eq!((model.over.is_none(), model.line()), (true, 1));
}

#[test]
fn what_covers_the_list_is_scrolled_within_its_lines() {
    let mut model = full();
    press(&mut model, "?");
    model.drawn = Drawn { page: 5, most: 2, from: 0 };
    press(&mut model, "jjjjj");
    assert_eq!(model.drawn.from, 2);
    press(&mut model, "kkkkk");
    assert_eq!(model.drawn.from, 0);
}

#[test]
fn a_reader_that_gets_no_answer_is_replaced_by_a_key_only() {
    let mut model = full();
    model.told(News::Busy(true));
    assert_eq!(press(&mut model, "r"), [Effect::Ask(Ask::Refresh)]);
    model.now += chrono::Duration::seconds(31);
    assert_eq!(model.patience, Duration::from_secs(30));
    assert_eq!(press(&mut model, "r"), [Effect::Anew]);
}

#[test]
fn q_and_control_c_end_it() {
    let mut model = full();
    assert_eq!(press(&mut model, "q"), [Effect::Quit]);
    assert_eq!(control(&mut model, 'c'), [Effect::Interrupt]);
    // In a line, q is a letter.
    press(&mut model, "/");
    assert_eq!(press(&mut model, "q"), []);
    assert_eq!(control(&mut model, 'c'), [Effect::Interrupt]);
}
