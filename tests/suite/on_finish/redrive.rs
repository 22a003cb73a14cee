//! Archived rows come back by filter, and finished ones go by filter.

use std::time::Duration;

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;
use queueable::report::{Preview, Redriven};
use queueable::{Error, Migrations, Queueable, Stage, Status};

use super::{Mode, Moved, MovedAndReported, bank, bank_with, done, execute, failed, ids, live, moved_queue};
use crate::db::{BIGINT, conflict_at_first_delete_of_two};
use crate::suite::bank::{Bank, payments};

/// Two successes and three failures in their archives.
fn archived() -> (Bank, Vec<i64>) {
    let bank = bank();
    let rows = bank.enqueue([5, -1, 6, -2, -3]);
    execute(&bank, "UPDATE payments SET note = 'für K.', company_id = 3345 WHERE amount_cents = -2");
    let tally = Mode::Transaction.run(&bank);
    assert_eq!((tally.succeeded, tally.failed), (2, 3));
    (bank, rows)
}

#[test]
fn redrive_by_filter_moves_whole_rows_back_and_enqueues_them() {
    let (bank, rows) = archived();
    let mut connection = bank.connect();
    let company = Moved::queue().filter(payments::company_id.eq(3345));
    let preview = company.dry_run().redrive(&mut connection).unwrap();
    assert_eq!((preview.rows, preview.some[0].entity.as_ref().unwrap().id), (1, rows[3]));
    assert_eq!(preview.some[0].status, "FAILED");
    assert_eq!((live(&bank), failed(&bank).len()), (vec![], 3), "a dry run moves nothing");

    let redriven = company.redrive(&mut connection).unwrap();
    assert_eq!((redriven.rows, redriven.conflicts), (1, 0));
    assert_eq!((live(&bank), ids(&failed(&bank))), (vec![rows[3]], vec![rows[1], rows[4]]));
    let state = bank.state(rows[3]);
    assert_eq!((state.status, state.try_count), (Status::NotAttempted, 0));
    assert!(state.next_attempt_time.is_some());
    // The cause is mended, and the row succeeds like the others.
    execute(&bank, "UPDATE payments SET amount_cents = 2");
    assert_eq!(Mode::Transaction.run(&bank).succeeded, 1);
    let back = done(&bank).into_iter().find(|row| row.0 == rows[3]).unwrap();
    assert_eq!(back, (rows[3], 2, Some("für K.".to_owned()), "SUCCESS".to_owned(), 1, None));
}

#[test]
fn queue_columns_and_texts_pick_archived_rows_too() {
    let (bank, rows) = archived();
    let mut connection = bank.connect();
    let texts = moved_queue::last_attempt_error_message.like("no such%");
    let some = Moved::queue().filter(texts).filter(payments::amount_cents.gt(-3));
    assert_eq!(some.failed().redrive(&mut connection).unwrap().rows, 2);
    assert_eq!(live(&bank), [rows[1], rows[3]]);
    let none = Moved::queue().filter(payments::amount_cents.lt(0)).pending();
    assert_eq!(none.redrive(&mut connection).unwrap(), Redriven::default());
}

/// The columns of the index for reports are none of an archive's.
#[test]
fn failed_rows_are_picked_from_the_archive_of_an_entity_with_an_index_for_reports() {
    let bank = bank_with(Migrations::new().entity::<MovedAndReported>());
    let mut connection = bank.connect();
    let now = chrono::Utc::now().format("'%Y-%m-%d %H:%M:%S%.3f'");
    execute(
        &bank,
        &format!(
            "INSERT INTO payments_failed (id, company_id, amount_cents, status, try_count, last_attempt_time)
             VALUES (1, 1, 5, 'FAILED', 3, {now}), (2, 1, 6, 'FAILED', 3, NULL), (3, 1, 7, 'FAILED', 3, {now})"
        ),
    );
    let lately = MovedAndReported::queue().filter(payments::amount_cents.lt(7)).failed();
    let lately = lately.attempted_within(Duration::from_secs(3600));
    assert_eq!(lately.dry_run().redrive(&mut connection).unwrap().rows, 1);
    assert_eq!(lately.redrive(&mut connection).unwrap().rows, 1);
    assert_eq!((live(&bank), ids(&failed(&bank))), (vec![1], vec![2, 3]));
}

