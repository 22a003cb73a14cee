//! Ills of a database of MySQL or MariaDB, each planted and found.

use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use queue_core::internals::examine_from;
use queueable::Queueable;
use queueable::bounds::QueueOn;
use queueable::report::{Ill, IllKind, Severity, examine};

use crate::db::{Account, Conn, Database, PrivateServer, SMALLEST_RIGHTS, initialize};
use crate::suite::bank::{Bank, Payment};
use crate::suite::doctor::{found, only};

fn of_kind(ills: &[Ill], kind: IllKind) -> Vec<&Ill> {
    ills.iter().filter(|ill| ill.kind == kind).collect()
}

/// A server that forces its commits to the disk, unlike the one that the tests share.
fn server() -> PrivateServer {
    PrivateServer::start_with(initialize, vec!["--innodb-flush-log-at-trx-commit=1".to_owned()])
}

#[test]
fn ills_of_a_server_are_found_and_mended() {
    let server = server();
    let bank = Bank::in_database(Database::on(&server));
    assert_eq!(examine(&mut bank.connect()).unwrap(), []);
    let mut other = bank.connect();
    (0..170).for_each(|n| other.batch_execute(&format!("PREPARE s{n} FROM 'SELECT 1'")).unwrap());
    for (plant, kind, severity) in [
        ("SET GLOBAL innodb_flush_log_at_trx_commit = 2", IllKind::Durability, Severity::Warning),
        ("SET GLOBAL read_only = 1", IllKind::ReadOnly, Severity::Error),
        ("SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE", IllKind::Isolation, Severity::Warning),
        ("SET GLOBAL autocommit = 0", IllKind::Autocommit, Severity::Warning),
        ("SET GLOBAL sql_mode = 'NO_ENGINE_SUBSTITUTION'", IllKind::SqlMode, Severity::Warning),
        ("SET GLOBAL wait_timeout = 5", IllKind::Timeouts, Severity::Warning),
        ("SET GLOBAL max_allowed_packet = 65536", IllKind::PacketSize, Severity::Warning),
        ("SET GLOBAL max_prepared_stmt_count = 200", IllKind::Connections, Severity::Warning),
    ] {
        let mut operator = bank.connect();
        operator.batch_execute(plant).unwrap();
        let ill = only(examine(&mut bank.connect()).unwrap(), kind);
        assert_eq!((ill.severity, &ill.queue), (severity, &None), "{ill}");
        operator.batch_execute(&ill.mend).unwrap();
        assert_eq!(examine(&mut bank.connect()).unwrap(), [], "after {}", ill.mend);
    }
}

#[test]
fn what_keeps_old_versions_of_rows_is_found_and_mended() {
    let server = server();
    let bank = Bank::in_database(Database::on(&server));
    let ids = bank.enqueue([1]);
    let limits = [("{old_seconds}", "-1".to_owned())];
    let examined = || examine_from(&mut bank.connect(), &limits).unwrap();
    assert_eq!(examined(), []);
    let mut idle = bank.connect();
    idle.batch_execute("START TRANSACTION WITH CONSISTENT SNAPSHOT; SELECT * FROM payments").unwrap();
    await_that(|| !examined().is_empty());
    let ill = only(examined(), IllKind::OldTransaction);
    // The zone of a session does not make transactions older.
    let mut elsewhere = bank.connect();
    elsewhere.batch_execute("SET time_zone = '+12:00'").unwrap();
    assert_eq!(examine(&mut elsewhere).unwrap(), []);
    (0..20).for_each(|_| {
        bank.connect()
            .batch_execute(&format!("UPDATE payments SET amount_cents = amount_cents + 1 WHERE id = {}", ids[0]))
            .unwrap();
    });
    let history = examine_from(&mut bank.connect(), &[("{history}", "9".to_owned())]).unwrap();
    only(history, IllKind::DeadRows);
    bank.connect().batch_execute(&ill.mend).unwrap();
    await_that(|| examined().is_empty());
}

