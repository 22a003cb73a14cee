//! The claim's condition: a condition of the domain that is part of the claim, and true under the row's lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::expression::BoxableExpression;
use diesel::prelude::*;
use diesel::sql_types::Bool;
use diesel_migrations::MigrationHarness;
use queue_core::internals::statement::Scope;
use queueable::bounds::HandlerFor;
use queueable::bounds::QueueOn;
use queueable::{
    ClaimStyle, CrashAccounting, Failure, Lease, Message, Migrations, Outcome, Queueable, Stage, Status, Tally,
};

use super::{Backend, Seen, bank_of, entity, session_of_a_worker, sql};
use crate::db::{self, BIGINT, Conn, TEXT};
use crate::suite::bank::{Bank, payments};
use crate::suite::keyed::erased;
use queue_core::internals::backend::Transactions;

entity!(Approved, approved_queue, claim_if = "payments::company_id.eq(1)");
entity!(ApprovedCalled, approved_called_queue, claim_if = "payments::company_id.eq(1)", lease = "60s");
entity!(ApprovedGrouped, approved_grouped_queue, claim_if = "payments::company_id.eq(1)", group = 20);
entity!(ApprovedAlone, approved_alone_queue, claim_if = "payments::company_id.eq(1)", exclusive);
entity!(ApprovedUrgent, approved_urgent_queue, claim_if = "payments::company_id.eq(1)", order_by = amount_cents);
entity!(ByFunction, by_function_queue, claim_if = is_approved);
entity!(ByBox, by_box_queue, claim_if = is_approved_or_small);

fn is_approved() -> diesel::dsl::Eq<payments::company_id, i64> {
    payments::company_id.eq(1)
}

fn is_approved_or_small() -> Box<dyn BoxableExpression<payments::table, Backend, SqlType = Bool>> {
    Box::new(payments::company_id.eq(1).or(payments::amount_cents.lt(0)))
}

/// Queues the amounts 1 to 8; the even ones are not approved.
fn half_approved(bank: &Bank) {
    for amount in 1..=8 {
        let company = 1 + (amount + 1) % 2;
        sql(
            bank,
            &format!(
                "INSERT INTO payments (company_id, amount_cents, next_attempt_time)
                 VALUES ({company}, {amount}, '2026-01-01 00:00:0{amount}.000')"
            ),
        );
    }
}

fn run<Q: QueueOn<Conn>>(bank: &Bank, handler: impl HandlerFor<Q, Conn> + 'static) -> Tally {
    Q::poller(bank.pool(2), handler).workers(2).run_until_idle().unwrap()
}

/// Runs the due rows, and returns the amounts in their order.
macro_rules! amounts_that_run {
    ($entity:ident, $bank:expr) => {{
        let seen = Seen::default();
        let log = seen.clone();
        run::<$entity>($bank, move |row: &$entity, _: &mut Message<'_, Conn>| {
            log.push(row.amount_cents);
            Ok(Outcome::Done)
        });
        let mut amounts = seen.all();
        amounts.sort();
        amounts
    }};
}

fn states(bank: &Bank) -> Vec<(i64, Status, bool)> {
    payments::table
        .order(payments::amount_cents)
        .select((payments::amount_cents, approved_queue::status, approved_queue::next_attempt_time.is_not_null()))
        .load(&mut bank.connect())
        .unwrap()
}

#[test]
fn a_row_whose_condition_is_false_is_left_alone_until_it_is_true() {
    let bank = bank_of::<Approved>();
    half_approved(&bank);
    assert_eq!(amounts_that_run!(Approved, &bank), [1, 3, 5, 7]);
    let left = |amount| (amount, Status::NotAttempted, true);
    assert_eq!(states(&bank).into_iter().filter(|state| state.2).collect::<Vec<_>>(), [2, 4, 6, 8].map(left));
    // A probe does not count them as work either: the workers would wake again and again.
    assert_eq!(erased::<Approved>().probe_due(&mut bank.connect(), None, None).unwrap(), None);
    sql(&bank, "UPDATE payments SET company_id = 1 WHERE amount_cents = 4");
    assert_eq!(erased::<Approved>().probe_due(&mut bank.connect(), None, None).unwrap(), Some(Duration::ZERO));
    assert_eq!(amounts_that_run!(Approved, &bank), [4]);
}

