//! In a strictly serial lane a row on which the database refuses to write holds back those behind it. Other lanes go on,
//! and the run ends.

use std::sync::{Arc, Mutex};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{HandlerResult, Lease, Message, Migrations, Outcome, Poller, Queueable, Status, StoredIn};

use super::Backend;
use crate::db::{Conn, KEEP_SEVEN, PUT_SEVEN_BACK, REFUSE_SEVEN, REFUSE_STATE_OF_SEVEN};
use crate::suite::bank::{Bank, payments};

macro_rules! payment {
    ($name:ident, $module:ident, $($settings:tt)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        #[queue(module = $module, retry = fixed("1h"), max_tries = 3, timeout = "30s", serial_by(company_id, strict), $($settings)*)]
        struct $name {
            id: i64,
            #[allow(dead_code, reason = "the lane")]
            company_id: i64,
        }
    };
}

payment!(Strict, strict_queue,);
payment!(StrictGroup, strict_group_queue, group = 4);
payment!(StrictLease, strict_lease_queue, lease = "60s");

/// The payments in the order in which their handlers began.
type Begun = Arc<Mutex<Vec<i64>>>;

/// How many payments of each company are refused: more than a claim passes over by their keys.
const COMPANIES: i64 = 60;

fn bank_of<Q>() -> Bank
where
    Q: StoredIn<Backend> + 'static,
{
    let bank = Bank::before_the_queue();
    bank.connect().run_pending_migrations(Migrations::new().entity::<Q>()).unwrap();
    bank
}

/// The first payment of most companies is one of 7 cents, and another one is behind it. The last company has a sound one.
fn enqueue(bank: &Bank) -> i64 {
    let due = |id: i64| format!("'2026-01-01 00:{:02}:{:02}.000'", id / 60, id % 60);
    let first = (1..=COMPANIES).map(|company| format!("({company}, 7, {})", due(company)));
    let second = (1..=COMPANIES).map(|company| format!("({company}, 8, {})", due(COMPANIES + company)));
    let last = [format!("({}, 8, {})", COMPANIES + 1, due(2 * COMPANIES + 1))];
    let rows: Vec<_> = first.chain(second).chain(last).collect();
    let insert =
        format!("INSERT INTO payments (company_id, amount_cents, next_attempt_time) VALUES {}", rows.join(", "));
    bank.connect().batch_execute(&insert).unwrap();
    2 * COMPANIES + 1
}

macro_rules! a_refusal_holds_back {
    ($entity:ident, $module:ident, $poller:expr) => {
        for trigger in [REFUSE_SEVEN, KEEP_SEVEN, PUT_SEVEN_BACK, REFUSE_STATE_OF_SEVEN] {
            let (bank, begun) = (bank_of::<$entity>(), Begun::default());
            let sound = enqueue(&bank);
            bank.connect().batch_execute(trigger).unwrap();
            let poller: fn(&Bank, Begun) -> Poller<Conn> = $poller;
            let tally = poller(&bank, begun.clone()).workers(2).run_until_idle().unwrap();
            let behind: Vec<_> = begun.lock().unwrap().iter().copied().filter(|id| *id > COMPANIES).collect();
            assert_eq!(behind, [sound], "{trigger}: {tally:?}");
            let succeeded = payments::table.filter($module::status.eq(Status::Success)).select(payments::id);
            assert_eq!(succeeded.load::<i64>(&mut bank.connect()), Ok(vec![sound]), "{trigger}: {tally:?}");
            assert!(tally.refused >= COMPANIES.unsigned_abs(), "{trigger}: {tally:?}");
        }
    };
}

macro_rules! noting {
    ($entity:ident) => {
        |bank, begun| {
            let handler = move |payment: &$entity, _: &mut Message<'_, Conn>| -> HandlerResult {
                begun.lock().unwrap().push(payment.id);
                Ok(Outcome::Done)
            };
            $entity::poller(bank.pool(4), handler)
        }
    };
}

#[test]
fn a_payment_that_is_refused_holds_its_company_back_in_a_transaction() {
    a_refusal_holds_back!(Strict, strict_queue, noting!(Strict));
}

#[test]
fn a_payment_that_is_refused_holds_its_company_back_in_groups() {
    a_refusal_holds_back!(StrictGroup, strict_group_queue, noting!(StrictGroup));
}

#[test]
fn a_payment_that_is_refused_holds_its_company_back_under_a_lease() {
    a_refusal_holds_back!(StrictLease, strict_lease_queue, |bank, begun| {
        let call = move |payment: &StrictLease, _: &Lease| {
            begun.lock().unwrap().push(payment.id);
            Ok(())
        };
        let apply = |_: &StrictLease, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        StrictLease::poller(bank.pool(4), (call, apply))
    });
}
