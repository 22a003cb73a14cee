//! Migrations at the same time: several processes start at once, or a server still runs a statement of a killed one.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::migration::{Migration, MigrationSource};
use diesel::prelude::*;
use queueable::{Migrations, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, payments};

#[test]
fn a_queue_that_appears_while_it_is_added_is_taken_as_it_is() {
    let bank = Bank::before_the_queue();
    let mut application = bank.connect();
    application
        .batch_execute("BEGIN; INSERT INTO payments (company_id, amount_cents) VALUES (1, 100)")
        .expect("the application may write");

    let (done, all_done) = mpsc::channel::<()>();
    let adding: Vec<_> = (0..3)
        .map(|_| {
            let (mut connection, done) = (bank.connect(), done.clone());
            thread::spawn(move || {
                let _done = done;
                add_queue(&mut connection)
            })
        })
        .collect();
    drop(done);
    // Time for all of them to see that the columns are missing, and to wait for the application. A late process would
    // find the columns there, and the test would show less.
    assert!(all_done.recv_timeout(Duration::from_millis(300)).is_err_and(|end| end == mpsc::RecvTimeoutError::Timeout));
    application.batch_execute("COMMIT").expect("the application may commit");

    for process in adding {
        process.join().expect("no thread panics").expect("the queue is there, whoever added it");
    }
    let state = payments::table.select(Payment::queue_state()).get_result::<queueable::QueueState>(&mut application);
    assert_eq!(state.map(|state| (state.status, state.try_count)), Ok((Status::NotAttempted, 0)));
    assert_eq!(bank.run(book).succeeded, 0, "old rows are not queued");
}

/// Runs the migrations without Diesel's own record of them, which only one of several processes can write.
fn add_queue(connection: &mut Conn) -> diesel::migration::Result<()> {
    let migrations = Migrations::<<Conn as Connection>::Backend>::new().entity::<Payment>().migrations()?;
    migrations.iter().try_for_each(|migration| migration.run(connection))
}
