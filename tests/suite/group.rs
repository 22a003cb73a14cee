//! Many messages, one transaction: no message has an effect on the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use diesel::prelude::*;
use queueable::bounds::HandlerFor;
use queueable::bounds::QueueOn;
use queueable::{Failure, HandlerResult, Message, Outcome, Queueable, Status, Tally};

use crate::db::{Conn, KEEP_SEVEN};
use crate::suite::bank::{Bank, Payment, book, companies, ledger, payment_queue, payments};
use queue_core::internals::backend::{Dialect, SessionSetup};

/// An entity on the bank's payments. On SQLite, which has one writer, the default timeout is one second.
macro_rules! entity {
    ($name:ident, $module:ident, timeout = $timeout:tt, $($settings:tt)*) => {
        #[derive(Debug, Clone, Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        #[queue(module = $module, retry = fixed("1h"), max_tries = 3, timeout = $timeout, $($settings)*)]
        pub(crate) struct $name {
            id: i64,
            company_id: i64,
            amount_cents: i64,
        }

        impl $name {
            pub(crate) fn payment(&self) -> Payment {
                Payment { id: self.id, company_id: self.company_id, amount_cents: self.amount_cents }
            }
        }
    };
    ($name:ident, $module:ident, $($settings:tt)*) => {
        entity!($name, $module, timeout = "30s", $($settings)*);
    };
}
pub(crate) use entity;

entity!(Grouped, grouped_queue, group = 50);
entity!(Optimistic, optimistic_queue, group(50, optimistic));
entity!(ByCompany, by_company_queue, group = 50, order_in_group = company_id);
// A group takes no further message when half of this time is over.
entity!(Large, large_queue, timeout = "10m", group = 200);

pub(crate) fn run<Q: QueueOn<Conn>>(bank: &Bank, handler: impl HandlerFor<Q, Conn> + 'static) -> Tally {
    Q::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap()
}

/// Makes as many rows due as the next group needs to have `size` rows, a power of two; then these payments.
pub(crate) fn enqueue_group(bank: &Bank, size: usize, amounts: impl IntoIterator<Item = i64>) -> Vec<i64> {
    bank.enqueue(vec![0; size - 1]);
    bank.enqueue(amounts)
}

/// Tells apart the transactions in which messages ran, by the rows of the ledger that others see meanwhile.
struct Watch {
    outside: Mutex<Conn>,
    seen: Mutex<Vec<(i64, i64)>>,
}

impl Watch {
    fn new(bank: &Bank) -> Arc<Self> {
        Arc::new(Watch { outside: Mutex::new(bank.connect()), seen: Mutex::default() })
    }

    fn sees(&self, id: i64) {
        let committed: i64 = ledger::table.count().get_result(&mut *self.outside.lock().unwrap()).unwrap();
        self.seen.lock().unwrap().push((committed, id));
    }

    /// The messages, by transaction.
    fn groups(&self) -> Vec<Vec<i64>> {
        let seen = self.seen.lock().unwrap();
        seen.chunk_by(|one, other| one.0 == other.0).map(|group| group.iter().map(|seen| seen.1).collect()).collect()
    }

    fn sizes(&self) -> Vec<usize> {
        self.groups().iter().map(Vec::len).collect()
    }
}

/// Returns the ids of the payments in the ledger with an amount other than zero. The payments that fill up groups have
/// none.
pub(crate) fn booked(bank: &Bank) -> Vec<i64> {
    let booked = ledger::table.filter(ledger::amount_cents.ne(0)).order(ledger::payment_id);
    booked.select(ledger::payment_id).load(&mut bank.connect()).unwrap()
}

fn text(bank: &Bank, id: i64) -> String {
    bank.state(id).last_attempt_error_message.unwrap_or_default()
}

