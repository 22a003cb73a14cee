//! A poller that cannot keep its promises refuses to start, and its findings give the SQL that mends the table.

use std::sync::Arc;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool, TestCustomizer};
use diesel_migrations::MigrationHarness;
use queueable::{Error, Finding, HandlerResult, Message, Migrations, Outcome, Poller, Queueable, Status};

use crate::db::{self, BIGINT, Conn, LONG_TEXT, TEXT, TIME};
use crate::suite::bank::{Bank, Payment, book, payment_queue, payments};

/// Returns the findings of a poller's start; none if it starts.
fn findings(bank: &Bank) -> Vec<Finding> {
    match bank.poller(book).run_until_idle() {
        Ok(_) => Vec::new(),
        Err(Error::Unsafe(findings)) => findings,
        Err(error) => panic!("{error}"),
    }
}

/// Runs the SQL of the findings until there are none. A start checks the index only if the columns are sound, so a
/// second start may find more.
fn mend(bank: &Bank) {
    for _ in 0..3 {
        let findings = findings(bank);
        if findings.is_empty() {
            return works(bank);
        }
        for statement in findings.iter().flat_map(|finding| finding.mend.split("; ")) {
            let mended = bank.connect().batch_execute(statement);
            mended.unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }
    panic!("not mended: {:?}", findings(bank));
}

/// Shows that a payment goes through, and that an ordinary insert is not enqueued.
fn works(bank: &Bank) {
    let before = bank.booked().len();
    bank.enqueue([100]);
    bank.connect().batch_execute("INSERT INTO payments (company_id, amount_cents) VALUES (1, 1)").unwrap();
    assert_eq!(bank.run(book).succeeded, 1);
    assert_eq!(bank.booked().len(), before + 1);
}

/// Makes the application's table with a row, and queue columns, one of which has another definition. An empty
/// definition leaves the column out.
fn with_column(name: &str, definition: &str) -> Bank {
    let bank = Bank::before_the_queue();
    let mut connection = bank.connect();
    connection.batch_execute("INSERT INTO payments (company_id, amount_cents) VALUES (2, 5)").unwrap();
    for (column, sound) in [
        ("status", format!("{TEXT} NOT NULL DEFAULT 'NOT_ATTEMPTED'")),
        ("next_attempt_time", TIME.to_owned()),
        ("try_count", "INTEGER NOT NULL DEFAULT 0".to_owned()),
        ("last_attempt_time", TIME.to_owned()),
        ("last_attempt_error_message", LONG_TEXT.to_owned()),
    ] {
        let definition = if column == name { definition } else { &sound };
        if !definition.is_empty() {
            connection.batch_execute(&format!("ALTER TABLE payments ADD COLUMN {column} {definition}")).unwrap();
        }
    }
    bank
}

fn index(bank: &Bank) {
    bank.connect()
        .batch_execute("CREATE INDEX queueable_payments_3d307857d9304fe5 ON payments (next_attempt_time)")
        .unwrap();
}

#[test]
fn a_migrated_table_is_found_sound() {
    assert_eq!(findings(&Bank::new()), []);
}

#[test]
fn a_missing_table_is_named() {
    let bank = Bank::before_the_queue();
    bank.connect().batch_execute("DROP TABLE payments").unwrap();
    let findings = findings(&bank);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].problem.starts_with("there is no table "), "{findings:?}");
    assert!(findings[0].problem.contains("payments"));
}

