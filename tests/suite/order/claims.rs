//! Claims in the order of a column, in each mode: lower values first, equal ones by their due times, and only due rows.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::thread;

use diesel::connection::TransactionManager;
use diesel::prelude::*;
use queueable::bounds::{LeaseMode, QueueOn, TransactionMode};
use queueable::{ClaimStyle, Lease, Message, Outcome, Poller, Queueable};

use super::{Seen, Step, bank_of, entity, sql};
use crate::db::{Conn, NAME};
use crate::suite::bank::{Bank, payments};

entity!(Urgent, urgent_queue, priority);
entity!(ByAmount, by_amount_queue, order_by = amount_cents);
entity!(Largest, largest_queue, order_by = amount_cents.desc());
entity!(AloneNewest, alone_newest_queue, exclusive, order_by = id.desc());
entity!(LeasedLargest, leased_largest_queue, order_by(amount_cents.desc()), lease = "60s");
entity!(ByCompany, by_company_queue, order_by(company_id.desc(), amount_cents.asc(), id.desc(), age = "1h"));
entity!(LeasedByAmount, leased_by_amount_queue, order_by = amount_cents, lease = "60s");
entity!(Staged, staged_queue, order_by = amount_cents, stage = Step);
entity!(GroupedByAmount, grouped_by_amount_queue, order_by = amount_cents, group = 50);

/// The amounts 1 to 9 in another order, which is that of their due times, and two that are not due: the lowest and the
/// highest; then one that was never enqueued.
fn shuffled(bank: &Bank) {
    for (second, amount) in [5, 2, 8, 1, 9, 4, 7, 3, 6].into_iter().enumerate() {
        sql(
            bank,
            &format!(
                "INSERT INTO payments (company_id, amount_cents, next_attempt_time)
                 VALUES (1, {amount}, '2026-01-01 00:00:0{second}.000')"
            ),
        );
    }
    sql(
        bank,
        "INSERT INTO payments (company_id, amount_cents, next_attempt_time) VALUES (1, 0, '2100-01-01 00:00:00.000');
         INSERT INTO payments (company_id, amount_cents, next_attempt_time) VALUES (1, 10, '2100-01-01 00:00:00.000');
         INSERT INTO payments (company_id, amount_cents) VALUES (1, 0)",
    );
}

/// Works the due rows with one worker, and returns what the handler saw, in that order.
fn seen_by<Q>(bank: &Bank, value: fn(&Q) -> i64) -> Vec<i64>
where
    Q: QueueOn<Conn, Mode = TransactionMode> + Send,
{
    let seen = Seen::default();
    let log = seen.clone();
    let handler = move |row: &Q, _: &mut Message<'_, Conn>| {
        log.push(value(row));
        Ok(Outcome::Done)
    };
    Q::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    seen.all()
}

/// The same under leases.
fn seen_under_leases<Q>(bank: &Bank, style: ClaimStyle, value: fn(&Q) -> i64) -> Vec<i64>
where
    Q: QueueOn<Conn, Mode = LeaseMode> + Send,
{
    let seen = Seen::default();
    let log = seen.clone();
    let handler = (
        move |row: &Q, _: &Lease| {
            log.push(value(row));
            Ok(())
        },
        |_: &Q, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done),
    );
    // One row for each claim, because no order is promised for the rows of one claim.
    let poller = Q::poller(bank.pool(1), handler).workers(1).claim_batch(1).claim_style(style);
    poller.run_until_idle().unwrap();
    seen.all()
}