#[test]
fn the_successes_of_a_group_commit_at_once_and_its_failures_follow_their_policy() {
    let bank = Bank::new();
    bank.enqueue([0; 63]);
    let ids = bank.enqueue((1..=50).map(|amount| if amount % 10 == 0 { -1 } else { amount }));
    let watch = Watch::new(&bank);
    let watching = watch.clone();
    let tally = run::<Grouped>(&bank, move |grouped: &Grouped, message: &mut Message<'_, Conn>| {
        watching.sees(grouped.id);
        let _ = book(&grouped.payment(), message)?;
        if grouped.amount_cents < 0 { Err(Failure::retry("no route to the bank")) } else { Ok(Outcome::Done) }
    });
    assert_eq!((tally.succeeded, tally.retried), (63 + 45, 5));
    assert_eq!(watch.groups().last(), Some(&ids), "one transaction, of which nothing is seen before its end");
    let failed = |id: &&i64| (*id - ids[0] + 1) % 10 == 0;
    assert_eq!(booked(&bank), ids.iter().filter(|id| !failed(id)).copied().collect::<Vec<_>>());
    for id in &ids {
        let state = bank.state(*id);
        let expected = if failed(&id) { (Status::Error, 1, true) } else { (Status::Success, 1, false) };
        assert_eq!((state.status, state.try_count, state.next_attempt_time.is_some()), expected);
        assert_eq!(state.last_attempt_error_message.as_deref(), failed(&id).then_some("no route to the bank"));
        assert!(state.last_attempt_time.is_some());
    }
    assert_eq!(bank.balance(1), (1..=50).filter(|amount| amount % 10 != 0).sum::<i64>());
}

#[test]
fn a_backlog_grows_the_groups_from_a_single_message_and_a_failure_halves_them() {
    let bank = Bank::new();
    let ids = bank.enqueue([1; 40]);
    let (watch, failing) = (Watch::new(&bank), ids[10]);
    let watching = watch.clone();
    run::<Grouped>(&bank, move |grouped: &Grouped, message: &mut Message<'_, Conn>| {
        watching.sees(grouped.id);
        if grouped.id == failing { Err(Failure::retry("no")) } else { book(&grouped.payment(), message) }
    });
    assert_eq!(watch.sizes(), [1, 2, 4, 8, 4, 8, 13]);
    assert_eq!(watch.groups().concat(), ids, "the longest due first");
}

#[test]
fn a_group_is_as_large_as_it_may_be_but_has_no_more_savepoints_than_the_database_likes() {
    let bank = Bank::new();
    bank.enqueue(vec![1; 500]);
    let watch = Watch::new(&bank);
    let watching = watch.clone();
    run::<Large>(&bank, move |large: &Large, message: &mut Message<'_, Conn>| {
        watching.sees(large.id);
        book(&large.payment(), message)
    });
    let most = [200, <<Conn as diesel::Connection>::Backend as Dialect>::MOST_SAVEPOINTS].into_iter().min();
    assert_eq!(watch.sizes().into_iter().max(), most.and_then(|most| usize::try_from(most).ok()));
    assert_eq!(bank.booked().len(), 500);
}

#[test]
fn a_panic_in_a_group_is_a_failure_of_its_row_and_its_neighbours_succeed() {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 8, [1, 2, 3, 4]);
    let tally = run::<Grouped>(&bank, |grouped: &Grouped, message: &mut Message<'_, Conn>| {
        let _ = book(&grouped.payment(), message)?;
        assert_ne!(grouped.amount_cents, 2, "two is odd");
        Ok(Outcome::Done)
    });
    assert_eq!((tally.succeeded, tally.retried), (7 + 3, 1));
    assert_eq!(booked(&bank), [ids[0], ids[2], ids[3]]);
    assert!(text(&bank, ids[1]).contains("two is odd"));
}

