//! The ordered index: the migration adds it, the queue's removal drops it, and a poller that starts without it reports
//! it.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{Nullable, Text};
use diesel_migrations::MigrationHarness;
use queue_core::internals::backend::Schema;
use queueable::bounds::QueueOn;
use queueable::{Error, Message, Migrations, Outcome, Queueable};

use super::{Step, bank_of, entity, sql};
use crate::db::{Conn, SHAPE};
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::keyed::erased;

entity!(Urgent, urgent_queue, priority);
entity!(ByAmount, by_amount_queue, order_by = amount_cents);
entity!(Largest, largest_queue, order_by = amount_cents.desc());
entity!(Alone, alone_queue, exclusive);
entity!(AloneInSteps, alone_in_steps_queue, exclusive, order_by = amount_cents.desc(), stage = Step);

/// Returns the table's columns and indexes.
fn shape(bank: &Bank) -> Vec<String> {
    let rows: Vec<Option<String>> =
        diesel::dsl::sql::<Nullable<Text>>(&SHAPE.replace("$table", "payments")).load(&mut bank.connect()).unwrap();
    rows.into_iter().flatten().collect()
}

fn indexes(bank: &Bank) -> Vec<String> {
    let names = shape(bank);
    let begin = |line: &String| line.find("queueable_");
    let mut names: Vec<_> = names
        .iter()
        .filter(|line| line.to_uppercase().contains("INDEX") || crate::db::NAME == "mysql")
        .filter_map(|line| begin(line).map(|begin| &line[begin..]))
        .filter(|name| !name.starts_with("queueable_pending_"))
        .map(|name| name.split([' ', '"', '`']).next().unwrap().to_owned())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the findings of a poller's start.
fn mends<Q>(bank: &Bank) -> Vec<String>
where
    Q: QueueOn<Conn, Mode = queueable::bounds::TransactionMode> + Send,
{
    let poller = Q::poller(bank.pool(1), |_: &Q, _: &mut Message<'_, Conn>| Ok(Outcome::Done)).workers(1);
    match poller.run_until_idle() {
        Ok(_) => Vec::new(),
        Err(Error::Unsafe(findings)) => findings.into_iter().map(|finding| finding.mend).collect(),
        Err(error) => panic!("{error}"),
    }
}

/// As on MariaDB before 10.8, which takes the word and ignores it.
#[test]
fn an_ascending_index_does_not_serve_a_descending_order_on_mysql() {
    let bank = bank_of::<Largest>();
    assert_eq!(mends::<Largest>(&bank), Vec::<String>::new());
    if crate::db::NAME == "mysql" {
        let order = indexes(&bank).into_iter().find(|name| name.starts_with("queueable_order_")).unwrap();
        let flag = shape(&bank).into_iter().find(|line| line.contains("queueable_pending_")).unwrap();
        let flag = &flag[flag.find("queueable_pending_").unwrap()..];
        let flag = flag.split([' ', '"', '`']).next().unwrap();
        sql(&bank, &format!("DROP INDEX {order} ON payments"));
        sql(&bank, &format!("CREATE INDEX {order} ON payments ({flag}, amount_cents, next_attempt_time)"));
        let [mend] = &mends::<Largest>(&bank)[..] else { panic!("one finding") };
        mend.split("; ").for_each(|statement| sql(&bank, statement));
        assert_eq!(mends::<Largest>(&bank), Vec::<String>::new());
    }
}

#[test]
fn an_ordinary_queue_has_one_index_and_an_ordered_one_two() {
    let bank = bank_of::<Payment>();
    assert_eq!(indexes(&bank).len(), 1);
    for bank in [bank_of::<Urgent>(), bank_of::<ByAmount>(), bank_of::<Alone>()] {
        let names = indexes(&bank);
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names[0].starts_with("queueable_order_payments_"), "{names:?}");
    }
}

#[test]
fn the_queue_is_added_again_without_effect_and_removed_without_a_trace() {
    fn comes_and_goes<Q: QueueOn<Conn>>() {
        let bank = Bank::before_the_queue();
        let before = shape(&bank);
        let target = erased::<Q>().target().unwrap();
        let mut connection = bank.connect();
        connection.add_queue(&target).unwrap();
        let with_queue = shape(&bank);
        connection.add_queue(&target).unwrap();
        assert_eq!(shape(&bank), with_queue);
        connection.remove_queue(&target).unwrap();
        assert_eq!(shape(&bank), before);
        connection.remove_queue(&target).unwrap();

        // The same, with the steps written out as files.
        let steps = Conn::steps(&target);
        steps.iter().flat_map(|step| &step.up).for_each(|statement| sql(&bank, statement));
        assert_eq!(shape(&bank), with_queue);
        assert!(connection.check(&target).unwrap().is_empty());
        steps.iter().rev().flat_map(|step| &step.down).for_each(|statement| sql(&bank, statement));
        assert_eq!(shape(&bank), before);
    }
    comes_and_goes::<Urgent>();
    comes_and_goes::<ByAmount>();
    comes_and_goes::<Alone>();
    comes_and_goes::<AloneInSteps>();
}

#[test]
fn a_poller_does_not_start_without_the_ordered_index_and_says_what_makes_it() {
    let bank = bank_of::<ByAmount>();
    let target = erased::<ByAmount>().target().unwrap();
    let step = Conn::steps(&target).into_iter().find(|step| step.name == "order").unwrap();
    for gone in [&step.down[..], &step.down[..1]] {
        gone.iter().for_each(|statement| sql(&bank, statement));
        let mends = mends::<ByAmount>(&bank);
        assert_eq!(mends.len(), 1, "{mends:?}");
        for statement in mends[0].split("; ") {
            bank.connect().batch_execute(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        assert_eq!(self::mends::<ByAmount>(&bank), [""; 0]);
    }
}

#[test]
fn a_queue_that_gets_an_order_later_gets_a_further_migration() {
    #[derive(Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = ordered_now_queue, order_by = company_id)]
    struct OrderedNow {
        id: i64,
    }

    let bank = Bank::new();
    bank.enqueue([1, 2]);
    let mut connection = bank.connect();
    assert!(connection.has_pending_migration(Migrations::new().entity::<OrderedNow>()).unwrap());
    connection.run_pending_migrations(Migrations::new().entity::<OrderedNow>()).unwrap();
    assert_eq!(indexes(&bank).len(), 2);
    assert_eq!(mends::<OrderedNow>(&bank), [""; 0]);
    assert_eq!(mends::<Payment>(&bank), [""; 0], "its queue is as it was");
    let _ = |row: OrderedNow| row.id;
}