#[test]
fn what_is_no_ordinary_table_is_named_by_one_finding() {
    let view = "ALTER TABLE payments RENAME TO real_payments; CREATE VIEW payments AS SELECT * FROM real_payments";
    let temporary = "CREATE TEMPORARY TABLE payments (id INTEGER)";
    let of_a_program = "DROP TABLE payments; CREATE VIRTUAL TABLE payments USING fts5(amount_cents)";
    let kinds = match db::NAME {
        "postgres" => &[(view, "a view"), (temporary, "a temporary table")][..],
        "sqlite" => &[(view, "a view"), (temporary, "a temporary table"), (of_a_program, "a virtual table")],
        _ => &[(view, "a view"), (temporary, "a temporary table")],
    };
    for &(ddl, kind) in kinds {
        let bank = Bank::before_the_queue();
        let mut connection = bank.connect();
        connection.batch_execute(ddl).unwrap();
        let error = connection.run_pending_migrations(Migrations::new().entity::<Payment>()).unwrap_err().to_string();
        assert!(error.contains(&format!("is {kind}, and a queue needs an ordinary table")), "{error}");
        if ddl == view {
            let found = findings(&bank);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].problem.contains("is a view, and a queue needs an ordinary table"), "{found:?}");
            assert!(found[0].mend.contains("the table that the view reads"), "{found:?}");
        }
    }
}

#[test]
fn an_entity_that_is_served_twice_is_refused() {
    let bank = Bank::new();
    let error = bank.poller(book).serve::<Payment>(book).start().unwrap_err();
    assert!(matches!(&error, Error::Setting { found, .. } if found == "Payment"), "{error}");
}

#[test]
fn a_domain_column_that_the_table_has_not_is_found_before_the_first_claim() {
    let bank = Bank::new();
    bank.connect().batch_execute("ALTER TABLE payments DROP COLUMN amount_cents").unwrap();
    let findings = findings(&bank);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].problem.starts_with("its rows cannot be claimed: "), "{findings:?}");
    assert!(findings[0].problem.contains("amount_cents"), "{findings:?}");
}

#[test]
fn a_connection_that_is_in_a_transaction_is_refused_with_what_to_do_in_a_test() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let pool = Pool::builder().max_size(3).connection_customizer(Box::new(TestCustomizer));
    let pool = pool.build(ConnectionManager::<Conn>::new(bank.database.url())).unwrap();
    let error = Payment::poller(pool, book).workers(1).run_until_idle().unwrap_err().to_string();
    assert!(error.contains("in a transaction that was open already") && error.contains("TestCustomizer"), "{error}");
}

#[test]
fn a_handler_that_would_wait_for_its_own_end_is_refused() {
    let bank = Arc::new(Bank::new());
    bank.enqueue([1]);
    // A suspect row that is to run alone waits for this handler, and keeps the rows of other databases waiting too.
    let queues = [bank.clone(), Arc::new(Bank::new())];
    let tally = bank.run(move |payment: &Payment, message: &mut Message<'_, Conn>| {
        for queue in &queues {
            let refused = queue.poller(book).run_until_idle().unwrap_err().to_string();
            assert!(refused.starts_with("run_until_idle is called for Payment inside a handler"), "{refused}");
        }
        book(payment, message)
    });
    assert_eq!(tally.succeeded, 1);
    // Another thread may do this, and so may this one afterwards.
    assert_eq!(bank.run(book).succeeded, 0);
}

#[test]
fn an_index_of_another_name_serves_if_it_is_the_same() {
    let same = if db::NAME == "mysql" { "" } else { " WHERE next_attempt_time IS NOT NULL" };
    for (columns, condition, serves) in [
        ("next_attempt_time", same, true),
        // This index has all rows, finished ones too. PostgreSQL's should have only the pending rows.
        ("next_attempt_time", "", db::NAME != "postgres"),
        ("next_attempt_time DESC", "", false),
        ("status, next_attempt_time", "", false),
    ] {
        let bank = with_column("", "");
        bank.connect().batch_execute(&format!("CREATE INDEX copied ON payments ({columns}){condition}")).unwrap();
        let found = findings(&bank);
        let mends: Vec<_> = found.iter().map(|finding| finding.mend.as_str()).collect();
        match (serves, db::NAME) {
            // On MySQL a claim names the index.
            (true, "mysql") => assert!(mends[0].contains(" RENAME INDEX `copied` TO "), "{mends:?}"),
            (true, _) => assert_eq!(mends, [""; 0]),
            (false, _) => assert!(mends[0].contains("CREATE INDEX"), "{mends:?}"),
        }
        mend(&bank);
    }
    if db::NAME != "mysql" {
        let bank = with_column("", "");
        bank.connect()
            .batch_execute("CREATE INDEX part ON payments (next_attempt_time) WHERE status = 'ERROR'")
            .unwrap();
        assert_eq!(findings(&bank).len(), 1);
    }
}

