//! The file of the workers' calls, whoever is killed while it is written.

use std::fs;

use calls::{Call, calls};

#[path = "../src/calls.rs"]
mod calls;

fn call(payment: i64) -> Call {
    Call { payment, key: format!("payment:{payment}"), attempt: 2, process: 4711 }
}

#[test]
fn a_line_that_was_torn_anywhere_hides_no_other_and_is_no_call() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("calls");
    let line = call(12).to_string();
    for end in 0..line.len() - 1 {
        fs::write(&file, format!("{}{}{}", call(1), &line[..end], call(3))).unwrap();
        assert_eq!(calls(&file).unwrap(), [call(1), call(3)], "torn at {end}");
    }
    fs::write(&file, format!("{}{line}", call(1))).unwrap();
    assert_eq!(calls(&file).unwrap(), [call(1), call(12)]);
}

#[test]
fn nobody_has_called_where_there_is_no_file() {
    assert_eq!(calls(&tempfile::tempdir().unwrap().path().join("calls")).unwrap(), []);
}