const IN_ORDER: [i64; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

#[test]
fn due_rows_are_claimed_in_the_order_of_a_column() {
    let bank = bank_of::<ByAmount>();
    shuffled(&bank);
    let seen = seen_by(&bank, |row: &ByAmount| row.amount_cents);
    assert_eq!(seen, IN_ORDER);
}

/// So many that the claims walk along the order, and do not sort the due rows.
#[test]
fn many_due_rows_are_claimed_in_the_same_order() {
    let bank = bank_of::<ByAmount>();
    let rows: Vec<_> = (0..1_200)
        .map(|row| {
            let amount = row * 7919 % 1_200;
            let year = if row % 10 == 0 { 2100 } else { 2026 };
            format!("(1, {amount}, '{year}-01-01 00:{:02}:{:02}.000')", row / 60, row % 60)
        })
        .collect();
    let values = rows.join(", ");
    sql(&bank, &format!("INSERT INTO payments (company_id, amount_cents, next_attempt_time) VALUES {values}"));
    let waiting: Vec<i64> = (0..1_200).step_by(10).map(|row| row * 7919 % 1_200).collect();
    let due: Vec<i64> = (0..1_200).filter(|amount| !waiting.contains(amount)).collect();
    assert_eq!(seen_by(&bank, |row: &ByAmount| row.amount_cents), due);
}

#[test]
fn higher_values_come_first_in_a_descending_order() {
    let reversed: Vec<_> = IN_ORDER.into_iter().rev().collect();
    let bank = bank_of::<Largest>();
    shuffled(&bank);
    let seen = seen_by(&bank, |row: &Largest| row.amount_cents);
    assert_eq!(seen, reversed);
    for style in [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect] {
        let bank = bank_of::<LeasedLargest>();
        shuffled(&bank);
        let seen = seen_under_leases(&bank, style, |row: &LeasedLargest| row.amount_cents);
        assert_eq!(seen, reversed, "{style:?}");
    }
}

#[test]
fn an_exclusive_queue_may_have_the_descending_order_of_its_key() {
    let bank = bank_of::<AloneNewest>();
    sql(
        &bank,
        "INSERT INTO payments (company_id, amount_cents, next_attempt_time) VALUES
             (1, 1, '2026-01-01 00:00:00.000'), (1, 2, '2026-01-01 00:00:00.000'), (1, 3, '2026-01-01 00:00:00.000')",
    );
    let seen = seen_by(&bank, |row: &AloneNewest| row.amount_cents);
    assert_eq!(seen, [3, 2, 1]);
}

#[test]
fn a_later_column_decides_among_rows_that_are_equal_in_those_before_it() {
    let bank = bank_of::<ByCompany>();
    // All due for less than the age, so that none overtakes the others.
    for (id, company, amount) in [(1, 1, 10), (2, 2, 20), (3, 2, 10), (4, 1, 10), (5, 2, 20), (6, 1, 5)] {
        sql(&bank, &format!("INSERT INTO payments (id, company_id, amount_cents) VALUES ({id}, {company}, {amount})"));
    }
    diesel::update(payments::table).set(ByCompany::due_now()).execute(&mut bank.connect()).unwrap();
    let seen = seen_by(&bank, |row: &ByCompany| row.id);
    assert_eq!(seen, [3, 5, 2, 6, 4, 1]);
}

#[test]
fn leases_are_claimed_in_the_order_of_a_column_in_both_styles() {
    for style in [ClaimStyle::Auto, ClaimStyle::UpdateThenSelect] {
        let bank = bank_of::<LeasedByAmount>();
        shuffled(&bank);
        let seen = seen_under_leases(&bank, style, |row: &LeasedByAmount| row.amount_cents);
        assert_eq!(seen, IN_ORDER, "{style:?}");
    }
}

#[test]
fn groups_are_claimed_in_the_order_of_a_column() {
    let bank = bank_of::<GroupedByAmount>();
    shuffled(&bank);
    let seen = Seen::default();
    let log = seen.clone();
    let handler = move |row: &GroupedByAmount, _: &mut Message<'_, Conn>| {
        log.push(row.amount_cents);
        Ok(Outcome::Done)
    };
    GroupedByAmount::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    // One message, then two, then four, then the rest.
    let mut groups = seen.all();
    [1..3, 3..7, 7..9].into_iter().for_each(|group| groups[group].sort());
    assert_eq!(groups, IN_ORDER);
}

