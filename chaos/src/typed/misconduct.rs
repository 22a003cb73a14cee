//! Handlers that break the rules, by the payment's kind. They do so after they have booked the payment.

use std::thread;
use std::time::Duration;

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::prelude::*;
use queueable::Failure;

use super::Conn;
use crate::bank::ledger;
use crate::session::Dialect;

pub(super) fn misbehave(kind: &str, id: i64, url: &str, connection: &mut Conn) -> Result<(), Failure> {
    let row = |sql: &str| sql.replace("$id", &id.to_string());
    let sql = match kind {
        // On PostgreSQL this aborts the transaction, elsewhere only the statement.
        "swallows" => {
            drop(connection.batch_execute("INSERT INTO no_such_table VALUES (1)"));
            return Ok(());
        }
        "leaves open" => {
            <Conn as Connection>::TransactionManager::begin_transaction(connection)?;
            return Ok(());
        }
        "swallows a deadlock" => return swallow_a_deadlock(id, url, connection),
        "writes elsewhere" => return write_elsewhere(id, url),
        "commits" | "commits and fails" => row("COMMIT"),
        "rolls back" | "rolls back and fails" => row("ROLLBACK"),
        "begins anew" => row("ROLLBACK; BEGIN"),
        "creates a table" => row("CREATE TABLE made_by_$id (id INT)"),
        "deletes itself" => row("DELETE FROM payments WHERE id = $id"),
        "edits its status" => row("UPDATE payments SET status = 'SUCCESS' WHERE id = $id"),
        "edits its tries" => row("UPDATE payments SET try_count = 7 WHERE id = $id"),
        "edits its due time" => row("UPDATE payments SET next_attempt_time = NULL WHERE id = $id"),
        _ => return Ok(()),
    };
    connection.batch_execute(&sql)?;
    if kind.ends_with("and fails") { Err(Failure::retry("and failed")) } else { Ok(()) }
}

/// Makes a deadlock in which the database rolls this transaction back, and goes on as if nothing had happened. With
/// autocommit, its later writes would stay even if the attempt fails.
fn swallow_a_deadlock(id: i64, url: &str, connection: &mut Conn) -> Result<(), Failure> {
    // Two of the payments from before the queue, which no other session locks.
    let (ours, theirs) = (id % 100 + 1, id % 100 + 101);
    let lock = |id| format!("SELECT id FROM payments WHERE id = {id} FOR UPDATE");
    connection.batch_execute(&lock(ours))?;
    let mut other = Conn::establish(url)?;
    // The database chooses the session that has written less.
    let much = vec!["(0, 'much')"; 200].join(", ");
    other.batch_execute(&format!("BEGIN; INSERT INTO touched (payment_id, how) VALUES {much}"))?;
    other.batch_execute(&lock(theirs))?;
    let waits = thread::spawn(move || other.batch_execute(&format!("{}; ROLLBACK", lock(ours))));
    thread::sleep(Duration::from_millis(50));
    let deadlock = connection.batch_execute(&lock(theirs));
    let _ = waits.join();
    if deadlock.is_ok() {
        return Err(Failure::retry("there was no deadlock"));
    }
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(id), ledger::amount_cents.eq(0), ledger::attempt.eq(-1)))
        .execute(connection)?;
    Ok(())
}

/// Books the payment on the handler's own connection, which the library does not know, and fails.
fn write_elsewhere(id: i64, url: &str) -> Result<(), Failure> {
    let mut elsewhere = Conn::establish(url)?;
    elsewhere.batch_execute(match Dialect::of(url) {
        Dialect::Postgres => "SET lock_timeout = '500ms'",
        Dialect::Mysql => "SET SESSION innodb_lock_wait_timeout = 1",
        Dialect::Sqlite => "PRAGMA busy_timeout = 100",
    })?;
    diesel::insert_into(ledger::table)
        .values((ledger::payment_id.eq(id), ledger::amount_cents.eq(0), ledger::attempt.eq(-1)))
        .execute(&mut elsewhere)
        // As a text: the library would repeat the attempt after a conflict in the database without using a try.
        .map_err(|error| Failure::retry(format!("nothing was written elsewhere: {error}")))?;
    Err(Failure::retry("failed after it wrote elsewhere"))
}