/// A DELETE takes no hint of an index, which such an entity's other statements have.
#[test]
fn failed_rows_of_an_entity_with_an_index_for_reports_are_deleted() {
    let bank = bank_with(Migrations::new().entity::<MovedAndReported>());
    let rows = bank.enqueue([1, 2, 3]);
    execute(&bank, "UPDATE payments SET status = 'FAILED', next_attempt_time = NULL WHERE amount_cents < 3");
    let some = MovedAndReported::queue().filter(payments::amount_cents.gt(1));
    assert_eq!(some.failed().delete(&mut bank.connect()).unwrap(), 1);
    assert_eq!(live(&bank), [rows[0], rows[2]]);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
enum Step {
    Check,
    Mail,
}

/// A payment whose archive has both its successes and its failures.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = payments)]
#[queue(module = shared_queue, stage = Step, archive(success = payments_done, failed = payments_done))]
struct Shared {
    #[expect(dead_code, reason = "only its queue is asked")]
    id: i64,
}

#[test]
fn an_archive_of_both_gives_back_what_is_asked_for_and_a_success_begins_with_its_first_stage() {
    let bank = bank_with(Migrations::new().entity::<Shared>());
    let mut connection = bank.connect();
    execute(
        &bank,
        "INSERT INTO payments_done (id, company_id, amount_cents, status, try_count, stage)
             VALUES (1, 1, 5, 'SUCCESS', 1, 'MAIL'), (2, 1, 6, 'FAILED', 3, 'MAIL')",
    );
    let all = Shared::queue().all_rows();
    assert_eq!(all.dry_run().redrive(&mut connection).unwrap().rows, 1);
    assert_eq!(all.redrive(&mut connection).unwrap().rows, 1);
    assert_eq!((live(&bank), ids(&done(&bank))), (vec![2], vec![1]));
    assert_eq!(all.redrive_succeeded(&mut connection).unwrap().rows, 1);
    assert_eq!((live(&bank), ids(&done(&bank))), (vec![1, 2], vec![]));
    let stages = sql::<Text>("SELECT stage FROM payments ORDER BY id").load::<String>(&mut connection).unwrap();
    assert_eq!(stages, ["CHECK", "MAIL"]);
}

/// The archive is older than a column of the table, and its rows have no value there.
#[test]
fn rows_that_the_table_refuses_stay_archived_and_keep_no_other_row() {
    let (bank, rows) = archived();
    let mut connection = bank.connect();
    execute(&bank, &format!("ALTER TABLE payments ADD COLUMN reference {BIGINT} NOT NULL DEFAULT 7"));
    execute(&bank, &format!("ALTER TABLE payments_failed ADD COLUMN reference {BIGINT}"));
    execute(&bank, "UPDATE payments_failed SET reference = 8 WHERE amount_cents = -3");
    let error = Moved::queue().all_rows().redrive(&mut connection).unwrap_err();
    let Error::Interrupted { rows: 1, source } = &error else { panic!("{error}") };
    assert!(matches!(**source, Error::Refused { rows: 2, .. }), "{error}");
    assert_eq!((live(&bank), ids(&failed(&bank))), (vec![rows[4]], vec![rows[1], rows[3]]));
}

#[test]
fn redrive_succeeded_does_the_work_once_more() {
    let (bank, rows) = archived();
    let mut connection = bank.connect();
    let queue = Moved::queue().filter(payments::amount_cents.eq(6));
    assert_eq!(queue.dry_run().redrive_succeeded(&mut connection).unwrap().rows, 1);
    assert_eq!(queue.redrive_succeeded(&mut connection).unwrap().rows, 1);
    assert_eq!((live(&bank), ids(&done(&bank))), (vec![rows[2]], vec![rows[0]]));
}

#[test]
fn a_row_whose_key_is_taken_stays_archived_and_is_told() {
    for batch in [1, 2, 100] {
        let (bank, rows) = archived();
        let mut connection = bank.connect();
        diesel::insert_into(payments::table)
            .values((payments::id.eq(rows[3]), payments::company_id.eq(1), payments::amount_cents.eq(100)))
            .execute(&mut connection)
            .unwrap();
        let redriven = Moved::queue().all_rows().batch(batch).redrive(&mut connection).unwrap();
        assert_eq!((redriven.rows, redriven.conflicts), (2, 1), "batches of {batch}");
        assert_eq!((live(&bank), ids(&failed(&bank))), (vec![rows[1], rows[3], rows[4]], vec![rows[3]]));
        let amount: i64 = payments::table.find(rows[3]).select(payments::amount_cents).first(&mut connection).unwrap();
        assert_eq!(amount, 100, "the row in the table is as it was");
        let said = redriven.to_string();
        assert_eq!(said, "2 rows are back in the queue, 1 stay archived, because the table has others in their place");
    }
}

/// The first try has counted the taken key of row 1 when the delete of row 2 fails.
#[test]
fn a_batch_that_begins_anew_counts_its_conflicts_once() {
    let bank = bank();
    let mut connection = bank.connect();
    execute(
        &bank,
        "INSERT INTO payments_failed (id, company_id, amount_cents, status, try_count)
             VALUES (1, 1, 5, 'FAILED', 3), (2, 1, 6, 'FAILED', 3)",
    );
    execute(&bank, "INSERT INTO payments (id, company_id, amount_cents) VALUES (1, 1, 100)");
    conflict_at_first_delete_of_two(&mut connection);
    let redriven = Moved::queue().all_rows().redrive(&mut connection).unwrap();
    assert_eq!((redriven.rows, redriven.conflicts), (1, 1));
    assert_eq!((live(&bank), ids(&failed(&bank))), (vec![1, 2], vec![1]));
}

#[test]
fn a_redrive_belongs_to_the_callers_transaction() {
    let (bank, _) = archived();
    let mut connection = bank.connect();
    let rolled_back = connection.transaction(|connection| {
        assert_eq!(Moved::queue().all_rows().redrive(connection).unwrap().rows, 3);
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    assert!(rolled_back.is_err());
    assert_eq!((live(&bank).len(), failed(&bank).len()), (0, 3));
}

#[test]
fn archive_moves_what_had_finished_before() {
    let bank = bank();
    let rows = bank.enqueue([1, 2, 3, 4, 5, 6]);
    let set = |id: i64, set: &str| execute(&bank, &format!("UPDATE payments SET {set} WHERE id = {id}"));
    set(rows[0], "status = 'SUCCESS', next_attempt_time = NULL, note = 'für K.'");
    set(rows[1], "status = 'FAILED', next_attempt_time = NULL, last_attempt_error_message = 'no route'");
    set(rows[2], "status = 'SKIPPED', next_attempt_time = NULL");
    set(rows[3], "status = 'SUCCESS'");
    set(rows[4], "status = 'DONE', next_attempt_time = NULL");
    let mut connection = bank.connect();
    let some = Moved::queue().filter(payments::company_id.eq(1)).batch(1);
    let preview: Preview<Moved> = some.dry_run().archive(&mut connection).unwrap();
    let shown: Vec<_> = preview.some.iter().map(|row| row.entity.as_ref().unwrap().id).collect();
    assert_eq!((preview.rows, shown), (2, rows[..2].to_vec()));
    assert_eq!(live(&bank), rows);
    assert_eq!(some.archive(&mut connection).unwrap(), 2);
    assert_eq!(live(&bank), rows[2..], "skipped, due, foreign and pending rows stay");
    assert_eq!((ids(&done(&bank)), ids(&failed(&bank))), (vec![rows[0]], vec![rows[1]]));
    assert_eq!(done(&bank)[0].2.as_deref(), Some("für K."));
    assert_eq!(some.archive(&mut connection).unwrap(), 0);
}

#[test]
fn a_queue_without_an_archive_for_failures_says_so() {
    #[derive(Debug, Queryable, Selectable, Queueable)]
    #[diesel(table_name = payments)]
    #[queue(module = half_queue, archive(success = payments_done))]
    struct Half {
        #[expect(dead_code, reason = "only its queue is asked")]
        id: i64,
    }

    let bank = bank();
    let error = Half::queue().all_rows().redrive(&mut bank.connect()).unwrap_err();
    let text = "Half has no archive for rows that have failed: name it with #[queue(archive(failed = ..))]";
    assert!(matches!(&error, Error::Archive(_)) && error.to_string() == text, "{error}");
}

#[test]
fn an_archive_beside_a_table_with_a_schema_cannot_be_searched() {
    mod tables {
        diesel::table! {
            app.payments (id) { id -> BigInt, }
        }
    }
    #[derive(Debug, Queryable, Selectable, Queueable)]
    #[diesel(table_name = tables::payments)]
    #[queue(archive(failed = payments_failed))]
    struct Schemed {
        #[expect(dead_code, reason = "only its queue is asked")]
        id: i64,
    }

    let bank = bank();
    let error = Schemed::queue().all_rows().redrive(&mut bank.connect()).unwrap_err();
    assert!(error.to_string().contains("declare the table without `app.`"), "{error}");
    let dry = Schemed::queue().all_rows().dry_run().redrive(&mut bank.connect());
    assert!(matches!(dry, Err(Error::Archive(_))), "{dry:?}");
}