#[test]
fn a_lower_priority_comes_first_and_equals_by_their_due_times() {
    let bank = bank_of::<Urgent>();
    sql(
        &bank,
        "INSERT INTO payments (company_id, amount_cents, next_attempt_time) VALUES (1, 4, '2026-01-01 00:00:03.000');
         INSERT INTO payments (company_id, amount_cents, next_attempt_time) VALUES (1, 3, '2026-01-01 00:00:01.000');
         INSERT INTO payments (company_id, amount_cents, priority, next_attempt_time)
             VALUES (1, 6, 7, '2026-01-01 00:00:00.000');
         INSERT INTO payments (company_id, amount_cents, priority, next_attempt_time)
             VALUES (1, 2, -1, '2026-01-01 00:00:05.000');
         INSERT INTO payments (company_id, amount_cents, priority, next_attempt_time)
             VALUES (1, 1, -2147483648, '2026-01-01 00:00:06.000');
         INSERT INTO payments (company_id, amount_cents, priority, next_attempt_time)
             VALUES (1, 5, 1, '2026-01-01 00:00:05.000')",
    );
    let seen = seen_by(&bank, |row: &Urgent| row.amount_cents);
    assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_row_without_a_value_comes_first_and_in_a_descending_order_last() {
    diesel::table! {
        invoices (id) {
            id -> BigInt,
            due_date -> Nullable<Date>,
        }
    }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = invoices)]
    #[queue(order_by = due_date, timeout = "30s")]
    struct Invoice {
        id: i64,
    }

    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = invoices)]
    #[queue(order_by = due_date.desc(), prefix = "late_", timeout = "30s")]
    struct Late {
        id: i64,
    }

    let bank = Bank::before_the_queue();
    sql(&bank, &format!("CREATE TABLE invoices (id {} PRIMARY KEY NOT NULL, due_date DATE NULL)", crate::db::BIGINT));
    use diesel_migrations::MigrationHarness;
    bank.connect().run_pending_migrations(queueable::Migrations::new().entity::<Invoice>()).unwrap();
    sql(
        &bank,
        "INSERT INTO invoices (id, due_date, next_attempt_time) VALUES
             (1, '2026-03-01', '2026-01-01 00:00:00.000'), (2, NULL, '2026-01-01 00:00:01.000'),
             (3, '2026-02-01', '2026-01-01 00:00:00.000'), (4, NULL, '2026-01-01 00:00:00.000')",
    );
    let seen = seen_by(&bank, |row: &Invoice| row.id);
    assert_eq!(seen, [4, 2, 3, 1]);

    bank.connect().run_pending_migrations(queueable::Migrations::new().entity::<Late>()).unwrap();
    sql(&bank, "UPDATE invoices SET late_next_attempt_time = '2026-01-01 00:00:00.000'");
    sql(&bank, "UPDATE invoices SET late_next_attempt_time = '2026-01-01 00:00:01.000' WHERE id = 2");
    let seen = seen_by(&bank, |row: &Late| row.id);
    assert_eq!(seen, [1, 3, 4, 2]);
}

#[test]
fn several_workers_share_an_ordered_queue_and_each_row_runs_once() {
    let bank = bank_of::<ByAmount>();
    sql(
        &bank,
        "INSERT INTO payments (company_id, amount_cents, next_attempt_time)
         WITH d (i) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4)
         SELECT 1, a.i * 25 + b.i * 5 + c.i, '2026-01-01 00:00:00.000' FROM d a CROSS JOIN d b CROSS JOIN d c",
    );
    let seen = Seen::default();
    let log = seen.clone();
    let handler = move |row: &ByAmount, _: &mut Message<'_, Conn>| {
        log.push(row.amount_cents);
        Ok(Outcome::Done)
    };
    let tally = ByAmount::poller(bank.pool(4), handler).workers(4).run_until_idle().unwrap();
    assert_eq!((tally.succeeded, tally.interrupted), (125, 0));
    let mut amounts = seen.all();
    amounts.sort();
    assert_eq!(amounts, (0..125).collect::<Vec<_>>());
}

/// Lets more rows be due than a claim sorts by itself, and as many wait and come first: the due ones have the amounts of [`LATE`].
fn many_behind_many(bank: &Bank) {
    let rows = |due: fn(usize) -> String, amount: fn(usize) -> usize| {
        let rows: Vec<_> = (0..1_050).map(|i| format!("(1, {}, '{}')", amount(i), due(i))).collect();
        let columns = "company_id, amount_cents, next_attempt_time";
        sql(bank, &format!("INSERT INTO payments ({columns}) VALUES {}", rows.join(", ")));
    };
    rows(|_| "2100-01-01 00:00:00.000".to_owned(), |i| i);
    rows(|i| format!("2026-01-01 00:{:02}:{:02}.000", i / 60, i % 60), |i| 9_000 - i);
}

