//! Stopped rows come back by `restart`, whatever made them due; pending rows can be skipped.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Failure, Message, Migrations, Outcome, Queueable, Status};

use crate::db::{BIGINT, Conn, Database};
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};

diesel::table! {
    chimes (id) { id -> BigInt, }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = chimes)]
#[queue(periodic, retry = fixed("1h"), max_tries = 3, timeout = "30s")]
#[expect(dead_code, reason = "it is operated on, and read by nobody")]
struct Chime {
    id: i64,
}

#[test]
fn a_finished_row_that_own_sql_made_due_can_be_stopped_and_restarted() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2, 3]);
    bank.run(|payment: &Payment, message: &mut Message<'_, Conn>| match payment.amount_cents {
        1 => book(payment, message),
        2 => Err(Failure::fatal("void")),
        _ => Ok(Outcome::Skip),
    });
    let statuses = || ids.iter().map(|id| bank.state(*id).status).collect::<Vec<_>>();
    assert_eq!(statuses(), [Status::Success, Status::Failed, Status::Skipped]);
    let now = payment_queue::next_attempt_time.eq(queueable::columns::Now);
    diesel::update(payments::table).set(now).execute(&mut bank.connect()).unwrap();
    let queue = || Payment::queue().filter(payments::id.eq_any(ids.clone()));
    assert_eq!(queue().stop(&mut bank.connect()).unwrap(), 3);
    assert!(ids.iter().all(|id| bank.state(*id).next_attempt_time.is_none()));
    assert_eq!(bank.run(book).succeeded, 0);
    let text = bank.state(ids[1]).last_attempt_error_message;
    assert_eq!(text.as_deref(), Some("void"), "the failure can be read still");
    assert_eq!(queue().dry_run().restart(&mut bank.connect()).unwrap().rows, 3);
    assert_eq!(queue().restart(&mut bank.connect()).unwrap(), 3);
    assert_eq!(bank.run(book).succeeded, 3);
    assert_eq!(bank.booked(), [ids[0], ids[0], ids[1], ids[2]]);
    assert_eq!(queue().restart(&mut bank.connect()).unwrap(), 0, "what is finished is left alone");
}

#[test]
fn a_finished_row_that_own_sql_made_due_can_be_skipped() {
    let bank = Bank::new();
    let ids = bank.enqueue([1, 2]);
    bank.run(book);
    let now = payment_queue::next_attempt_time.eq(queueable::columns::Now);
    diesel::update(payments::table.find(ids[0])).set(now).execute(&mut bank.connect()).unwrap();
    let queue = || Payment::queue().filter(payments::id.eq_any(ids.clone()));
    assert_eq!(queue().dry_run().skip(&mut bank.connect()).unwrap().rows, 1);
    assert_eq!(queue().skip(&mut bank.connect()).unwrap(), 1);
    assert_eq!(bank.run(book).succeeded, 0);
    assert_eq!((bank.state(ids[0]).status, bank.state(ids[1]).status), (Status::Skipped, Status::Success));
}

#[test]
fn a_periodic_row_can_be_skipped_after_its_first_success_also_while_it_is_stopped() {
    for stopped in [false, true] {
        let database = Database::new();
        let mut connection = database.connect();
        connection.batch_execute(&format!("CREATE TABLE chimes (id {BIGINT} PRIMARY KEY NOT NULL)")).unwrap();
        connection.run_pending_migrations(Migrations::new().entity::<Chime>()).unwrap();
        diesel::insert_into(chimes::table)
            .values((chimes::id.eq(1), Chime::due_now(), chime_queue::period.eq(3600)))
            .execute(&mut connection)
            .unwrap();
        let ring = |_: &Chime, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        assert_eq!(Chime::poller(database.pool(3), ring).workers(1).run_until_idle().unwrap().succeeded, 1);
        let queue = || Chime::queue().filter(chimes::id.eq(1));
        if stopped {
            assert_eq!(queue().stop(&mut connection).unwrap(), 1);
        }
        assert_eq!(queue().skip(&mut connection).unwrap(), 1);
        let state: queueable::QueueState =
            chimes::table.find(1).select(Chime::queue_state()).get_result(&mut connection).unwrap();
        assert_eq!((state.status, state.next_attempt_time), (Status::Skipped, None));
        assert_eq!(queue().restart(&mut connection).unwrap(), 0);
    }
}
