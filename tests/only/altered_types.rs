//! Columns whose types change under running workers. PostgreSQL tells Diesel's types apart; MySQL's clients convert between
//! them.

use diesel::connection::SimpleConnection;
use queueable::{Message, Migrations, Outcome, Queueable, Status};

use crate::db::Conn;
use crate::suite::altered_table::{Change, Plain, database_of, no_mode_writes};

const RETYPED: &[Change] = &[
    Change {
        alter: "ALTER TABLE meters ALTER COLUMN id TYPE bigint",
        back: "ALTER TABLE meters ALTER COLUMN id TYPE integer",
        says: "column `id` had the type integer when the poller started, and has bigint now",
    },
    Change {
        alter: "ALTER TABLE meters ALTER COLUMN amount TYPE bigint",
        back: "ALTER TABLE meters ALTER COLUMN amount TYPE integer",
        says: "column `amount` had the type integer when the poller started, and has bigint now",
    },
];

#[test]
fn no_message_pays_for_a_column_of_another_type() {
    no_mode_writes(RETYPED);
}

#[test]
fn a_row_at_fault_fails_although_a_type_has_changed() {
    let database = database_of(Migrations::new().entity::<Plain>());
    let mut connection = database.connect();
    let handler = |_: &Plain, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let handle = Plain::poller(database.pool(3), handler).workers(1).start().unwrap();
    // The struct can read every row but one.
    connection
        .batch_execute(
            "ALTER TABLE meters ALTER COLUMN last_attempt_error_message TYPE varchar(9000), ALTER COLUMN amount DROP NOT NULL;
             INSERT INTO meters (id, amount, next_attempt_time) VALUES (1, NULL, '2026-01-01'), (2, 2, '2026-01-02')",
        )
        .unwrap();
    let mut count = |status| Plain::queue().counts_by_status(&mut connection).unwrap().of(status);
    while count(Status::Error) + count(Status::Success) < 2 {
        std::thread::yield_now();
    }
    assert_eq!((count(Status::Error), count(Status::Success)), (1, 1));
    handle.shutdown(std::time::Duration::from_secs(30));
}
