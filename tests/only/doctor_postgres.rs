//! Ills of a database of PostgreSQL, each planted and found.

use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use queue_core::internals::examine_from;
use queueable::Queueable;
use queueable::report::{Ill, IllKind, Severity, examine};

use crate::db::{Account, Conn, Database, PrivateServer, SMALLEST_RIGHTS, start_pooler, start_standby};
use crate::suite::bank::{Bank, Payment};
use crate::suite::doctor::{found, mend, only};

/// A server that forces its commits to the disk, unlike the one that the tests share.
fn server() -> PrivateServer {
    let server = PrivateServer::start();
    server.kill();
    server.set_arguments(["-c", "fsync=on"].map(str::to_owned).into());
    server.restart();
    server
}

fn of_kind(ills: &[Ill], kind: IllKind) -> Vec<&Ill> {
    ills.iter().filter(|ill| ill.kind == kind).collect()
}

#[test]
fn ills_of_a_server_are_found_and_mended() {
    let server = server();
    let bank = Bank::in_database(Database::on(&server));
    let examined = || examine(&mut bank.connect()).unwrap();
    assert_eq!(examined(), []);
    let name: String = diesel::select(sql::<Text>("CURRENT_DATABASE()::text")).get_result(&mut bank.connect()).unwrap();
    let of_database = |setting: &str| format!("ALTER DATABASE {name} SET {setting}");
    let of_server = |setting: &str| format!("ALTER SYSTEM SET {setting}; SELECT pg_reload_conf()");
    for (plant, kind, severity) in [
        (of_server("full_page_writes = off"), IllKind::Durability, Severity::Error),
        (of_database("synchronous_commit = off"), IllKind::Durability, Severity::Warning),
        (of_database("default_transaction_isolation = 'serializable'"), IllKind::Isolation, Severity::Warning),
        (of_database("default_transaction_read_only = on"), IllKind::ReadOnly, Severity::Warning),
        (of_database("statement_timeout = '900ms'"), IllKind::Timeouts, Severity::Warning),
        (of_database("lock_timeout = '50ms'"), IllKind::Timeouts, Severity::Warning),
        (of_server("autovacuum = off"), IllKind::Autovacuum, Severity::Warning),
        (
            "SELECT pg_create_physical_replication_slot('nobody', true)".to_owned(),
            IllKind::OldTransaction,
            Severity::Warning,
        ),
    ] {
        let mut operator = bank.connect();
        // With the settings of before, in which the mend can run.
        plant.split("; ").for_each(|statement| operator.batch_execute(statement).unwrap());
        // The server has no settings at once that it reads anew.
        await_that(|| !of_kind(&examined(), kind).is_empty());
        let ill = only(examined(), kind);
        assert_eq!((ill.severity, &ill.queue), (severity, &None), "{ill}");
        mend(&mut operator, &ill);
        await_that(|| examined().is_empty());
    }
}

#[test]
fn what_keeps_dead_rows_is_found_and_mended() {
    let server = PrivateServer::start();
    server.kill();
    server.set_arguments(["-c", "fsync=on", "-c", "max_prepared_transactions=2"].map(str::to_owned).into());
    server.restart();
    let bank = Bank::in_database(Database::on(&server));
    let limits = [("{old_seconds}", "0".to_owned())];
    let examined = || examine_from(&mut bank.connect(), &limits).unwrap();
    assert_eq!(examined(), []);
    let mut idle = bank.connect();
    idle.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").unwrap();
    let ill = only(examined(), IllKind::OldTransaction);
    assert!(ill.problem.contains("(idle in transaction)") && ill.problem.contains("of postgres"), "{ill}");
    mend(&mut bank.connect(), &ill);
    await_that(|| examined().is_empty());
    bank.connect().batch_execute("BEGIN; DELETE FROM payments; PREPARE TRANSACTION 'for''got'").unwrap();
    let ill = only(examined(), IllKind::OldTransaction);
    assert!(ill.problem.starts_with("the prepared transaction for'got has "), "{ill}");
    mend(&mut bank.connect(), &ill);
    assert_eq!(examined(), []);
    let limits = [("{transaction_ids}", "0".to_owned())];
    let ills = examine_from(&mut bank.connect(), &limits).unwrap();
    assert_eq!(only(ills, IllKind::TransactionIds).severity, Severity::Error);
}

