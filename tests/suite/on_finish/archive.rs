//! A finished row moves to its archive, as a whole, in the transaction that settles it.

use std::time::Duration;

use diesel::prelude::*;
use queueable::{Error, Message, Outcome, Queueable, Status};

use super::{MODES, Mode, Moved, MovedInGroups, bank, done, execute, failed, ids, live, until};
use crate::db::{BIGINT, Conn, NAME, TEXT};
use crate::suite::bank::{Bank, ledger, payments};

#[test]
fn finished_rows_move_whole_in_every_mode_and_the_others_stay() {
    for mode in MODES {
        let bank = bank();
        let rows = bank.enqueue([5, -1, 13, 77, 6, -2]);
        execute(&bank, "UPDATE payments SET note = 'für K.' WHERE amount_cents IN (5, -1)");
        let tally = mode.run(&bank);
        assert_eq!((tally.succeeded, tally.failed, tally.retried, tally.skipped), (2, 2, 1, 1), "{mode:?}");
        assert_eq!(live(&bank), [rows[2], rows[3]], "{mode:?}: what is retried or skipped stays");
        assert_eq!(bank.booked(), [rows[0], rows[3], rows[4]], "{mode:?}");
        let note = Some("für K.".to_owned());
        let success = |id, amount, note| (id, amount, note, "SUCCESS".to_owned(), 1, None);
        assert_eq!(done(&bank), [success(rows[0], 5, note.clone()), success(rows[4], 6, None)], "{mode:?}");
        let text = Some("no such account".to_owned());
        let failure = |id, amount, note| (id, amount, note, "FAILED".to_owned(), 1, text.clone());
        assert_eq!(failed(&bank), [failure(rows[1], -1, note), failure(rows[5], -2, None)], "{mode:?}");
    }
}

#[test]
fn the_last_try_moves_the_row() {
    for mode in MODES {
        let bank = bank();
        bank.enqueue([13]);
        for tries in 1..=3 {
            execute(
                &bank,
                "UPDATE payments SET next_attempt_time = last_attempt_time WHERE last_attempt_time IS NOT NULL",
            );
            let tally = mode.run(&bank);
            assert_eq!((tally.retried, tally.failed), if tries < 3 { (1, 0) } else { (0, 1) }, "{mode:?}");
        }
        assert_eq!(live(&bank), [0; 0]);
        assert_eq!((failed(&bank)[0].4, bank.booked().len()), (3, 0), "{mode:?}");
    }
}

#[test]
fn a_lease_that_expired_in_the_last_try_moves_the_row() {
    let bank = bank();
    let id = bank.enqueue([5])[0];
    execute(
        &bank,
        "UPDATE payments SET status = 'IN_PROGRESS', try_count = 3, next_attempt_time = '2001-02-03 04:05:06.000'",
    );
    assert_eq!(Mode::Lease.run(&bank).failed, 1);
    assert_eq!(live(&bank), [0; 0]);
    let archived = failed(&bank);
    assert_eq!((archived[0].0, archived[0].5.as_deref()), (id, Some("queueable: lease expired in attempt 3")));
}

#[test]
fn a_failure_that_is_recorded_in_a_transaction_of_its_own_moves_the_row() {
    #[derive(Debug, Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = once_queue, max_tries = 1, timeout = "30s", archive(failed = payments_failed))]
    struct Once {
        #[expect(dead_code, reason = "it is decoded, not read")]
        id: i64,
    }

    let bank = bank();
    let id = bank.enqueue([5])[0];
    let handler = |_: &Once, message: &mut Message<'_, Conn>| {
        diesel::sql_query("ROLLBACK").execute(message.connection())?;
        Ok(Outcome::Done)
    };
    let tally = Once::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    assert_eq!(tally.failed, 1);
    let archived = failed(&bank);
    assert_eq!((live(&bank).len(), ids(&archived)), (0, vec![id]));
    assert!(archived[0].5.as_ref().unwrap().starts_with("the handler ended the message's transaction"));
}

#[test]
fn columns_that_are_computed_are_not_copied() {
    let bank = Bank::before_the_queue();
    execute(&bank, "DROP TABLE payments");
    execute(
        &bank,
        &format!(
            "CREATE TABLE payments (id {} NOT NULL, company_id {BIGINT} NOT NULL, amount_cents {BIGINT} NOT NULL, \
             twice {BIGINT} GENERATED ALWAYS AS (amount_cents * 2) STORED, note {TEXT})",
            crate::db::AUTO_KEY
        ),
    );
    use diesel_migrations::MigrationHarness;
    bank.connect().run_pending_migrations(queueable::Migrations::new().entity::<Moved>()).unwrap();
    let rows = bank.enqueue([5, -1]);
    assert_eq!(Mode::Transaction.run(&bank).succeeded, 1);
    assert_eq!((ids(&done(&bank)), ids(&failed(&bank))), (vec![rows[0]], vec![rows[1]]));
    // And back again.
    let all = Moved::queue().all_rows();
    assert_eq!(all.redrive(&mut bank.connect()).unwrap().rows, 1);
    let twice: Vec<i64> = payments::table
        .select(diesel::dsl::sql::<diesel::sql_types::BigInt>("twice"))
        .load(&mut bank.connect())
        .unwrap();
    assert_eq!(twice, [-2]);
}

