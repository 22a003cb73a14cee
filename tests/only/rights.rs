//! A poller that lacks one of its rights refuses to start, and names the GRANT that it needs.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queue_core::internals::backend::{Exclusion, LeadersDuty};
use queueable::bounds::QueueOn;
use queueable::control::{Audit, adopt_environment};
use queueable::{Error, Event, Finding, Message, Migrations, Outcome, Pause, Queueable};

use crate::db::{Account, Conn, SMALLEST_RIGHTS, eventually};
use crate::suite::bank::{Bank, Payment, payments};
use crate::suite::events::{await_event, listener};
use crate::suite::lease::Charge;
use crate::suite::warnings::{await_warning, keep_warnings};

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = kept_queue, archive(success = paid))]
#[expect(dead_code, reason = "it is decoded, not read")]
struct Kept {
    id: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = expiring_queue, keep(failed = "1d"), archive(failed = unpaid))]
#[expect(dead_code, reason = "it is decoded, not read")]
struct Expiring {
    id: i64,
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = counted_queue, occasion)]
#[expect(dead_code, reason = "it is decoded, not read")]
struct Counted {
    id: i64,
}

fn pool(account: &Account) -> Pool<ConnectionManager<Conn>> {
    Pool::builder().max_size(3).build(ConnectionManager::new(&account.url)).unwrap()
}

fn findings<T: std::fmt::Debug>(started: Result<T, Error>) -> Vec<Finding> {
    match started {
        Ok(_) => Vec::new(),
        Err(Error::Unsafe(findings)) => findings,
        Err(error) => panic!("{error}"),
    }
}

fn found(account: &Account) -> Vec<Finding> {
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    findings(Payment::poller(pool(account), handler).workers(1).run_until_idle())
}

fn found_of_a_lease(account: &Account) -> Vec<Finding> {
    let handler =
        (|_: &Charge, _: &queueable::Lease| Ok(()), |_: &Charge, _: &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    findings(Charge::poller(pool(account), handler).workers(1).run_until_idle())
}

fn found_of_kept(account: &Account) -> Vec<Finding> {
    let handler = |_: &Kept, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    findings(Kept::poller(pool(account), handler).workers(1).run_until_idle())
}

/// Grants the rights that the findings name, until there are no more findings.
fn mend(bank: &Bank, found: impl Fn() -> Vec<Finding>) {
    for _ in 0..3 {
        for Finding { mend, .. } in found() {
            assert!(mend.starts_with("GRANT "), "{mend}");
            bank.connect().batch_execute(&mend).unwrap();
        }
    }
    assert_eq!(found(), []);
}

#[test]
fn the_rights_to_read_the_table_and_to_write_five_columns_are_enough() {
    let bank = Bank::new();
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    bank.enqueue([1, 2]);
    assert_eq!(found(&account), []);
    assert_eq!(found_of_a_lease(&account), []);
    assert_eq!(bank.state(1).status, queueable::Status::Success);
}

#[test]
fn each_right_that_is_missing_is_named_with_its_grant() {
    for column in ["status", "next_attempt_time", "try_count", "last_attempt_time", "last_attempt_error_message"] {
        let bank = Bank::new();
        let others = SMALLEST_RIGHTS[1].replacen(&format!("{column}, "), "", 1).replacen(&format!(", {column}"), "", 1);
        let account = Account::new(&bank.database, &[SMALLEST_RIGHTS[0], &others]);
        bank.enqueue([1]);
        for found in [found, found_of_a_lease] {
            let findings = found(&account);
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert!(findings[0].mend.contains("GRANT UPDATE (") && findings[0].mend.contains(column), "{findings:?}");
        }
        assert_eq!(bank.state(1).try_count, 0);
        mend(&bank, || found(&account));
    }
}

/// Each success writes it too.
#[test]
fn the_right_to_count_occasions_is_named_with_its_grant() {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().entity::<Counted>()).unwrap();
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    bank.enqueue([1]);
    let handler = |_: &Counted, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let found = || findings(Counted::poller(pool(&account), handler).workers(1).run_until_idle());
    assert!(found()[0].problem.contains("occasion"), "{:?}", found());
    mend(&bank, found);
    assert_eq!(bank.state(1).status, queueable::Status::Success);
}

