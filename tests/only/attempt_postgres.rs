//! The attempt's promises that only PostgreSQL can break.

use std::sync::Mutex;

use diesel::connection::SimpleConnection;
use diesel::pg::Pg;
use diesel::prelude::*;
use queue_core::internals::backend::Sql;
use queue_core::internals::statement::{Claim, finish, lock_leased, lock_version, prefetch_rows};
use queueable::{Message, Outcome, Queueable, Status};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment, book, ledger, payments};
use crate::suite::group::{enqueue_group, entity, run};
use crate::suite::keyed::queue;

entity!(Dying, dying_queue, group = 50);

#[test]
fn a_child_row_can_be_inserted_while_its_parent_is_handled() {
    let bank = Bank::new();
    bank.connect().batch_execute("CREATE TABLE notes (payment_id BIGINT NOT NULL REFERENCES payments (id))").unwrap();
    bank.enqueue([1]);
    let application = Mutex::new(bank.connect());
    let tally = bank.run(move |payment: &Payment, _: &mut Message<'_, Conn>| {
        let mut application = application.lock().unwrap();
        // If the worker locked the payment with FOR UPDATE, this insert and the handler would wait for each other.
        application.batch_execute("SET lock_timeout = '5s'")?;
        diesel::sql_query("INSERT INTO notes VALUES ($1)")
            .bind::<diesel::sql_types::BigInt, _>(payment.id)
            .execute(&mut *application)?;
        Ok(Outcome::Done)
    });
    assert_eq!(tally.succeeded, 1);
}

#[test]
fn a_row_with_a_child_insert_in_flight_is_claimed_all_the_same() {
    let bank = Bank::new();
    bank.connect().batch_execute("CREATE TABLE notes (payment_id BIGINT NOT NULL REFERENCES payments (id))").unwrap();
    let id = bank.enqueue([1])[0];
    let mut application = bank.connect();
    application.batch_execute(&format!("BEGIN; INSERT INTO notes VALUES ({id})")).unwrap();
    assert_eq!(bank.run(book).succeeded, 1);
    application.batch_execute("COMMIT").unwrap();
}

/// What may happen to a session in its COMMIT: the server ends it, or an operator cancels its statement.
const MISHAPS: [&str; 2] =
    ["pg_terminate_backend(pg_backend_pid())", "pg_cancel_backend(pg_backend_pid()), pg_sleep(60)"];

/// Makes this happen to the session that first commits a booking of this amount.
fn mishap_in_commit(bank: &Bank, mishap: &str, amount: i64) {
    bank.connect()
        .batch_execute(&format!(
            "CREATE SEQUENCE mishaps;
             CREATE FUNCTION happen_once() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF NEW.amount_cents = {amount} AND nextval('mishaps') = 1 THEN PERFORM {mishap}; END IF;
                 RETURN NULL;
             END $$;
             CREATE CONSTRAINT TRIGGER happen_once AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION happen_once()"
        ))
        .unwrap();
}

#[test]
fn a_session_that_is_ended_or_cancelled_in_its_commit_is_found_out_and_the_row_runs_again() {
    for mishap in MISHAPS {
        let bank = Bank::new();
        mishap_in_commit(&bank, mishap, 1);
        let id = bank.enqueue([1])[0];
        let tally = bank.run(book);
        assert_eq!((tally.interrupted, tally.succeeded), (1, 1), "{mishap}");
        assert_eq!(bank.booked(), [id]);
        let state = bank.state(id);
        assert_eq!((state.status, state.try_count), (Status::Success, 1));
    }
}

#[test]
fn a_session_that_is_ended_or_cancelled_in_the_commit_of_a_group_is_found_out_and_its_rows_run_again() {
    for mishap in MISHAPS {
        let bank = Bank::new();
        mishap_in_commit(&bank, mishap, 3);
        let ids = enqueue_group(&bank, 4, 1..=4);
        let tally = run::<Dying>(&bank, |row: &Dying, message: &mut Message<'_, Conn>| book(&row.payment(), message));
        assert_eq!((tally.interrupted, tally.succeeded), (4, 3 + 4), "{mishap}");
        assert_eq!(bank.booked().len(), 7);
        assert!(ids.iter().all(|id| (bank.state(*id).status, bank.state(*id).try_count) == (Status::Success, 1)));
    }
}

#[test]
fn a_text_that_the_servers_encoding_cannot_take_is_stored_as_ascii() {
    let bank = Bank::new();
    // The column's check refuses the text, as an encoding without this character would.
    bank.connect().batch_execute("ALTER TABLE payments ADD CHECK (last_attempt_error_message ~ '^[ -~]*$')").unwrap();
    let id = bank.enqueue([1])[0];
    bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| {
        let _ = book(payment, message)?;
        Err(queueable::Failure::retry("no caf\u{e9}"))
    });
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert_eq!(state.last_attempt_error_message.as_deref(), Some("no caf?"));
    assert!(bank.booked().is_empty());
}

#[test]
fn a_table_altered_while_workers_run_costs_no_try() {
    let bank = Bank::new();
    let (ids, application) = (bank.enqueue([1, 2]), Mutex::new(bank.connect()));
    let altered = Mutex::new(false);
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        // The first message's prepared insert has a plan for the old table.
        diesel::insert_into(ledger::table)
            .values((ledger::payment_id.eq(payment.id), ledger::amount_cents.eq(1)))
            .returning(ledger::all_columns)
            .get_result::<(i64, i64, i64)>(message.connection())?;
        if payment.amount_cents == 1 && !std::mem::replace(&mut *altered.lock().unwrap(), true) {
            application.lock().unwrap().batch_execute("ALTER TABLE companies ADD COLUMN note TEXT")?;
        }
        Ok(Outcome::Done)
    });
    assert_eq!(tally.succeeded, 2);
    assert_eq!(bank.booked(), ids);
}

#[test]
fn the_sql_of_what_is_prepared_to_travel_with_other_statements() {
    let finish_row = diesel::debug_query::<Pg, _>(&Sql::new(&finish(queue::<Payment>(), false))).to_string();
    let finish_lease = diesel::debug_query::<Pg, _>(&Sql::new(&finish(queue::<Payment>(), true))).to_string();
    let hold = diesel::debug_query::<Pg, _>(&Sql::new(&lock_leased(queue::<Payment>()))).to_string();
    let lock = diesel::debug_query::<Pg, _>(&Sql::new(&lock_version(queue::<Payment>()))).to_string();
    let read = diesel::debug_query::<Pg, _>(&Sql::new(&prefetch_rows(Claim::new::<Payment>(), 16))).to_string();
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("postgres_at_once", [finish_row, finish_lease, hold, lock, read].join("\n\n"));
    });
}