#[test]
fn a_condition_is_part_of_every_kind_of_claim() {
    fn bank<Q: QueueOn<Conn>>() -> Bank
    where
        Q::KeyColumns: diesel::query_builder::QueryFragment<Backend>,
        <Q::Queue as queueable::__derive::QueueTable>::Table: diesel::query_builder::QueryFragment<Backend>,
    {
        let bank = bank_of::<Q>();
        half_approved(&bank);
        bank
    }
    assert_eq!(amounts_that_run!(ApprovedGrouped, &bank::<ApprovedGrouped>()), [1, 3, 5, 7]);
    assert_eq!(amounts_that_run!(ApprovedUrgent, &bank::<ApprovedUrgent>()), [1, 3, 5, 7]);
    // A row that is not approved holds nobody up.
    assert_eq!(amounts_that_run!(ApprovedAlone, &bank::<ApprovedAlone>()), [1, 3, 5, 7]);
    for style in [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect] {
        let bank = bank::<ApprovedCalled>();
        let handler = (
            |row: &ApprovedCalled, _: &Lease| match row.company_id {
                1 => Ok(()),
                _ => Err(Failure::fatal("not approved")),
            },
            |_: &ApprovedCalled, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
        );
        let poller = ApprovedCalled::poller(bank.pool(1), handler).workers(1).claim_batch(10).claim_style(style);
        let tally = poller.run_until_idle().unwrap();
        assert_eq!((tally.succeeded, tally.failed), (4, 0), "{style:?}");
    }
}

#[test]
fn a_condition_is_given_by_a_function_too_boxed_or_not() {
    let bank = bank_of::<ByFunction>();
    half_approved(&bank);
    assert_eq!(amounts_that_run!(ByFunction, &bank), [1, 3, 5, 7]);
    let bank = bank_of::<ByBox>();
    half_approved(&bank);
    sql(&bank, "UPDATE payments SET amount_cents = -2 WHERE amount_cents = 2");
    assert_eq!(amounts_that_run!(ByBox, &bank), [-2, 1, 3, 5, 7]);
}

#[test]
fn a_condition_compares_with_the_applications_own_types() {
    diesel::table! {
        transfers (id) {
            id -> BigInt,
            state -> Text,
        }
    }

    #[derive(
        Debug, Clone, Copy, PartialEq, Eq, diesel::expression::AsExpression, diesel::deserialize::FromSqlRow, Stage,
    )]
    #[diesel(sql_type = diesel::sql_types::Text)]
    enum State {
        Requested,
        Approved,
    }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = transfers)]
    #[queue(timeout = "30s", claim_if = "transfers::state.eq(State::Approved)")]
    struct Transfer {
        id: i64,
        state: State,
    }

    let bank = Bank::before_the_queue();
    sql(&bank, &format!("CREATE TABLE transfers (id {BIGINT} PRIMARY KEY NOT NULL, state {TEXT} NOT NULL)"));
    let mut connection = bank.connect();
    connection.run_pending_migrations(Migrations::new().entity::<Transfer>()).unwrap();
    let rows: Vec<_> = [(1, State::Requested), (2, State::Approved), (3, State::Requested)]
        .into_iter()
        .map(|(id, state)| (transfers::id.eq(id), transfers::state.eq(state), Transfer::due_now()))
        .collect();
    diesel::insert_into(transfers::table).values(rows).execute(&mut connection).unwrap();
    let seen = Seen::default();
    let log = seen.clone();
    run::<Transfer>(&bank, move |row: &Transfer, _: &mut Message<'_, Conn>| {
        assert_eq!(row.state, State::Approved);
        log.push(row.id);
        Ok(Outcome::Done)
    });
    assert_eq!(seen.all(), [2]);
}