#[test]
fn an_account_that_may_only_read_is_refused() {
    let bank = Bank::new();
    let account = Account::new(&bank.database, &[SMALLEST_RIGHTS[0]]);
    bank.enqueue([1]);
    let findings = found(&account);
    assert!(findings[0].problem.contains("no right to write the columns"), "{findings:?}");
    mend(&bank, || found(&account));
    assert_eq!(bank.state(1).status, queueable::Status::Success);
}

#[test]
fn what_finished_rows_need_is_found_before_a_handler_runs() {
    use queueable::Migrations;
    let bank = Bank::new();
    diesel_migrations::MigrationHarness::run_pending_migrations(
        &mut bank.connect(),
        Migrations::new().entity::<Kept>(),
    )
    .unwrap();

    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    bank.enqueue([1]);
    let mends: Vec<_> = found_of_kept(&account).into_iter().map(|finding| finding.mend).collect();
    assert!(mends.iter().any(|mend| mend.starts_with("GRANT INSERT ON ") && mend.contains("paid")), "{mends:?}");
    assert!(mends.iter().any(|mend| mend.starts_with("GRANT DELETE ON ") && mend.contains("payments")), "{mends:?}");
    assert_eq!(bank.state(1).try_count, 0);
    mend(&bank, || found_of_kept(&account));
}

#[test]
fn a_poller_with_control_needs_the_right_to_read_the_control_table() {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().control()).unwrap();
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let found = || findings(Payment::poller(pool(&account), handler).workers(1).control().run_until_idle());
    let refused = found();
    let [Finding { entity, problem, mend, .. }] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(entity, "control");
    assert!(problem.contains("queueable_control"), "{problem}");
    let grant = &mend[mend.find("GRANT SELECT ON queueable_control TO ").unwrap_or_else(|| panic!("{mend}"))..];
    bank.connect().batch_execute(grant.split(", and put").next().unwrap()).unwrap();
    assert_eq!(found(), []);
}

#[test]
fn a_poller_that_counts_needs_the_right_to_write_the_table_of_minutes() {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().minutes()).unwrap();
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let found = || findings(Payment::poller(pool(&account), handler).workers(1).minutes().run_until_idle());
    let refused = found();
    let [Finding { entity, mend, .. }] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(entity, "minutes");
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON queueable_minutes TO ";
    let grant = &mend[mend.find(grant).unwrap_or_else(|| panic!("{mend}"))..];
    bank.connect().batch_execute(grant.split(", and put").next().unwrap()).unwrap();
    assert_eq!(found(), []);
}

#[test]
fn a_call_with_an_author_needs_the_right_to_add_rows_to_the_audit() {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().audit()).unwrap();
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    let rows = |audit: &Audit| queueable::control::audit(&mut bank.connect(), audit).unwrap().rows;
    let numbers = || rows(&Audit::new()).iter().map(|row| row.rows).collect::<Vec<_>>();
    let ids = bank.enqueue([1, 2, 3]);
    let mut connection = Conn::establish(&account.url).unwrap();
    let queue = Payment::queue().all_rows().by("ops@example.org", "ticket 812");
    let back_fill = queue.clone().enqueue_existing().batch(1);
    for refused in [queue.stop(&mut connection), back_fill.run(&mut connection, |_| {})] {
        let Err(Error::Control(text)) = refused else { panic!("{refused:?}") };
        assert!(text.contains("GRANT SELECT, INSERT ON queueable_audit TO "), "{text}");
    }
    assert_eq!(numbers(), [0; 0]);
    assert!(bank.state(ids[0]).next_attempt_time.is_some());
    let grantee = if crate::db::NAME == "mysql" { format!("'{}'@'%'", account.name) } else { account.name.clone() };
    let grant = |right: &str| bank.connect().batch_execute(&format!("GRANT {right} ON queueable_audit TO {grantee}"));
    // May read it, and no more.
    grant("SELECT").unwrap();
    let Err(Error::Control(text)) = queue.stop(&mut connection) else { panic!("it may not add rows") };
    let mend = text.rsplit("; to mend it: ").next().unwrap();
    assert!(mend.starts_with("GRANT SELECT, INSERT ON queueable_audit TO "), "{text}");
    assert!(bank.state(ids[0]).next_attempt_time.is_some());
    bank.connect().batch_execute(mend).unwrap();
    assert_eq!(queue.stop(&mut connection).unwrap(), 3);
    assert_eq!(numbers(), [3]);
    // Each batch has a row, because none can be changed. The rows are true all the same.
    let history = "UPDATE payments SET last_attempt_error_message = NULL; DELETE FROM queueable_audit";
    bank.connect().batch_execute(history).unwrap();
    assert_eq!(back_fill.run(&mut connection, |_| {}).unwrap(), 3);
    assert_eq!(numbers(), [1, 1, 1]);
    assert_eq!(back_fill.run(&mut connection, |_| {}).unwrap(), 0);
    assert_eq!(numbers(), [0, 1, 1, 1]);
    grant("UPDATE (row_count)").unwrap();
    bank.connect().batch_execute("UPDATE payments SET next_attempt_time = NULL; DELETE FROM queueable_audit").unwrap();
    assert_eq!(back_fill.run(&mut connection, |_| {}).unwrap(), 3);
    assert_eq!(numbers(), [3]);
}