#[test]
fn a_table_without_a_queue_is_refused_and_mended() {
    let bank = Bank::before_the_queue();
    let found = findings(&bank);
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|finding| finding.entity == "Payment"));
    let error = bank.poller(book).start().unwrap_err().to_string();
    assert!(error.contains("has no column next_attempt_time, which the entity's migration adds"), "{error}");
    assert!(error.contains("to mend it: ALTER TABLE "), "{error}");
    mend(&bank);
}

#[test]
fn each_missing_column_is_named_and_mended() {
    for name in ["next_attempt_time", "try_count", "last_attempt_time", "last_attempt_error_message"] {
        let bank = with_column(name, "");
        let found = findings(&bank);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].problem.contains(&format!("has no column {name}")), "{found:?}");
        mend(&bank);
    }
}

#[test]
fn a_missing_index_is_named_and_mended() {
    let bank = with_column("", "");
    let found = findings(&bank);
    assert_eq!(found.len(), 1);
    assert!(found[0].problem.contains("no usable index queueable_payments_3d307857d9304fe5"), "{found:?}");
    mend(&bank);
}

#[test]
fn an_index_of_the_right_name_on_another_column_is_named_and_mended() {
    let bank = with_column("", "");
    bank.connect()
        .batch_execute("CREATE INDEX queueable_payments_3d307857d9304fe5 ON payments (company_id, next_attempt_time)")
        .unwrap();
    assert_eq!(findings(&bank).len(), 1);
    mend(&bank);
}

#[test]
fn columns_of_another_type_are_named_and_mended() {
    for (name, definition, found_type) in [
        ("try_count", format!("{BIGINT} NOT NULL DEFAULT 0"), "bigint"),
        ("next_attempt_time", "CHAR(30)".to_owned(), "char"),
        ("last_attempt_time", "CHAR(30) NOT NULL DEFAULT '2026-03-01 00:00:00.000'".to_owned(), "char"),
        ("last_attempt_error_message", BIGINT.to_owned(), "bigint"),
        ("status", format!("{BIGINT} DEFAULT 7"), "bigint"),
    ] {
        let bank = with_column(name, &definition);
        index(&bank);
        let found = findings(&bank);
        assert_eq!(found.len(), 1, "{found:?}");
        let start = format!("the column {name} is of type {found_type}");
        assert!(found[0].problem.starts_with(&start), "{found:?}");
        mend(&bank);
    }
}

#[test]
fn columns_that_are_too_short_or_too_coarse_are_named_and_mended() {
    let cases: &[(&str, &str, &str)] = match db::NAME {
        "mysql" => &[
            (
                "status",
                "VARCHAR(8) NOT NULL DEFAULT 'NOT_ATT'",
                "is of type varchar(8), expected at least 13 characters",
            ),
            ("next_attempt_time", "DATETIME", "is of type datetime(0), expected datetime(6)"),
            ("last_attempt_time", "DATETIME(3)", "is of type datetime(3), expected datetime(6)"),
            (
                "last_attempt_error_message",
                "MEDIUMTEXT CHARACTER SET latin1",
                "is of type mediumtext character set latin1",
            ),
        ],
        "postgres" => &[
            (
                "status",
                "VARCHAR(8) NOT NULL DEFAULT 'NOT_ATT'",
                "is of type character varying(8), expected at least 13",
            ),
            ("next_attempt_time", "TIMESTAMPTZ(0)", "is of type timestamp(0) with time zone"),
            (
                "last_attempt_error_message",
                "VARCHAR(500)",
                "is of type character varying(500), expected at least 65535",
            ),
        ],
        // There a type limits no text.
        _ => &[],
    };
    for (name, definition, problem) in cases {
        let bank = with_column(name, definition);
        index(&bank);
        let found = findings(&bank);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].problem.contains(problem), "{found:?}");
        mend(&bank);
    }
}

