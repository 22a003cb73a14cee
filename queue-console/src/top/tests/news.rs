//! What arrives.

use std::time::Duration;

use super::super::ask::{Ask, Look, News};
use super::*;

#[test]
fn what_was_read_stays_while_there_is_no_connection() {
    let mut model = full();
    let lost = |pause| News::Lost { why: "the server has gone".to_owned(), pause: Duration::from_secs(pause) };
    model.told(lost(1));
    model.now += chrono::Duration::seconds(10);
    model.told(lost(2));
    let of = model.lost.clone().expect("there is no connection");
    assert_eq!((of.since, of.next), (now(), now() + chrono::Duration::seconds(12)));
    assert_eq!(model.queues.len(), 2);
    assert_eq!(press(&mut model, "p"), []);
    assert!(model.said.clone().expect("a message").text.contains("no connection"));
    model.told(News::Read(Box::new(snapshot())));
    assert_eq!(model.lost, None);
}

#[test]
fn rows_of_another_filter_are_not_shown() {
    let mut model = with_rows();
    assert!(model.shown_page().is_some());
    let effects = press(&mut model, "f");
    assert!(matches!(asked(&effects), Some(Ask::Look(Look::Rows(_)))));
    assert!(model.shown_page().is_none());
}

#[test]
fn a_row_that_is_gone_is_not_shown() {
    let mut model = with_rows();
    press(&mut model, "\n");
    model.told(News::Explained(place("17"), None));
    assert_eq!(model.over, None);
    assert!(model.said.expect("a message").text.contains("no such row"));
}

#[test]
fn what_was_refused_is_said() {
    let mut model = with_rows();
    press(&mut model, "\n");
    model.told(News::Refused("the statement was cancelled".to_owned()));
    assert_eq!(model.over, None);
    assert!(model.said.expect("a message").is_refusal);
}
