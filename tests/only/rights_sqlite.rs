//! A database file that the process may not write.

use diesel::Connection;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_migrations::MigrationHarness;
use queueable::control::Audit;
use queueable::{Error, Message, Migrations, Outcome, Queueable};

use crate::db::Conn;
use crate::suite::bank::{Bank, Payment};

#[test]
fn a_file_that_may_only_be_read_is_refused() {
    let bank = Bank::new();
    let id = bank.enqueue([1])[0];
    // In WAL mode, as a poller leaves the file.
    bank.run(|_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done));
    let again = bank.enqueue([2])[0];
    let manager = ConnectionManager::<Conn>::new(format!("file:{}?mode=ro", bank.database.url()));
    let pool = Pool::builder().max_size(3).build(manager).unwrap();
    let handler = |_: &Payment, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let refused = Payment::poller(pool, handler).workers(1).start();
    let Err(Error::Unsafe(findings)) = refused else { panic!("{refused:?}") };
    assert!(findings[0].problem.starts_with("the database takes no writes"), "{findings:?}");
    assert_eq!((bank.state(id).try_count, bank.state(again).try_count), (1, 0));
}

#[test]
fn an_audit_that_may_only_be_read_is_refused_before_anything_is_changed() {
    let bank = Bank::new();
    bank.connect().run_pending_migrations(Migrations::new().audit()).unwrap();
    bank.enqueue([1]);
    let mut connection = Conn::establish(&format!("file:{}?mode=ro", bank.database.url())).unwrap();
    let refused = Payment::queue().all_rows().by("ops@example.org", "ticket 812").stop(&mut connection);
    let Err(Error::Control(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("the table queueable_audit cannot be used: attempt to write a readonly database"), "{text}");
    assert!(text.ends_with("to mend it: let the process read and write the database's file"), "{text}");
    assert_eq!(queueable::control::audit(&mut connection, &Audit::new()).unwrap().rows, []);
}
