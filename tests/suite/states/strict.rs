//! Strict accounting claims a row twice, and checks its condition twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queueable::{CrashAccounting, Message, Outcome, Queueable, Status};

use crate::db::{self, Conn};
use crate::suite::bank::{Bank, payments};

/// A payment of company 1.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = of_one_queue, timeout = "30s", claim_if = "payments::company_id.eq(1_i64)")]
#[expect(dead_code, reason = "it is claimed, and read by nobody")]
struct OfOne {
    id: i64,
}

/// Makes a trigger that gives a payment to company 2 when a text is written on it. Another session may do the same
/// between the two claims.
fn give_away() -> &'static str {
    match db::NAME {
        "postgres" => {
            "CREATE FUNCTION give_away() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN NEW.company_id := 2; RETURN NEW; END $$;
             CREATE TRIGGER give_away BEFORE UPDATE OF last_attempt_error_message ON payments
                 FOR EACH ROW WHEN (NEW.last_attempt_error_message IS NOT NULL) EXECUTE FUNCTION give_away()"
        }
        "mysql" => {
            "CREATE TRIGGER give_away BEFORE UPDATE ON payments FOR EACH ROW
                 SET NEW.company_id = CASE WHEN NEW.last_attempt_error_message IS NULL THEN NEW.company_id ELSE 2 END"
        }
        _ => {
            "CREATE TRIGGER give_away AFTER UPDATE OF last_attempt_error_message ON payments
                 WHEN NEW.last_attempt_error_message IS NOT NULL
                 BEGIN UPDATE payments SET company_id = 2 WHERE id = NEW.id; END"
        }
    }
}

#[test]
fn under_strict_accounts_a_row_whose_condition_no_longer_holds_is_not_handled() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    bank.connect().batch_execute(give_away()).unwrap();
    let runs = Arc::<AtomicU32>::default();
    let ran = runs.clone();
    let tally = OfOne::poller(bank.pool(1), move |_: &OfOne, _: &mut Message<'_, Conn>| {
        ran.fetch_add(1, Ordering::Relaxed);
        Ok(Outcome::Done)
    })
    .workers(1)
    .crash_accounting(CrashAccounting::Strict)
    .run_until_idle()
    .unwrap();
    assert_eq!((runs.load(Ordering::Relaxed), tally.succeeded), (0, 0));
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count, state.last_attempt_error_message), (Status::NotAttempted, 0, None));
    assert!(state.next_attempt_time.is_some(), "it is due when its condition holds again");
}

#[test]
fn under_strict_accounts_too_a_handler_cannot_make_its_own_row_due_unseen() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    let tally = OfOne::poller(bank.pool(1), move |_: &OfOne, message: &mut Message<'_, Conn>| {
        diesel::update(payments::table.find(id)).set(OfOne::due_now()).execute(message.connection())?;
        Ok(Outcome::Done)
    })
    .workers(1)
    .crash_accounting(CrashAccounting::Strict)
    .run_until_idle()
    .unwrap();
    assert_eq!((tally.succeeded, tally.retried), (0, 1));
    let state = bank.state(id);
    assert_eq!((state.status, state.try_count), (Status::Error, 1));
    assert!(state.last_attempt_error_message.unwrap().contains("changed its queue columns"));
}