const LATE: RangeInclusive<i64> = 9_000 - 1_049..=9_000;

#[test]
fn many_due_rows_behind_many_that_wait_keep_their_order() {
    let bank = bank_of::<ByAmount>();
    many_behind_many(&bank);
    assert_eq!(seen_by::<ByAmount>(&bank, |row| row.amount_cents), LATE.collect::<Vec<_>>());
    let bank = bank_of::<LeasedByAmount>();
    many_behind_many(&bank);
    let seen = seen_under_leases(&bank, ClaimStyle::Auto, |row: &LeasedByAmount| row.amount_cents);
    assert_eq!(seen, LATE.collect::<Vec<_>>());
}

/// Two processes, in each of which the workers share the keys of the next rows, and a third that holds the first rows for a while.
#[test]
fn many_due_rows_behind_many_that_wait_run_once_each() {
    let bank = bank_of::<GroupedByAmount>();
    many_behind_many(&bank);
    let seen = Seen::default();
    let (log, holder) = (seen.clone(), Mutex::new(Some(bank.connect())));
    if NAME != "sqlite" {
        let mut holder = holder.lock().unwrap();
        let holder = holder.as_mut().unwrap();
        <Conn as Connection>::TransactionManager::begin_transaction(holder).unwrap();
        // Those with the highest keys come first.
        let first = payments::table.filter(payments::id.ge(1_500));
        diesel::update(first).set(payments::company_id.eq(1)).execute(holder).unwrap();
    }
    let holder = Arc::new(holder);
    let handler = move |row: &GroupedByAmount, _: &mut Message<'_, Conn>| {
        log.push(row.amount_cents);
        // Its end frees the rows.
        drop(holder.lock().unwrap().take());
        Ok(Outcome::Done)
    };
    let pollers = [(); 2].map(|()| GroupedByAmount::poller(bank.pool(4), handler.clone()).workers(2));
    let tallies = thread::scope(|scope| {
        pollers.map(|poller| scope.spawn(|| poller.run_until_idle().unwrap())).map(|thread| thread.join().unwrap())
    });
    assert_eq!(tallies.iter().map(|tally| tally.succeeded).sum::<u64>(), 1_050, "{tallies:?}");
    let mut amounts: Vec<_> = seen.all().into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    amounts.sort();
    assert_eq!(amounts, LATE.collect::<Vec<_>>());
}

/// The rows of a stage that nobody serves here come first by the order, and are many.
#[test]
fn rows_of_some_stages_keep_their_order_beside_many_of_another() {
    let bank = bank_of::<Staged>();
    let rows = |stages: [&str; 2], amount: fn(usize) -> usize, number: usize| {
        let row = |i| format!("(1, {}, '{}', '2026-01-01 00:00:00.000')", amount(i), stages[i % 2]);
        let rows: Vec<_> = (0..number).map(row).collect();
        let columns = "company_id, amount_cents, stage, next_attempt_time";
        sql(&bank, &format!("INSERT INTO payments ({columns}) VALUES {}", rows.join(", ")));
    };
    rows(["BOOK", "BOOK"], |i| i, 1_200);
    rows(["DRAW", "SEND"], |i| 9_000 - i, 600);
    let seen = Seen::default();
    let log = seen.clone();
    let handler = move |row: &Staged, _: &mut Message<'_, Conn>| {
        log.push(row.amount_cents);
        Ok(Outcome::Done)
    };
    let poller = Poller::new(bank.pool(1)).serve_stages::<Staged>(&[Step::Draw, Step::Send], handler).workers(1);
    assert_eq!(poller.run_until_idle().unwrap().succeeded, 600);
    assert_eq!(seen.all(), (9_000 - 599..=9_000).collect::<Vec<_>>());
    assert_eq!(Staged::queue().due().count(&mut bank.connect()).unwrap(), 1_200);
}