#[test]
fn an_attempt_that_has_begun_ends_whatever_becomes_of_the_condition() {
    for accounting in [CrashAccounting::On, CrashAccounting::Strict] {
        let bank = bank_of::<Approved>();
        half_approved(&bank);
        let handler = |row: &Approved, message: &mut Message<'_, Conn>| {
            diesel::update(payments::table.find(row.id))
                .set(payments::company_id.eq(2))
                .execute(message.connection())?;
            match row.amount_cents {
                1 => Err(Failure::retry("not yet")),
                3 => Err(Failure::fatal("never")),
                _ => Ok(Outcome::Done),
            }
        };
        let poller = Approved::poller(bank.pool(1), handler).workers(1).crash_accounting(accounting);
        let tally = poller.run_until_idle().unwrap();
        assert_eq!((tally.succeeded, tally.retried, tally.failed, tally.interrupted), (2, 1, 1, 0), "{accounting:?}");
    }
    let bank = bank_of::<ApprovedCalled>();
    half_approved(&bank);
    let others = Mutex::new(bank.connect());
    let handler = (
        move |row: &ApprovedCalled, _: &Lease| {
            let own = diesel::update(payments::table.find(row.id)).set(payments::company_id.eq(2));
            own.execute(&mut *others.lock().unwrap())?;
            Ok(())
        },
        |_: &ApprovedCalled, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    );
    let tally = ApprovedCalled::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.lost), (4, 0));
}

/// Claims a row, and returns its key. The transaction goes on.
fn claim(session: &mut Conn) -> Option<i64> {
    session.begin().unwrap();
    queue_core::internals::claim_one(erased::<Approved>(), session, Scope::ALL).unwrap().map(|claimed| *claimed.key)
}

fn end(session: &mut Conn) {
    <Conn as Connection>::TransactionManager::rollback_transaction(session).unwrap();
}

#[test]
fn a_claim_checks_the_condition_after_the_change_of_another_session() {
    if db::NAME == "sqlite" {
        // Nobody else can hold it.
        return;
    }
    let bank = bank_of::<Approved>();
    sql(
        &bank,
        "INSERT INTO payments (company_id, amount_cents, next_attempt_time) VALUES (1, 1, '2026-01-01 00:00:00.000')",
    );
    let (mut worker, mut other) = (session_of_a_worker(&bank), bank.connect());
    let change_to = |session: &mut Conn, company: i64| {
        <Conn as Connection>::TransactionManager::begin_transaction(session).unwrap();
        diesel::update(payments::table).set(payments::company_id.eq(company)).execute(session).unwrap();
    };
    // True now, but false as soon as the other session commits.
    change_to(&mut other, 2);
    assert_eq!(claim(&mut worker), None);
    <Conn as Connection>::TransactionManager::commit_transaction(&mut other).unwrap();
    // The same transaction asks again.
    assert!(queue_core::internals::claim_one(erased::<Approved>(), &mut worker, Scope::ALL).unwrap().is_none());
    end(&mut worker);
    // The same the other way round.
    change_to(&mut other, 1);
    assert_eq!(claim(&mut worker), None);
    <Conn as Connection>::TransactionManager::commit_transaction(&mut other).unwrap();
    let claimed = queue_core::internals::claim_one(erased::<Approved>(), &mut worker, Scope::ALL).unwrap().unwrap();
    assert_eq!(claimed.message.unwrap().0.downcast::<Approved>().unwrap().company_id, 1);
    // From here on it stays true, because nobody else can change the row.
    let revoke = diesel::update(payments::table).set(payments::company_id.eq(2));
    let refused = other.with_lock_wait(Duration::from_millis(50), |other, _| revoke.execute(other));
    assert!(refused.is_err());
    end(&mut worker);
}