#[test]
fn a_nullable_status_is_refused_and_mended_although_there_are_nulls() {
    let bank = with_column("status", &format!("{TEXT} DEFAULT 'NOT_ATTEMPTED'"));
    index(&bank);
    bank.connect().batch_execute("UPDATE payments SET status = NULL").unwrap();
    let found = findings(&bank);
    assert!(found[0].problem.starts_with("the column status may be null"), "{found:?}");
    mend(&bank);
    assert_eq!(bank.state(1).status, Status::NotAttempted);
}

#[test]
fn a_next_attempt_time_that_cannot_be_null_is_refused_and_mended() {
    let bank = with_column("next_attempt_time", &format!("{TIME} NOT NULL DEFAULT '2100-03-01 00:00:00.000'"));
    index(&bank);
    let found = findings(&bank);
    assert!(found[0].problem.contains("next_attempt_time is NOT NULL, but null means `not queued`"), "{found:?}");
    mend(&bank);
    // The old value stays: its owner has to say that the row is not queued.
    assert_eq!(bank.state(1).next_attempt_time, Some("2100-03-01T00:00:00Z".parse().unwrap()));
}

#[test]
fn a_status_column_of_the_applications_own_is_not_taken_for_the_queues() {
    let bank = with_column("status", &format!("{TEXT} NOT NULL DEFAULT 'active'"));
    index(&bank);
    let found = findings(&bank);
    assert_eq!(found.len(), 1);
    assert!(found[0].problem.contains("is it the application's own?"), "{found:?}");
    assert!(found[0].mend.contains("#[queue(prefix = "), "{found:?}");
}

#[test]
fn every_finding_of_every_entity_is_reported_at_once() {
    let bank = Bank::before_the_queue();
    let poller = Poller::new(bank.pool(1)).serve::<Payment>(book).serve::<Ledger>(done);
    let Err(Error::Unsafe(found)) = poller.workers(1).start() else { panic!("it started") };
    assert_eq!(found.iter().filter(|finding| finding.entity == "Payment").count(), 5);
    assert_eq!(found.iter().filter(|finding| finding.entity == "Ledger").count(), 5);
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = crate::suite::bank::ledger)]
struct Ledger {
    #[allow(dead_code)]
    id: i64,
}

fn done(_: &Ledger, _: &mut Message<'_, Conn>) -> HandlerResult {
    Ok(Outcome::Done)
}

#[test]
fn settings_that_make_no_sense_are_named_with_what_is_accepted() {
    let bank = Bank::new();
    let setting = |poller: Poller<Conn>| match poller.start() {
        Err(error @ Error::Setting { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        setting(Payment::poller(bank.database.pool(4), book).workers(4)),
        "the pool's max_size is 4, expected more than the number of workers: each keeps a connection, and the poller one more"
    );
    assert_eq!(setting(Poller::new(bank.pool(1))), "the number of entities served is 0, expected at least one `serve`");
    assert_eq!(setting(bank.poller(book).workers(0)), "workers is 0, expected at least 1");
}

#[test]
fn a_refused_poller_has_changed_nothing() {
    let bank = Bank::new();
    bank.enqueue([1]);
    bank.connect().batch_execute("DROP TABLE ledger").unwrap();
    bank.connect().batch_execute("CREATE TABLE ledger (id INTEGER PRIMARY KEY NOT NULL)").unwrap();
    let before = bank.state(1);
    let poller = bank.poller(book).serve::<Ledger>(done);
    assert!(matches!(poller.start(), Err(Error::Unsafe(_))));
    assert_eq!(bank.state(1), before);
    let due = payments::table.filter(payment_queue::next_attempt_time.is_not_null()).count();
    assert_eq!(due.get_result::<i64>(&mut bank.connect()), Ok(1));
}