fn await_that(is_it: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_it() {
        assert!(Instant::now() < deadline, "it never came true");
        std::thread::yield_now();
    }
}

#[test]
fn nearly_all_connections_in_use_are_found() {
    let server = PrivateServer::start();
    server.kill();
    server.set_arguments(["-c", "fsync=on", "-c", "max_connections=10"].map(str::to_owned).into());
    server.restart();
    let bank = Bank::in_database(Database::on(&server));
    let _others: Vec<_> = (0..6).map(|_| bank.connect()).collect();
    let mut operator = bank.connect();
    assert_eq!(of_kind(&examine(&mut operator).unwrap(), IllKind::Connections), [] as [&Ill; 0]);
    let _last = bank.connect();
    assert!(only(examine(&mut operator).unwrap(), IllKind::Connections).problem.starts_with("8 of the server's 10 "));
}

#[test]
fn ills_of_a_table_are_found_and_mended() {
    let bank = Bank::new();
    for (plant, kind, severity) in [
        ("ALTER TABLE payments SET UNLOGGED", IllKind::UnloggedTable, Severity::Error),
        ("ALTER TABLE payments SET (autovacuum_enabled = false)", IllKind::Autovacuum, Severity::Warning),
        (
            "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$; \
             CREATE TRIGGER touched BEFORE UPDATE ON payments FOR EACH ROW EXECUTE FUNCTION touch()",
            IllKind::Trigger,
            Severity::Note,
        ),
    ] {
        bank.connect().batch_execute(plant).unwrap();
        let ill = found(&bank, kind);
        assert_eq!(ill.severity, severity, "{ill}");
        bank.connect().batch_execute(&ill.mend).unwrap();
        assert_eq!(Payment::examine(&mut bank.connect()).unwrap(), [], "after {}", ill.mend);
    }
    bank.connect().batch_execute("ALTER TABLE payments ENABLE ROW LEVEL SECURITY").unwrap();
    assert!(found(&bank, IllKind::RowSecurity).problem.contains("with 0 policies"));
}

#[test]
fn an_index_that_is_not_valid_is_found_and_mended() {
    let bank = Bank::new();
    bank.connect()
        .batch_execute(
            "UPDATE pg_index SET indisvalid = false WHERE indrelid = 'payments'::regclass AND NOT indisprimary",
        )
        .unwrap();
    let ill = found(&bank, IllKind::Index);
    assert!(ill.mend.contains("\nDROP INDEX CONCURRENTLY "), "{ill}");
    mend(&mut bank.connect(), &ill);
    assert_eq!(Payment::examine(&mut bank.connect()).unwrap(), []);
}

#[test]
fn dead_rows_and_an_index_that_they_leave_too_large_are_found_and_mended() {
    let bank = Bank::new();
    bank.connect()
        .batch_execute(
            "ALTER TABLE payments SET (autovacuum_enabled = false);
             INSERT INTO payments (company_id, amount_cents, next_attempt_time)
             SELECT 1, 1, now() + n * interval '1 second' FROM generate_series(1, 450000) AS n",
        )
        .unwrap();
    bank.connect().batch_execute("DELETE FROM payments WHERE id > 1000; ANALYZE payments").unwrap();
    let ill = found(&bank, IllKind::DeadRows);
    assert!(ill.problem.contains(" dead rows ") && ill.problem.ends_with("was last vacuumed never"), "{ill}");
    mend(&mut bank.connect(), &ill);
    let ills = Payment::examine(&mut bank.connect()).unwrap();
    assert_eq!(of_kind(&ills, IllKind::DeadRows), [] as [&Ill; 0]);
    let ill = only(ills, IllKind::BloatedIndex);
    mend(&mut bank.connect(), &ill);
    let ills = Payment::examine(&mut bank.connect()).unwrap();
    assert_eq!(of_kind(&ills, IllKind::BloatedIndex), [] as [&Ill; 0]);
}