#[test]
fn every_outcome_in_a_group_becomes_a_state_of_its_row() {
    let bank = Bank::new();
    // The message that runs again comes first: the group leaves its mark on the first row.
    let ids = enqueue_group(&bank, 4, [3, 1, 2, 4]);
    let tally = run::<Grouped>(&bank, |grouped: &Grouped, message: &mut Message<'_, Conn>| {
        let _ = book(&grouped.payment(), message)?;
        Ok(match grouped.amount_cents {
            0 | 1 => Outcome::Done,
            2 => Outcome::Delete,
            3 => Outcome::again_in(std::time::Duration::from_secs(3600)),
            _ => Outcome::Skip,
        })
    });
    assert_eq!((tally.succeeded, tally.again, tally.skipped), (3 + 2, 1, 1));
    assert_eq!(booked(&bank), ids, "the effects of all four are committed");
    let again = bank.state(ids[0]);
    assert_eq!((again.status, again.try_count, again.last_attempt_error_message), (Status::NotAttempted, 0, None));
    assert_eq!((bank.state(ids[1]).status, bank.state(ids[3]).status), (Status::Success, Status::Skipped));
    let left: i64 = payments::table.find(ids[2]).count().get_result(&mut bank.connect()).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn tries_go_on_in_groups_and_begin_anew_for_a_finished_row() {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 4, [1, 2, 3, 4]);
    let fail = |_: &Grouped, _: &mut Message<'_, Conn>| Err(Failure::retry("no"));
    let finish = |_: &Grouped, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    run::<Grouped>(&bank, fail);
    // Two tries for the first half, and two successes for the other, all made due again by one column alone.
    let half = || payments::table.filter(payments::id.le(ids[1]));
    let other_half = || payments::table.filter(payments::id.gt(ids[1]));
    let now = || payment_queue::next_attempt_time.eq(queueable::columns::Now);
    diesel::update(half()).set(now()).execute(&mut bank.connect()).unwrap();
    run::<Grouped>(&bank, fail);
    diesel::update(other_half()).set(now()).execute(&mut bank.connect()).unwrap();
    run::<Grouped>(&bank, finish);
    assert_eq!((bank.state(ids[1]).try_count, bank.state(ids[2]).try_count), (2, 2));
    diesel::update(payments::table).set(now()).execute(&mut bank.connect()).unwrap();
    let tries = Arc::new(Mutex::new(Vec::new()));
    let seen = tries.clone();
    run::<Grouped>(&bank, move |grouped: &Grouped, message: &mut Message<'_, Conn>| {
        seen.lock().unwrap().push((grouped.id, message.try_number()));
        Ok(Outcome::Done)
    });
    let tries = tries.lock().unwrap();
    assert!(ids.iter().zip([3, 3, 1, 1]).all(|(id, tried)| tries.contains(&(*id, tried))), "{tries:?}");
    let counts: Vec<_> = ids.iter().map(|id| (bank.state(*id).status, bank.state(*id).try_count)).collect();
    assert_eq!(counts, [(Status::Success, 3), (Status::Success, 3), (Status::Success, 1), (Status::Success, 1)]);
}

#[test]
fn a_group_is_handled_in_the_order_of_its_column() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    let row = |number: i64| {
        ((payments::company_id.eq(1 + number * 7 % 3), payments::amount_cents.eq(number)), ByCompany::due_now())
    };
    for number in 0..31 {
        diesel::insert_into(payments::table).values(row(number)).execute(&mut connection).unwrap();
    }
    diesel::insert_into(companies::table).values(companies::id.eq(3)).execute(&mut connection).unwrap();
    let (watch, companies) = (Watch::new(&bank), Arc::new(Mutex::new(Vec::new())));
    let (watching, seen) = (watch.clone(), companies.clone());
    run::<ByCompany>(&bank, move |by_company: &ByCompany, message: &mut Message<'_, Conn>| {
        watching.sees(by_company.id);
        seen.lock().unwrap().push((by_company.company_id, by_company.id));
        book(&by_company.payment(), message)
    });
    assert_eq!(watch.sizes(), [1, 2, 4, 8, 16]);
    let mut seen = &companies.lock().unwrap()[..];
    for size in watch.sizes() {
        let (group, rest) = seen.split_at(size);
        assert!(group.is_sorted(), "by company, and within it by age: {group:?}");
        seen = rest;
    }
}

#[test]
fn an_optimistic_group_with_a_failure_keeps_the_same_books() {
    for misfortune in [
        (|_: &mut Message<'_, Conn>| Err(Failure::retry("no"))) as fn(&mut Message<'_, Conn>) -> HandlerResult,
        |_| panic!("in an optimistic group"),
        |message| {
            diesel::sql_query("INSERT INTO no_such_table VALUES (1)").execute(message.connection())?;
            Ok(Outcome::Done)
        },
    ] {
        let bank = Bank::new();
        let ids = enqueue_group(&bank, 8, 1..=20);
        let failing = ids[12];
        let tally = run::<Optimistic>(&bank, move |optimistic: &Optimistic, message: &mut Message<'_, Conn>| {
            let _ = book(&optimistic.payment(), message)?;
            if optimistic.id == failing { misfortune(message) } else { Ok(Outcome::Done) }
        });
        assert_eq!((tally.succeeded, tally.retried, tally.interrupted), (7 + 19, 1, 0));
        assert_eq!(booked(&bank), ids.iter().filter(|id| **id != failing).copied().collect::<Vec<_>>());
        assert!(ids.iter().all(|id| bank.state(*id).try_count == 1));
        assert_eq!(bank.state(failing).status, Status::Error);
        assert_eq!(bank.balance(1), 210 - 13);
    }
}