/// The server shows the same transactions as before to whoever asks again within a tenth of a second.
fn await_that(is_it: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_it() {
        assert!(Instant::now() < deadline, "it never came true");
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

#[test]
fn nearly_all_connections_in_use_are_found() {
    let server = server();
    let bank = Bank::in_database(Database::on(&server));
    bank.connect().batch_execute("SET GLOBAL max_connections = 10").unwrap();
    let _others: Vec<_> = (0..7).map(|_| bank.connect()).collect();
    let ill = only(examine(&mut bank.connect()).unwrap(), IllKind::Connections);
    assert_eq!(ill.severity, Severity::Warning);
}

#[test]
fn a_clock_that_differs_is_found() {
    let bank = Bank::new();
    let mut connection = bank.connect();
    connection.batch_execute("SET timestamp = UNIX_TIMESTAMP() + 3600").unwrap();
    let ills = examine(&mut connection).unwrap();
    // SYSDATE does not obey, so the queue's clock may not either.
    if let [ill] = of_kind(&ills, IllKind::Clock)[..] {
        assert!(ill.problem.contains("ahead of"), "{ill}");
    }
}

#[test]
fn ills_of_a_table_are_found_and_mended() {
    let bank = Bank::new();
    let index = <Payment as QueueOn<Conn>>::QUEUE.target().unwrap().index();
    for (plant, kind) in [
        (
            format!("ALTER TABLE payments ALTER INDEX {index} /*!80000 INVISIBLE */ /*M!100600 IGNORED */"),
            IllKind::Index,
        ),
        ("ALTER TABLE payments ENGINE = MyISAM".to_owned(), IllKind::Schema),
        (
            "ALTER TABLE payments MODIFY last_attempt_error_message MEDIUMTEXT CHARACTER SET latin1 \
             COMMENT 'queueable: a column of the queue'"
                .to_owned(),
            IllKind::CharacterSet,
        ),
    ] {
        bank.connect().batch_execute(&plant).unwrap();
        let ill = found(&bank, kind);
        // Of one column: a conversion of the table would change the application's texts as well.
        let modify = "MODIFY COLUMN `last_attempt_error_message` mediumtext CHARACTER SET utf8mb4 ";
        assert!(kind != IllKind::CharacterSet || ill.mend.contains(modify), "{ill}");
        bank.connect().batch_execute(&ill.mend).unwrap();
        assert_eq!(Payment::examine(&mut bank.connect()).unwrap(), [], "after {}", ill.mend);
    }
}

#[test]
fn what_each_write_of_the_queue_sets_off_is_found_and_mended() {
    let bank = Bank::new();
    let column = "ALTER TABLE payments ADD COLUMN updated_at DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6) \
                  ON UPDATE CURRENT_TIMESTAMP(6)";
    bank.connect().batch_execute(column).unwrap();
    let ill = found(&bank, IllKind::Trigger);
    assert_eq!(ill.severity, Severity::Note);
    bank.connect().batch_execute(&ill.mend).unwrap();
    assert_eq!(Payment::examine(&mut bank.connect()).unwrap(), []);
}

#[test]
fn an_account_that_may_little_learns_what_it_lacks_and_everything_else() {
    let bank = Bank::new();
    bank.enqueue([1]);
    let account = Account::new(&bank.database, SMALLEST_RIGHTS);
    let mut connection = Conn::establish(&account.url).unwrap();
    assert_eq!(Payment::examine(&mut connection).unwrap(), []);
    // It may not see other accounts' transactions.
    let ills = examine(&mut connection).unwrap();
    let unread = of_kind(&ills, IllKind::Unread);
    assert!(!unread.is_empty() && unread.iter().all(|ill| ill.severity == Severity::Note), "{ills:#?}");
    let revoke = format!("REVOKE UPDATE (try_count) ON payments FROM '{}'@'%'", account.name);
    bank.connect().batch_execute(&revoke).unwrap();
    bank.connect().batch_execute("UPDATE payments SET status = 'WAITING'").unwrap();
    let mut connection = Conn::establish(&account.url).unwrap();
    let ills = Payment::examine(&mut connection).unwrap();
    assert_eq!(of_kind(&ills, IllKind::UnknownStatus).len(), 1, "{ills:#?}");
    let ill = only(ills, IllKind::Rights);
    assert_eq!(ill.mend, format!("GRANT UPDATE (`try_count`) ON `payments` TO '{}'@'%'", account.name));
    bank.connect().batch_execute(&ill.mend).unwrap();
    let ills = Payment::examine(&mut Conn::establish(&account.url).unwrap()).unwrap();
    assert_eq!(of_kind(&ills, IllKind::Rights), [] as [&Ill; 0]);
}
