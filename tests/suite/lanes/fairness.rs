//! The companies take turns: the backlog of one delays no other.

use std::sync::Arc;

use queueable::{Lease, Message, Outcome, Queueable};

use super::{Watch, enqueue, job, jobs, jobs_of};
use crate::db::Conn;

job!(Fair, fair_queue, fair_by = company_id);
job!(FairGroup, fair_group_queue, fair_by = company_id, group = 4);
job!(FairLease, fair_lease_queue, fair_by = company_id, lease = "60s");
job!(FairByRank, fair_by_rank_queue, fair_by = company_id, order_by = rank);

/// Three hundred jobs of one company, and behind them one each of three others and one without a company.
fn a_backlog() -> impl Iterator<Item = Option<i64>> {
    std::iter::repeat_n(Some(7), 300).chain([Some(1), Some(9), None, Some(8)])
}

/// Checks that each other company has had its turn after at most twice as many jobs as there are companies.
fn are_in_turns(watch: &Watch, together: usize) {
    let companies = watch.companies();
    assert_eq!(companies.len(), 304);
    for other in [Some(1), Some(9), None, Some(8)] {
        let place = companies.iter().position(|company| *company == other).unwrap();
        assert!(place < 10 * together, "the job of {other:?} was job number {place}");
    }
}

#[test]
fn a_backlog_delays_no_other_company_in_a_transaction() {
    let database = jobs_of::<Fair>();
    enqueue(&database, a_backlog());
    let watch = Watch::default();
    let seen = watch.clone();
    let handler = move |job: &Fair, _: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        Ok(Outcome::Done)
    };
    assert_eq!(Fair::poller(database.pool(3), handler).workers(1).run_until_idle().unwrap().succeeded, 304);
    are_in_turns(&watch, 1);
    assert!(watch.ids(Some(7)).is_sorted());
}

#[test]
fn a_backlog_delays_no_other_company_in_groups() {
    let database = jobs_of::<FairGroup>();
    enqueue(&database, a_backlog());
    let watch = Watch::default();
    let seen = watch.clone();
    let handler = move |job: &FairGroup, _: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        Ok(Outcome::Done)
    };
    assert_eq!(FairGroup::poller(database.pool(3), handler).workers(1).run_until_idle().unwrap().succeeded, 304);
    are_in_turns(&watch, 4);
}

#[test]
fn a_backlog_delays_no_other_company_under_a_lease() {
    let database = jobs_of::<FairLease>();
    enqueue(&database, a_backlog());
    let watch = Watch::default();
    let seen = watch.clone();
    let call = move |job: &FairLease, _: &Lease| {
        seen.begin(job.id, job.company_id);
        Ok(())
    };
    let apply = |_: &FairLease, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let poller = FairLease::poller(database.pool(3), (call, apply)).workers(1).claim_batch(4);
    assert_eq!(poller.run_until_idle().unwrap().succeeded, 304);
    are_in_turns(&watch, 4);
}

#[test]
fn a_company_that_comes_later_has_its_turn_soon() {
    let database = Arc::new(jobs_of::<Fair>());
    enqueue(&database, std::iter::repeat_n(Some(7), 300).chain(std::iter::repeat_n(Some(8), 300)));
    let watch = Watch::default();
    let seen = watch.clone();
    let handler = move |job: &Fair, message: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        if job.company_id == Some(7) && seen.ids(Some(7)).len() == 100 {
            use diesel::prelude::*;
            // In the message's own transaction: on SQLite nobody else can write.
            diesel::insert_into(jobs::table)
                .values((jobs::company_id.eq(5), jobs::rank.eq(0), Fair::due_now()))
                .execute(message.connection())?;
        }
        Ok(Outcome::Done)
    };
    assert_eq!(Fair::poller(database.pool(3), handler).workers(1).run_until_idle().unwrap().succeeded, 601);
    let companies = watch.companies();
    let enqueued = companies.iter().enumerate().filter(|(_, company)| **company == Some(7)).nth(99).unwrap().0;
    let begun = companies.iter().position(|company| *company == Some(5)).unwrap();
    assert!(begun - enqueued <= 6, "{} jobs of others began first", begun - enqueued);
}

#[test]
fn within_a_company_the_order_decides() {
    let database = jobs_of::<FairByRank>();
    enqueue(&database, (0..40).map(|i| Some(i % 2)));
    {
        use diesel::connection::SimpleConnection;
        let rank = if crate::db::NAME == "mysql" { "`rank`" } else { "rank" };
        database.connect().batch_execute(&format!("UPDATE jobs SET {rank} = 100 - id")).unwrap();
    }
    let watch = Watch::default();
    let seen = watch.clone();
    let handler = move |job: &FairByRank, _: &mut Message<'_, Conn>| {
        seen.begin(job.id, job.company_id);
        Ok(Outcome::Done)
    };
    assert_eq!(FairByRank::poller(database.pool(3), handler).workers(1).run_until_idle().unwrap().succeeded, 40);
    for company in [Some(0), Some(1)] {
        assert!(watch.ids(company).iter().rev().is_sorted(), "{:?}", watch.ids(company));
    }
    assert!(watch.companies().chunks(2).all(|two| two[0] != two[1]));
}