#[test]
fn a_pause_that_may_not_leave_its_row_in_the_audit_is_refused() {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().control().audit()).unwrap();
    let rights = ["SELECT, INSERT, UPDATE ON queueable_control", "SELECT ON queueable_audit"];
    let account = Account::new(&bank.database, &rights);
    let mut connection = Conn::establish(&account.url).unwrap();
    let by = "ops@example.org";
    let refused = Payment::pause(&mut connection, Pause::new("bank down", by));
    let Err(Error::Control(text)) = refused else { panic!("{refused:?}") };
    assert_eq!(queueable::pauses(&mut connection).unwrap(), []);
    let mend = text.rsplit("; to mend it: ").next().unwrap();
    assert!(mend.starts_with("GRANT SELECT, INSERT ON queueable_audit TO "), "{text}");
    bank.connect().batch_execute(mend).unwrap();
    Payment::pause(&mut connection, Pause::new("bank down", by)).unwrap();
    assert!(Payment::unpause_by(&mut connection, by, "bank up").unwrap());
    let rows = Payment::audit(&mut connection, &Audit::new()).unwrap().rows;
    assert_eq!(rows.iter().map(|row| &*row.action).collect::<Vec<_>>(), ["unpause", "pause"]);
}

#[test]
fn a_poller_that_registers_needs_the_right_to_write_the_table_of_pollers() {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().pollers()).unwrap();
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let found = || findings(Payment::poller(pool(&account), handler).workers(1).register().run_until_idle());
    let refused = found();
    let [Finding { entity, mend, .. }] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(entity, "register");
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON queueable_pollers TO ";
    let grant = &mend[mend.find(grant).unwrap_or_else(|| panic!("{mend}"))..];
    bank.connect().batch_execute(grant.split(", and put").next().unwrap()).unwrap();
    assert_eq!(found(), []);
}

#[test]
fn the_first_poller_of_an_environment_needs_the_right_to_name_it_and_others_do_not() {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().control()).unwrap();
    let rights = [SMALLEST_RIGHTS, &["SELECT ON queueable_control"]].concat();
    let account = Account::new(&bank.database, &rights);
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let poller = || Payment::poller(pool(&account), handler).workers(1).environment("production");
    let refused = findings(poller().run_until_idle());
    let [Finding { entity, mend, .. }] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(entity, "environment");
    assert!(
        mend.starts_with("GRANT INSERT, UPDATE ON queueable_control TO ") && mend.contains("adopt_environment"),
        "{mend}"
    );
    adopt_environment(&mut bank.connect(), "production", "ops@example.org", "set up").unwrap();
    assert_eq!(findings(poller().run_until_idle()), []);
}

