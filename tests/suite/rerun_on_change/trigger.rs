//! What a change of content does to a row that no worker is processing.

use chrono::{TimeDelta, Utc};
use diesel::prelude::*;
use queueable::{Failure, Message, Outcome, Queueable, Status};

use super::{Document, Library, document_queue, documents, index};
use crate::db::Conn;

fn index_all(library: &Library) {
    library.run(|document: &Document, message: &mut Message<'_, Conn>| {
        index(document.id, &document.content(), message)?;
        Ok(Outcome::Done)
    });
}

#[test]
fn a_change_by_plain_sql_makes_a_finished_row_due_and_its_new_content_is_processed() {
    let library = Library::new();
    let ids = library.enqueue(["one", "two"]);
    index_all(&library);
    assert_eq!((library.state(ids[0]).status, library.change_count(ids[0])), (Status::Success, 0));
    library.write("UPDATE documents SET body = 'uno' WHERE title = 'one'");
    let state = library.state(ids[0]);
    assert_eq!((state.status, state.try_count, library.change_count(ids[0])), (Status::NotAttempted, 0, 1));
    assert!(state.next_attempt_time.unwrap() <= Utc::now() + TimeDelta::seconds(1));
    assert_eq!(library.state(ids[1]).next_attempt_time, None);
    index_all(&library);
    assert_eq!(library.entry(ids[0]).unwrap(), "one: uno");
    let state = library.state(ids[0]);
    assert_eq!((state.status, state.try_count, state.next_attempt_time), (Status::Success, 1, None));
}

#[test]
fn a_row_that_failed_for_good_or_was_never_queued_is_due_when_its_content_changes() {
    let library = Library::new();
    let ids = library.enqueue(["failed", "never"]);
    library.set_state(ids[0], "status = 'FAILED', try_count = 5, next_attempt_time = NULL");
    library.set_state(ids[1], "next_attempt_time = NULL");
    library.write("UPDATE documents SET title = 'new'");
    for id in ids {
        let state = library.state(id);
        assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0));
        assert!(state.next_attempt_time.is_some());
    }
}

#[test]
fn other_columns_and_the_same_value_again_change_nothing() {
    let library = Library::new();
    let ids = library.enqueue(["one"]);
    index_all(&library);
    let before = library.state(ids[0]);
    library.write("UPDATE documents SET note = 'read it'; UPDATE documents SET title = 'one', body = 'one'");
    assert_eq!((library.state(ids[0]), library.change_count(ids[0])), (before, 0));
}

#[test]
fn case_blanks_and_nulls_are_content() {
    let library = Library::new();
    let ids = library.enqueue(["one"]);
    let mut count = 0;
    for change in ["title = 'ONE'", "title = 'ONE '", "body = NULL", "body = ''", "body = ' '", "title = 'ÖNE'"] {
        for _ in 0..2 {
            library.write(&format!("UPDATE documents SET {change}"));
        }
        count += 1;
        assert_eq!(library.change_count(ids[0]), count, "{change}");
    }
}

#[test]
fn skipped_and_stopped_rows_stay_so_and_a_row_with_an_unknown_status_is_left_alone() {
    let library = Library::new();
    let ids = library.enqueue(["skipped", "stopped", "stopped after a failure", "unknown"]);
    let mut connection = library.connect();
    Document::queue().filter(documents::title.eq("skipped")).skip(&mut connection).unwrap();
    library.set_state(ids[2], "status = 'ERROR', try_count = 2, last_attempt_error_message = 'no route'");
    Document::queue().filter(documents::title.like("stopped%")).stop(&mut connection).unwrap();
    library.set_state(ids[3], "status = 'PARKED', next_attempt_time = NULL");
    library.write("UPDATE documents SET body = 'new'");
    for id in &ids {
        let state: (String, Option<String>) = documents::table
            .find(id)
            .select((
                document_queue::status,
                diesel::dsl::sql::<diesel::sql_types::Nullable<diesel::sql_types::Text>>(
                    "CAST(next_attempt_time AS CHAR(30))",
                ),
            ))
            .get_result(&mut connection)
            .unwrap();
        assert_eq!((state.1, library.change_count(*id)), (None, 1), "{}", state.0);
    }
    assert_eq!(library.state(ids[2]).try_count, 2);
    // Nothing is lost: the restarted row is processed with its new content.
    assert_eq!(Document::queue().all_rows().restart(&mut connection).unwrap(), 2);
    index_all(&library);
    assert_eq!(library.entry(ids[1]).unwrap(), "stopped: new");
}

#[test]
fn new_content_does_not_wait_for_the_retry_of_the_old_and_gets_tries_of_its_own() {
    let library = Library::new();
    let ids = library.enqueue(["one", "two"]);
    library.run(|_: &Document, _: &mut Message<'_, Conn>| Err(Failure::retry("the index is closed")));
    assert_eq!((library.state(ids[0]).status, library.state(ids[0]).try_count), (Status::Error, 1));
    library.write("UPDATE documents SET body = 'uno' WHERE title = 'one'");
    let state = library.state(ids[0]);
    assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0));
    assert_eq!(state.last_attempt_error_message.as_deref(), Some("the index is closed"));
    index_all(&library);
    assert_eq!((library.entry(ids[0]), library.entry(ids[1])), (Some("one: uno".to_owned()), None));
}

#[test]
fn a_row_that_is_due_keeps_its_place_and_its_tries() {
    let library = Library::new();
    let ids = library.enqueue(["one"]);
    library.set_state(ids[0], "status = 'ERROR', try_count = 3");
    let before = library.state(ids[0]);
    library.write("UPDATE documents SET title = 'new'");
    assert_eq!((library.state(ids[0]), library.change_count(ids[0])), (before, 1));
}

#[test]
fn a_time_that_the_writer_sets_together_with_the_content_holds() {
    let library = Library::new();
    let ids = library.enqueue(["later", "never"]);
    let later = Utc::now() + TimeDelta::days(1);
    diesel::update(documents::table.find(ids[0]))
        .set((documents::body.eq("new"), Document::due_at(later)))
        .execute(&mut library.connect())
        .unwrap();
    assert!(library.state(ids[0]).next_attempt_time.unwrap() > Utc::now() + TimeDelta::hours(23));
    library.set_state(ids[1], "body = 'new', next_attempt_time = NULL");
    assert_eq!(library.state(ids[1]).next_attempt_time, None);
}

#[test]
fn a_failure_in_the_words_of_a_mark_does_not_keep_new_content_waiting() {
    let library = Library::new();
    let ids = library.enqueue(["in the group 1", "queueable: in the group 1", "QUEUEABLE: In the Group 1"]);
    library.run(|document: &Document, _: &mut Message<'_, Conn>| Err(Failure::retry(document.title.clone())));
    library.write("UPDATE documents SET body = 'new'");
    for id in &ids {
        let state = library.state(*id);
        assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0), "{state:?}");
    }
    index_all(&library);
    assert_eq!(library.entry(ids[1]).as_deref(), Some("queueable: in the group 1: new"));
}
