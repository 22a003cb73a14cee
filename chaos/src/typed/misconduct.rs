//! What no handler should do, by the payment's kind. It is done after the payment was booked.

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::prelude::*;
use queueable::Failure;

use super::Conn;
use crate::bank::ledger;
use crate::session::Dialect;

pub(super) fn misbehave(kind: &str, id: i64, url: &str, connection: &mut Conn) -> Result<(), Failure> {
    let row = |sql: &str| sql.replace("$id", &id.to_string());
    let sql = match kind {
        // On PostgreSQL this ends the transaction, elsewhere the statement alone.
        "swallows" => {
            drop(connection.batch_execute("INSERT INTO no_such_table VALUES (1)"));
            return Ok(());
        }
        "leaves open" => {
            <Conn as Connection>::TransactionManager::begin_transaction(connection)?;
            return Ok(());
        }
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

/// Books the payment on a connection of the handler's own, which the library knows nothing of, and fails.
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
        // As a text, because a conflict of the database's is nobody's fault, and would be waited out.
        .map_err(|error| Failure::retry(format!("nothing was written elsewhere: {error}")))?;
    Err(Failure::retry("failed after it wrote elsewhere"))
}
