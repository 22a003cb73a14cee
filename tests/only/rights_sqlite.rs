//! A database file that the process may not write.

use diesel::r2d2::{ConnectionManager, Pool};
use queueable::{Error, Message, Outcome, Queueable};

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
