//! Rows of which a trigger puts the old values back, so that the database counts them as changed. On SQLite nothing tells them from rows that
//! pass through several states within a millisecond.

use std::collections::HashMap;

use queueable::Status;

use crate::db::PUT_SEVEN_BACK;
use crate::suite::refused::{statuses, work_past};

#[test]
fn they_leave_the_others_their_turn_and_an_end_to_the_run() {
    work_past(PUT_SEVEN_BACK, |context, bank, bad, tally| {
        assert_eq!(statuses(bank, bad), HashMap::from([(Status::NotAttempted, 80)]), "{context}");
        assert!(tally.refused >= 80, "{context}");
    });
}