#[test]
fn an_account_that_may_little_learns_what_it_lacks_and_everything_else() {
    let bank = Bank::new();
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    let mut connection = Conn::establish(&account.url).unwrap();
    assert_eq!(Payment::examine(&mut connection).unwrap(), []);
    examine(&mut connection).unwrap();
    let revoke = format!("REVOKE UPDATE (try_count) ON payments FROM {}", account.name);
    bank.connect().batch_execute(&revoke).unwrap();
    let ill = only(Payment::examine(&mut connection).unwrap(), IllKind::Rights);
    assert_eq!(ill.mend, format!("GRANT UPDATE (\"try_count\") ON \"payments\" TO {}", account.name));
    // Without a right to the catalogue's views, the others report.
    bank.enqueue([1]);
    bank.connect()
        .batch_execute(
            "UPDATE payments SET status = 'WAITING'; REVOKE SELECT ON pg_stat_all_tables, pg_stat_activity FROM PUBLIC",
        )
        .unwrap();
    let ills = Payment::examine(&mut connection).unwrap();
    assert!(of_kind(&ills, IllKind::Unread)[0].problem.contains("permission denied"), "{ills:#?}");
    assert_eq!(of_kind(&ills, IllKind::Unread)[0].severity, Severity::Note);
    assert_eq!(of_kind(&ills, IllKind::UnknownStatus).len(), 1, "{ills:#?}");
    mend(&mut bank.connect(), &ill);
    assert_eq!(of_kind(&Payment::examine(&mut connection).unwrap(), IllKind::Rights), [] as [&Ill; 0]);
    assert!(!of_kind(&examine(&mut connection).unwrap(), IllKind::Unread).is_empty());
}

#[test]
fn a_standby_is_examined_too() {
    let server = server();
    let bank = Bank::in_database(Database::on(&server));
    bank.enqueue([1]);
    bank.connect().batch_execute("UPDATE payments SET status = 'WAITING'").unwrap();
    let standby = start_standby(server.port());
    let name = bank.database.url().rsplit('/').next().unwrap();
    let url = format!("{}/{name}", standby.url().rsplit_once('/').unwrap().0);
    let (started, mut connection) = (Instant::now(), Conn::establish(&url).unwrap());
    let mut waiting = Conn::establish(&url).unwrap();
    let count = sql::<BigInt>("(SELECT count(*) FROM payments WHERE status = 'WAITING')");
    while diesel::select(count.clone()).get_result::<i64>(&mut waiting).unwrap() == 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "the standby has not heard of it");
        std::thread::yield_now();
    }
    waiting.batch_execute("SELECT pg_create_physical_replication_slot('nobody', true)").unwrap();
    let ills = examine(&mut connection).unwrap();
    assert_eq!(of_kind(&ills, IllKind::OldTransaction), [] as [&Ill; 0], "it may be a copy of the primary's slot");
    assert_eq!(only(ills, IllKind::Standby).severity, Severity::Note);
    let ills = Payment::examine(&mut connection).unwrap();
    assert!(only(ills.clone(), IllKind::Schema).problem.contains("standby"));
    only(ills, IllKind::UnknownStatus);
}

#[test]
fn sessions_that_a_pooler_shares_are_found() {
    let bank = Bank::new();
    let pooler = start_pooler("transaction", 2);
    let name = bank.database.url().rsplit('/').next().unwrap();
    let url = pooler.url().replace("/postgres", &format!("/{name}"));
    let [mut first, mut second] = [(); 2].map(|()| Conn::establish(&url).unwrap());
    examine(&mut first).unwrap();
    let ills = [&mut second, &mut first].map(|connection| examine(connection).unwrap()).concat();
    let of_pooler = of_kind(&ills, IllKind::Pooler);
    assert!(!of_pooler.is_empty() && of_pooler[0].severity == Severity::Error, "{ills:#?}");
}