#[test]
fn the_successes_of_an_optimistic_group_commit_at_once() {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 16, [1; 16]);
    let watch = Watch::new(&bank);
    let watching = watch.clone();
    run::<Optimistic>(&bank, move |optimistic: &Optimistic, message: &mut Message<'_, Conn>| {
        watching.sees(optimistic.id);
        book(&optimistic.payment(), message)
    });
    assert_eq!(watch.groups().last(), Some(&ids));
    assert_eq!(booked(&bank), ids);
}

#[test]
fn a_swallowed_sql_error_in_a_group_costs_its_neighbours_nothing() {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 8, [1, 2, 3, 4]);
    run::<Grouped>(&bank, |grouped: &Grouped, message: &mut Message<'_, Conn>| {
        let _ = book(&grouped.payment(), message)?;
        if grouped.amount_cents == 2 {
            assert!(diesel::sql_query("INSERT INTO no_such_table VALUES (1)").execute(message.connection()).is_err());
        }
        Ok(Outcome::Done)
    });
    let succeeded: Vec<_> = ids.iter().copied().filter(|id| bank.state(*id).status == Status::Success).collect();
    assert_eq!(booked(&bank), succeeded);
    if succeeded.len() < ids.len() {
        // PostgreSQL aborts the transaction; the other databases undo only this statement.
        assert_eq!(succeeded, [ids[0], ids[2], ids[3]]);
        assert!(text(&bank, ids[1]).contains("the handler ignored the error of one of its statements"));
    }
}

#[test]
fn a_handler_that_removes_its_row_or_edits_its_queue_columns_in_a_group_is_found_out_alone() {
    for (edit, optimistic) in [(true, false), (false, false), (true, true), (false, true)] {
        let bank = Bank::new();
        let ids = enqueue_group(&bank, 8, [1, 2, 3, 4]);
        let meddle = move |payment: Payment, message: &mut Message<'_, Conn>| {
            let _ = book(&payment, message)?;
            if payment.amount_cents == 2 && edit {
                let row = payments::table.find(payment.id);
                diesel::update(row).set(payment_queue::try_count.eq(7)).execute(message.connection())?;
            } else if payment.amount_cents == 2 {
                diesel::delete(payments::table.find(payment.id)).execute(message.connection())?;
            }
            Ok(Outcome::Done)
        };
        let tally = if optimistic {
            run::<Optimistic>(&bank, move |row: &Optimistic, message: &mut Message<'_, Conn>| {
                meddle(row.payment(), message)
            })
        } else {
            run::<Grouped>(&bank, move |row: &Grouped, message: &mut Message<'_, Conn>| meddle(row.payment(), message))
        };
        assert_eq!((tally.succeeded, tally.retried), (7 + 3, 1));
        assert_eq!(booked(&bank), [ids[0], ids[2], ids[3]]);
        assert_eq!((bank.state(ids[1]).status, bank.state(ids[1]).try_count), (Status::Error, 1));
        assert!(text(&bank, ids[1]).contains("changed its queue columns"));
    }
}

