//! By hand on SQLite, through rusqlite.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use contestant::{Backend, Enqueue, Handler};
use rusqlite::{Connection, TransactionBehavior, params};

use super::{PAUSE, Shape, Shift};

/// SQLite has one writer at a time. A thread that writes takes this lock first, which is fairer and faster than to wait for
/// the file's lock: SQLite asks for that again and again, with pauses.
static TURN: Mutex<()> = Mutex::new(());

const CLAIM: &str = "SELECT id, number, amount_cents, note, status, try_count FROM payments \
                     WHERE next_attempt_time <= strftime('%Y-%m-%d %H:%M:%f', 'now') ORDER BY next_attempt_time LIMIT ?1";
const BOOK: &str = "INSERT INTO ledger (payment_id, amount_cents) VALUES (?1, ?2)";
const SETTLE: &str = "UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL, try_count = try_count + 1, \
                      last_attempt_time = strftime('%Y-%m-%d %H:%M:%f', 'now'), last_attempt_error_message = NULL \
                      WHERE id = ?1";

fn open(url: &str, backend: Backend) -> Result<Connection> {
    let connection = Connection::open(url)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", if backend == Backend::SqliteFull { "FULL" } else { "NORMAL" })?;
    Ok(connection)
}

pub(super) fn work(url: &str, backend: Backend, shift: &Shift) -> Result<()> {
    let mut connection = open(url, backend)?;
    let mut number = 0;
    while !shift.is_over() {
        if shift.shape == Shape::Commit {
            number += 1;
            let _turn = TURN.lock().expect("nobody panics in a turn");
            connection.prepare_cached(BOOK)?.execute(params![number, 100])?;
            shift.meter.handled(number);
        } else if turn(&mut connection, shift)? == 0 {
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// One transaction. Returns how many messages it has handled.
fn turn(connection: &mut Connection, shift: &Shift) -> Result<usize> {
    let _turn = TURN.lock().expect("nobody panics in a turn");
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let claimed: Vec<(i64, i64, i64)> = {
        let mut claim = transaction.prepare_cached(CLAIM)?;
        // All columns are read, as every other contestant does.
        let rows = claim.query_map([shift.shape.size() as i64], |row| {
            let _: (Option<String>, String, i32) = (row.get(3)?, row.get(4)?, row.get(5)?);
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
        rows.collect::<Result<_, _>>()?
    };
    for &(id, number, amount) in &claimed {
        shift.meter.handled(number);
        if shift.shape.has_savepoints() {
            let savepoint = transaction.savepoint()?;
            if shift.handler == Handler::Ledger {
                savepoint.prepare_cached(BOOK)?.execute([id, amount])?;
            }
            savepoint.commit()?;
        } else if shift.handler == Handler::Ledger {
            transaction.prepare_cached(BOOK)?.execute([id, amount])?;
        }
    }
    // Statements cost next to nothing here, so one for many rows would gain next to nothing.
    for (id, ..) in &claimed {
        transaction.prepare_cached(SETTLE)?.execute([id])?;
    }
    transaction.commit()?;
    Ok(claimed.len())
}

pub(super) fn enqueue(url: &str, backend: Backend, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
    let mut connection = open(url, backend)?;
    let numbers: Vec<i64> = (enqueue.first..enqueue.first + enqueue.count).collect();
    for batch in numbers.chunks(enqueue.batch) {
        enqueue.pause();
        let _turn = TURN.lock().expect("nobody panics in a turn");
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for number in batch {
            transaction
                .prepare_cached(
                    "INSERT INTO payments (number, amount_cents, next_attempt_time) \
                     VALUES (?1, ?2, strftime('%Y-%m-%d %H:%M:%f', 'now'))",
                )?
                .execute([*number, 1 + number % 1000])?;
        }
        transaction.commit()?;
        batch.iter().for_each(|&number| committed(number));
    }
    Ok(())
}
