//! A session keeps only a few prepared statements, whatever the numbers of rows in its statements.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use queue_core::internals::RowKey;
use queueable::{ClaimStyle, Failure, Lease, Message, Outcome, Poller, Queueable};

use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, Payment, payment_queue, payments};
use crate::suite::group::{Grouped, Optimistic};
use crate::suite::keyed::erased;
use crate::suite::lease::Charge;

/// The most that a session keeps: about as many as there are kinds of statements and powers of two.
const FEW: i64 = 60;

/// The most that a worker keeps.
const FEW_OF_A_WORKER: i64 = 40;

#[derive(QueryableByName)]
struct Kept {
    #[diesel(sql_type = BigInt)]
    kept: i64,
}

#[derive(QueryableByName)]
struct Counter {
    #[diesel(sql_type = Text, column_name = "Variable_name")]
    name: String,
    #[diesel(sql_type = Text, column_name = "Value")]
    value: String,
}

/// How many prepared statements this session keeps. The query itself is not kept.
pub(super) fn kept(connection: &mut Conn) -> i64 {
    if NAME == "postgres" {
        let query = diesel::sql_query("SELECT count(*) AS kept FROM pg_prepared_statements");
        return query.get_result::<Kept>(connection).unwrap().kept;
    }
    let counters: Vec<Counter> =
        diesel::sql_query("SHOW SESSION STATUS WHERE Variable_name IN ('Com_stmt_prepare', 'Com_stmt_close')")
            .load(connection)
            .unwrap();
    let of =
        |name: &str| -> i64 { counters.iter().find(|counter| counter.name == name).unwrap().value.parse().unwrap() };
    of("Com_stmt_prepare") - of("Com_stmt_close")
}

/// The most prepared statements that handlers have seen.
#[derive(Clone, Default)]
struct Most(Arc<AtomicI64>);

impl Most {
    fn sees(&self, connection: &mut Conn) {
        self.0.fetch_max(kept(connection), Ordering::SeqCst);
    }

    fn assert_few(&self) {
        let most = self.0.load(Ordering::SeqCst);
        assert!((1..=FEW_OF_A_WORKER).contains(&most), "{most} prepared statements");
    }
}

#[test]
fn operations_of_all_sizes_keep_few_statements() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    for size in 1_u32..=90 {
        bank.enqueue(1..=i64::from(size));
        connection
            .batch_execute(
                "UPDATE payments SET status = 'FAILED', next_attempt_time = NULL,
                     last_attempt_time = '2026-01-01 00:00:00.000', last_attempt_error_message = 'no route'",
            )
            .unwrap();
        let all = Payment::queue().all_rows();
        all.dry_run().purge(&mut connection, Duration::from_secs(size.into())).unwrap();
        assert_eq!(Payment::queue().load_some(&mut connection, size).unwrap().len(), size as usize);
        let report = Payment::queue().errors(&mut connection).unwrap();
        assert_eq!(all.retry_error_group(&mut connection, &report.groups[0]).unwrap(), size as usize);
        all.stop(&mut connection).unwrap();
        all.clone().batch(size / 2 + 1).enqueue_existing().run(&mut connection, |_| {}).unwrap();
        connection
            .batch_execute(
                "UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL,
                     last_attempt_time = '2026-01-01 00:00:00.000', last_attempt_error_message = NULL",
            )
            .unwrap();
        let purged = all.batch(size / 3 + 1).purge(&mut connection, Duration::from_secs(u64::from(size) * 7));
        assert_eq!(purged.unwrap(), size as usize);
    }
    let kept = kept(&mut connection);
    assert!((1..=FEW).contains(&kept), "{kept} prepared statements");
}

/// Whether a message fails. The failures are spread so that groups of all sizes occur.
fn fails(amount: i64) -> bool {
    (amount * amount) % 37 == 1
}

macro_rules! groups {
    ($entity:ident) => {{
        let bank = Bank::new();
        let most = Most::default();
        let seen = most.clone();
        let (handled, each) = mpsc::channel();
        let handler = move |row: &$entity, message: &mut Message<'_, Conn>| {
            seen.sees(message.connection());
            handled.send(()).unwrap();
            match fails(row.payment().amount_cents) {
                true => Err(Failure::retry("not now")),
                false => Ok(Outcome::Done),
            }
        };
        let handle = $entity::poller(bank.pool(1), handler).workers(1).start().unwrap();
        for rows in 1..=60 {
            bank.enqueue(1..=rows);
            handle.wake();
            (0..rows).for_each(|_| each.recv_timeout(Duration::from_secs(60)).unwrap());
        }
        drop(handle);
        most.assert_few();
    }};
}

#[test]
fn groups_of_all_sizes_keep_few_statements() {
    groups!(Grouped);
}

#[test]
fn optimistic_groups_of_all_sizes_keep_few_statements() {
    groups!(Optimistic);
}

#[test]
fn messages_that_are_passed_over_keep_few_statements() {
    let bank = Bank::new();
    bank.enqueue(1..=400);
    let most = Most::default();
    let seen = most.clone();
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        seen.sees(message.connection());
        match payment.amount_cents % 3 {
            0 => Err(Failure::retry_after(Duration::from_millis(600_000 + payment.id.unsigned_abs()), "not now")),
            1 => Ok(Outcome::again_in(Duration::from_millis(600_000 + payment.id.unsigned_abs()))),
            _ => Ok(Outcome::Done),
        }
    });
    assert_eq!(tally.succeeded + tally.retried + tally.again, 400);
    most.assert_few();
}

fn leases(set: impl FnOnce(Poller<Conn>) -> Poller<Conn>) {
    let bank = Bank::new();
    bank.enqueue(1..=600);
    let most = Most::default();
    let (seen, last) = (most.clone(), Mutex::new(0));
    let handler = (
        |_: &Charge, _: &Lease| Ok(()),
        move |charge: &Charge, _: &(), message: &mut Message<'_, Conn>| {
            seen.sees(message.connection());
            *last.lock().unwrap() = charge.id;
            match fails(charge.amount_cents) {
                true => Err(Failure::retry("not now")),
                false => Ok(Outcome::Done),
            }
        },
    );
    set(Charge::poller(bank.pool(3), handler).workers(1)).run_until_idle().unwrap();
    most.assert_few();
}

#[test]
fn claims_under_leases_keep_few_statements() {
    leases(|poller| poller);
    leases(|poller| poller.claim_batch(37));
    leases(|poller| poller.claim_style(ClaimStyle::UpdateThenSelect).claim_batch(37));
}

#[test]
fn keys_of_all_numbers_are_claimed_by_few_statements() {
    use queue_core::internals::claim_some;
    use queue_core::internals::statement::Scope;
    let bank = Bank::new();
    let ids = bank.enqueue(1..=70);
    let mut connection = bank.connect();
    for size in 1..=69 {
        let except: Vec<_> = ids[..size].iter().map(|id| RowKey::new(*id, id.to_string())).collect();
        let scope = Scope { except: &except, ..Scope::ALL };
        let limit = u32::try_from(size).unwrap();
        let claimed = connection
            .transaction(|connection| claim_some(erased::<Payment>(), connection, true, limit, scope))
            .unwrap();
        assert_eq!(claimed.len(), size.min(70 - size));
    }
    let (now, kept) = (payments::table.filter(payment_queue::next_attempt_time.is_not_null()), kept(&mut connection));
    assert_eq!(now.count().get_result(&mut connection), Ok(70_i64));
    assert!((1..=FEW).contains(&kept), "{kept} prepared statements");
}