#[test]
fn a_row_that_nobody_can_write_does_not_hold_up_its_group() {
    use diesel::connection::SimpleConnection;
    let bank = Bank::new();
    bank.connect().batch_execute(KEEP_SEVEN).unwrap();
    let ids = enqueue_group(&bank, 4, [7, 1, 2, 3]);
    let handle =
        Grouped::poller(bank.pool(1), |row: &Grouped, message: &mut Message<'_, Conn>| book(&row.payment(), message))
            .workers(1)
            .start()
            .unwrap();
    let (_nobody, pace) = std::sync::mpsc::channel::<()>();
    for _ in 0..6000 {
        if booked(&bank) == ids[1..] {
            break;
        }
        let _ = pace.recv_timeout(std::time::Duration::from_millis(5));
    }
    handle.shutdown(std::time::Duration::from_secs(30));
    assert_eq!(booked(&bank), ids[1..]);
    assert_eq!((bank.state(ids[0]).status, bank.state(ids[0]).try_count), (Status::NotAttempted, 0));
}

#[test]
fn an_undecodable_row_fails_alone_in_its_group() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = superstitious_group, retry = fixed("1h"), timeout = "30s", group = 50)]
    struct Superstitious {
        id: i64,
        #[diesel(deserialize_as = Lucky)]
        amount_cents: i64,
    }

    struct Lucky(i64);

    impl<DB> Queryable<diesel::sql_types::BigInt, DB> for Lucky
    where
        DB: diesel::backend::Backend,
        i64: diesel::deserialize::FromStaticSqlRow<diesel::sql_types::BigInt, DB>,
    {
        type Row = i64;

        fn build(amount: i64) -> diesel::deserialize::Result<Self> {
            match amount {
                13 => Err("not on a Friday".into()),
                14 => Err(Box::new(Unspeakable)),
                _ => Ok(Lucky(amount)),
            }
        }
    }

    #[derive(Debug)]
    struct Unspeakable;

    impl std::fmt::Display for Unspeakable {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an error")
        }
    }

    impl std::error::Error for Unspeakable {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            panic!("in source")
        }
    }

    impl From<Lucky> for i64 {
        fn from(lucky: Lucky) -> i64 {
            lucky.0
        }
    }

    let bank = Bank::new();
    let ids = enqueue_group(&bank, 4, [13, 1, 14, 2]);
    let tally = run::<Superstitious>(&bank, |row: &Superstitious, message: &mut Message<'_, Conn>| {
        book(&Payment { id: row.id, company_id: 1, amount_cents: row.amount_cents }, message)
    });
    assert_eq!((tally.succeeded, tally.retried), (3 + 2, 2));
    assert_eq!(booked(&bank), [ids[1], ids[3]]);
    assert!(text(&bank, ids[0]).contains("not on a Friday"));
    assert!(text(&bank, ids[2]).contains("in source"));
}

#[test]
fn a_session_killed_in_the_middle_of_a_group_costs_no_try() {
    let bank = Bank::new();
    let ids = enqueue_group(&bank, 8, 1..=8);
    let (killer, first) = (Mutex::new(bank.connect()), AtomicBool::new(true));
    let victim = ids[4];
    run::<Grouped>(&bank, move |grouped: &Grouped, message: &mut Message<'_, Conn>| {
        let _ = book(&grouped.payment(), message)?;
        if grouped.id == victim
            && first.swap(false, Ordering::Relaxed)
            && let Some(session) = message.connection().session_id()?
        {
            killer.lock().unwrap().end_session(session)?;
            ledger::table.count().get_result::<i64>(message.connection())?;
        }
        Ok(Outcome::Done)
    });
    assert_eq!(booked(&bank), ids);
    assert!(ids.iter().all(|id| (bank.state(*id).status, bank.state(*id).try_count) == (Status::Success, 1)));
}

#[test]
fn groups_that_update_the_same_rows_in_opposite_orders_use_no_try_and_their_sums_are_right() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    for number in 0..120 {
        let row = (payments::company_id.eq(1 + number % 2), payments::amount_cents.eq(1), Grouped::due_now());
        diesel::insert_into(payments::table).values(row).execute(&mut connection).unwrap();
    }
    let tally =
        Grouped::poller(bank.pool(4), |row: &Grouped, message: &mut Message<'_, Conn>| book(&row.payment(), message))
            .workers(4)
            .run_until_idle()
            .unwrap();
    assert_eq!((bank.balance(1), bank.balance(2), bank.booked().len()), (60, 60, 120));
    assert_eq!((tally.succeeded, tally.retried, tally.failed), (120, 0, 0));
    let tries: Option<i32> =
        payments::table.select(diesel::dsl::max(payment_queue::try_count)).get_result(&mut connection).unwrap();
    assert_eq!(tries, Some(1));
}