#[test]
fn no_handler_sees_its_condition_false_however_often_it_changes() {
    if db::NAME == "sqlite" {
        // On SQLite, nobody can change anything while a row is processed.
        return;
    }
    let bank = Arc::new(bank_of::<Approved>());
    for _ in 0..20 {
        half_approved(&bank);
    }
    let done = Arc::new(AtomicBool::new(false));
    let (over, other) = (done.clone(), bank.clone());
    let changes = thread::spawn(move || {
        let mut session = other.connect();
        // Each session changes every row in turn, in an order of its own, and waits for a row that a worker holds.
        for id in (0i64..).map(|turn| 1 + turn * 67 % 160).take_while(|_| !over.load(Ordering::Relaxed)) {
            let flip = format!("UPDATE payments SET company_id = 3 - company_id WHERE id = {id}");
            session.batch_execute(&flip).unwrap();
        }
    });
    let handler = |row: &Approved, message: &mut Message<'_, Conn>| {
        let company = payments::table.find(row.id).select(payments::company_id);
        let company: i64 = company.first(message.connection())?;
        assert_eq!((row.company_id, company), (1, 1));
        Ok(Outcome::Done)
    };
    let tally = Approved::poller(bank.pool(3), handler).workers(3).run_until_idle().unwrap();
    done.store(true, Ordering::Relaxed);
    changes.join().unwrap();
    assert_eq!((tally.retried, tally.failed), (0, 0));
    let succeeded = Approved::queue().filter(approved_queue::status.eq(Status::Success)).count(&mut bank.connect());
    assert_eq!(u64::try_from(succeeded.unwrap()), Ok(tally.succeeded));
    assert!(tally.succeeded > 0);
}

#[test]
fn a_row_that_a_claim_has_passed_can_be_changed_while_another_one_is_worked() {
    if db::NAME == "sqlite" {
        return;
    }
    fn passes<Q: QueueOn<Conn, Key = i64>>(passed: &str)
    where
        Q::KeyColumns: diesel::query_builder::QueryFragment<Backend>,
        <Q::Queue as queueable::__derive::QueueTable>::Table: diesel::query_builder::QueryFragment<Backend>,
    {
        let bank = bank_of::<Q>();
        sql(
            &bank,
            &format!(
                "INSERT INTO payments (company_id, amount_cents, next_attempt_time)
                 VALUES {passed}, {passed}, (1, 7, '2026-01-02 00:00:00.000')"
            ),
        );
        let (mut worker, mut other) = (session_of_a_worker(&bank), bank.connect());
        for claims in [
            |worker: &mut Conn| {
                queue_core::internals::claim_one(erased::<Q>(), worker, Scope::ALL).unwrap().map(|row| *row.key)
            },
            |worker: &mut Conn| {
                queue_core::internals::claim_some(erased::<Q>(), worker, true, 5, Scope::ALL)
                    .unwrap()
                    .pop()
                    .map(|row| *row.key)
            },
        ] as [fn(&mut Conn) -> Option<i64>; 2]
        {
            worker.begin().unwrap();
            assert_eq!(claims(&mut worker), Some(3));
            for id in [1, 2] {
                let approve = diesel::update(payments::table.find(id)).set(payments::amount_cents.eq(0));
                let changed = other.with_lock_wait(Duration::from_millis(50), |other, _| approve.execute(other));
                assert_eq!(changed, Ok(1), "row {id} of {passed}");
            }
            end(&mut worker);
        }
    }
    // A row that is not approved, and one of a higher rank that is not due.
    passes::<Approved>("(2, 1, '2026-01-01 00:00:00.000')");
    passes::<ApprovedUrgent>("(1, 1, '2100-01-01 00:00:00.000')");
}