/// A claim needs no right to the column of the texts, and neither does a success.
#[test]
fn a_queue_without_the_right_to_a_column_stands_still_until_it_is_granted_again() {
    use queueable::Failure;

    let bank = Bank::new();
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    let (listen, heard) = listener();
    let handler = |payment: &Payment, _: &mut Message<'_, Conn>| match payment.amount_cents {
        7 => Err(Failure::fatal("seven")),
        _ => Ok(Outcome::Done),
    };
    let handle = Payment::poller(pool(&account), handler).workers(1).on_event(listen).start().unwrap();
    bank.enqueue([1]);
    await_event(&heard, |event| matches!(event, Event::Succeeded(_)));
    let grantee = if crate::db::NAME == "mysql" { format!("'{}'@'%'", account.name) } else { account.name.clone() };
    let revoke = format!("REVOKE UPDATE (last_attempt_error_message) ON payments FROM {grantee}");
    bank.connect().batch_execute(&revoke).unwrap();
    let Event::QueueStalled { error, .. } = await_event(&heard, |event| matches!(event, Event::QueueStalled { .. }))
    else {
        unreachable!("only this was awaited")
    };
    let (_, mend) = error.rsplit_once("; ").unwrap();
    assert!(mend.starts_with("GRANT UPDATE (") && mend.contains("last_attempt_error_message"), "{error}");
    assert_eq!(handle.health().entities[0].stalled.as_ref(), Some(&error));
    // Nobody pays for it meanwhile.
    let ids = bank.enqueue([7, 2]);
    bank.connect().batch_execute(mend).unwrap();
    await_event(&heard, |event| matches!(event, Event::QueueResumed { .. }));
    for _ in 0..2 {
        await_event(&heard, |event| matches!(event, Event::Succeeded(_) | Event::GaveUp(_)));
    }
    assert!(ids.iter().all(|id| bank.state(*id).try_count == 1));
    handle.shutdown(std::time::Duration::from_secs(30));
}

#[test]
fn the_upkeep_needs_its_rights_at_the_start_and_the_queue_goes_on_without_them_later() {
    keep_warnings();
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().entity::<Expiring>()).unwrap();
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    let handler = |_: &Expiring, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let found = || findings(Expiring::poller(pool(&account), handler).workers(1).run_until_idle());
    let mends: Vec<_> = found().into_iter().map(|finding| finding.mend).collect();
    assert!(mends.iter().any(|mend| mend.starts_with("GRANT INSERT ON ") && mend.contains("unpaid")), "{mends:?}");
    assert!(mends.iter().any(|mend| mend.starts_with("GRANT DELETE ON ") && mend.contains("payments")), "{mends:?}");
    mend(&bank, found);
    // The test holds the lock until the right is gone. The server ends the last poller's session a little later.
    let target = <Expiring as QueueOn<Conn>>::QUEUE.target().unwrap();
    let (mut leader, mut lead) = (bank.connect(), None);
    eventually("the test leads", || leader.try_lead(&target, LeadersDuty::Upkeep, &mut lead).unwrap().then_some(()));
    let (listen, heard) = listener();
    let handle = Expiring::poller(pool(&account), handler).workers(1).on_event(listen).start().unwrap();
    let grantee = if crate::db::NAME == "mysql" { format!("'{}'@'%'", account.name) } else { account.name.clone() };
    bank.connect()
        .batch_execute(&format!(
            "REVOKE DELETE ON payments FROM {grantee}; INSERT INTO payments (company_id, amount_cents, status, last_attempt_time) \
             VALUES (1, 2, 'FAILED', '2001-02-03 04:05:06.000')"
        ))
        .unwrap();
    drop((leader, lead));
    await_warning(&["Expiring", "the upkeep cannot remove rows", "GRANT DELETE ON ", "payments"]);
    bank.enqueue([1]);
    await_event(&heard, |event| matches!(event, Event::Succeeded(_)));
    assert_eq!(handle.health().entities[0].stalled, None);
    assert_eq!(Expiring::queue().expired().count(&mut bank.connect()).unwrap(), 1);
    handle.shutdown(std::time::Duration::from_secs(30));
}