#[test]
fn a_column_that_the_application_adds_while_pollers_run_is_not_lost() {
    for mode in MODES {
        let bank = bank();
        let first = bank.enqueue([5])[0];
        let handle = mode.poller(&bank).start().unwrap();
        until("the first row is settled", || ids(&done(&bank)) == [first]);
        execute(&bank, &format!("ALTER TABLE payments ADD COLUMN reference {TEXT} DEFAULT 'A-17'"));
        let later = bank.enqueue([7, -3]);
        // A lease's claim writes the time of the attempt, too; the text comes with its end.
        let is_settled = |id| bank.state(id).last_attempt_error_message.is_some();
        until("the later rows are settled", || later.iter().all(|id| is_settled(*id)));
        handle.shutdown(Duration::from_secs(10));
        assert_eq!(live(&bank), later, "{mode:?}: both are still there");
        let success = bank.state(later[0]);
        assert_eq!(success.status, Status::Error, "{mode:?}");
        let text = success.last_attempt_error_message.unwrap_or_default();
        assert!(text.contains("reference"), "{mode:?}: {text}");
        let failure = bank.state(later[1]);
        let text = failure.last_attempt_error_message.unwrap();
        assert_eq!((failure.status, failure.next_attempt_time), (Status::Failed, None), "{mode:?}");
        assert!(text.starts_with("no such account\n(the row stays here"), "{text}");

        for archive in ["payments_done", "payments_failed"] {
            execute(&bank, &format!("ALTER TABLE {archive} ADD COLUMN reference {TEXT}"));
        }
        execute(&bank, "UPDATE payments SET next_attempt_time = last_attempt_time WHERE status = 'ERROR'");
        assert_eq!(mode.run(&bank).succeeded, 1, "{mode:?}");
        assert_eq!(Moved::queue().all_rows().archive(&mut bank.connect()).unwrap(), 1);
        let sql =
            "reference FROM payments_done WHERE reference IS NOT NULL UNION ALL SELECT reference FROM payments_failed";
        let references: Vec<String> =
            diesel::select(diesel::dsl::sql::<diesel::sql_types::Text>(sql)).load(&mut bank.connect()).unwrap();
        assert_eq!(references, ["A-17", "A-17"], "{mode:?}");
    }
}

#[test]
fn nothing_is_lost_when_the_archive_refuses_and_the_handlers_effects_are_undone() {
    for mode in MODES {
        let bank = bank();
        let rows = bank.enqueue([5, 6]);
        let taken = "INSERT INTO payments_done (id, company_id, amount_cents, status, try_count) VALUES";
        execute(&bank, &format!("{taken} ({}, 1, 5, 'SUCCESS', 1)", rows[0]));
        let tally = mode.run(&bank);
        assert_eq!((tally.succeeded, tally.retried), (1, 1), "{mode:?}");
        assert_eq!((live(&bank), bank.booked()), (vec![rows[0]], vec![rows[1]]), "{mode:?}");
        let state = bank.state(rows[0]);
        assert_eq!((state.status, state.try_count), (Status::Error, 1), "{mode:?}");
        assert!(state.last_attempt_error_message.unwrap().starts_with("the row's new state cannot be written"));
        let ledgers: i64 = ledger::table.count().get_result(&mut bank.connect()).unwrap();
        assert_eq!(ledgers, 1);
    }
}

#[test]
fn many_workers_of_two_pollers_move_every_row_once() {
    for mode in MODES {
        let bank = bank();
        let rows = bank.enqueue((1..=60).map(|amount| if amount % 10 == 0 { -amount } else { amount * 100 }));
        let start = || mode.poller_on(bank.pool(3)).workers(3);
        let (one, other) = (start(), start());
        let other = std::thread::spawn(move || other.run_until_idle().unwrap());
        let one = one.run_until_idle().unwrap();
        let other = other.join().unwrap();
        assert_eq!((one.succeeded + other.succeeded, one.failed + other.failed), (54, 6), "{mode:?}");
        let (done, failed) = (ids(&done(&bank)), ids(&failed(&bank)));
        assert_eq!((live(&bank).len(), &bank.booked()), (0, &done), "{mode:?}");
        let mut all = [done, failed].concat();
        all.sort_unstable();
        assert_eq!(all, rows, "{mode:?}");
    }
}

#[test]
fn a_row_whose_key_is_in_the_archive_stays_and_keeps_no_others() {
    let bank = bank();
    let rows = bank.enqueue(5..25);
    let taken = "INSERT INTO payments_done (id, company_id, amount_cents, status, try_count) VALUES";
    execute(&bank, &format!("{taken} ({}, 1, 5, 'SUCCESS', 1)", rows[0]));
    execute(&bank, "UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL");
    execute(&bank, "UPDATE payments SET status = 'FAILED' WHERE amount_cents > 20");
    let archived = Moved::queue().all_rows().batch(7).archive(&mut bank.connect());
    let Err(Error::Interrupted { rows: 19, source }) = archived else { panic!("{archived:?}") };
    assert!(matches!(*source, Error::Refused { rows: 1, .. }), "{source:?}");
    assert_eq!((live(&bank), done(&bank).len(), failed(&bank).len()), (vec![rows[0]], 16, 4));
}

#[test]
fn a_row_that_a_rule_keeps_in_its_table_fails_all_the_same() {
    if NAME == "sqlite" {
        return; // It asks for foreign keys only in sessions that want it.
    }
    for mode in MODES {
        let bank = bank();
        let id = bank.enqueue([-3])[0];
        // Where the database can do that, it finds the child at the COMMIT.
        let deferred = if NAME == "postgres" { "DEFERRABLE INITIALLY DEFERRED" } else { "" };
        let key = format!("FOREIGN KEY (payment_id) REFERENCES payments (id) {deferred}");
        execute(&bank, &format!("CREATE TABLE children (payment_id {BIGINT} NOT NULL, {key})"));
        execute(&bank, &format!("INSERT INTO children VALUES ({id})"));
        assert_eq!(mode.run(&bank).failed, 1, "{mode:?}");
        let state = bank.state(id);
        let text = state.last_attempt_error_message.unwrap();
        assert_eq!((state.status, state.next_attempt_time), (Status::Failed, None), "{mode:?}: {text}");
        assert!(text.starts_with("no such account\n(the row stays here"), "{mode:?}: {text}");
    }
}

#[test]
fn what_a_handler_has_committed_of_its_group_is_not_repeated_for_a_neighbour_that_cannot_leave() {
    let bank = bank();
    // Groups of one and two come first, so that the next four rows share one.
    let rows = bank.enqueue([1, 2, 3, 4, 5, 6, 7]);
    let taken = "INSERT INTO payments_done (id, company_id, amount_cents, status, try_count) VALUES";
    execute(&bank, &format!("{taken} ({}, 1, 4, 'SUCCESS', 1)", rows[3]));
    let handler = |moved: &MovedInGroups, message: &mut Message<'_, Conn>| {
        diesel::insert_into(ledger::table)
            .values((ledger::payment_id.eq(moved.id), ledger::amount_cents.eq(moved.amount_cents)))
            .execute(message.connection())?;
        if moved.amount_cents == 6 {
            diesel::sql_query("COMMIT").execute(message.connection())?;
        }
        Ok(Outcome::Done)
    };
    let run = || MovedInGroups::poller(bank.pool(1), handler).workers(1).run_until_idle().unwrap();
    run();
    // As after the minutes for which a group reserves its rows.
    execute(
        &bank,
        "UPDATE payments SET next_attempt_time = '2026-01-01 00:00:00.000' WHERE next_attempt_time IS NOT NULL",
    );
    run();
    let booked = bank.booked();
    let of_the_neighbours = |id: &&i64| **id == rows[3] || **id == rows[4];
    if crate::db::REFUSES_COMMITS {
        assert_eq!(booked.iter().filter(of_the_neighbours).count(), 1, "the archive refuses one of them each time");
    } else {
        assert_eq!(booked.iter().filter(of_the_neighbours).collect::<Vec<_>>(), [&rows[3], &rows[4]], "{booked:?}");
        let state = bank.state(rows[3]);
        assert_eq!((state.status, state.next_attempt_time), (Status::Success, None));
    }
}

#[test]
fn an_error_tells_how_many_rows_were_archived_before_it() {
    let bank = bank();
    let rows = bank.enqueue([5, 6, -1]);
    execute(&bank, "UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL WHERE amount_cents > 0");
    execute(&bank, "UPDATE payments SET status = 'FAILED', next_attempt_time = NULL WHERE amount_cents < 0");
    execute(&bank, "DROP TABLE payments_failed");
    let error = Moved::queue().all_rows().archive(&mut bank.connect()).unwrap_err();
    assert!(matches!(error, Error::Interrupted { rows: 2, .. }), "{error:?}");
    assert_eq!((live(&bank), ids(&done(&bank))), (vec![rows[2]], vec![rows[0], rows[1]]));
}
