//! By hand on MariaDB, through the crate `mysql`.

use std::iter::repeat_n;
use std::thread;

use anyhow::Result;
use contestant::{Enqueue, Handler};
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, Params, Statement, Value};

use super::{PAUSE, Shape, Shift};

/// The server's codes for a deadlock and for a lock that was waited for too long.
const CONFLICTS: [u16; 2] = [1213, 1205];

struct Session {
    connection: Conn,
    claim: Statement,
    book: Statement,
    settle: Statement,
    settle_all: Statement,
}

pub(super) fn work(url: &str, shift: &Shift) -> Result<()> {
    let mut connection = Conn::new(Opts::from_url(url)?)?;
    // At REPEATABLE READ claims lock gaps, and most of them end in deadlocks.
    connection.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
    let claim = format!(
        "SELECT id, number, amount_cents, note, status, try_count FROM payments \
         WHERE next_attempt_time <= UTC_TIMESTAMP(6) ORDER BY next_attempt_time LIMIT {} FOR UPDATE SKIP LOCKED",
        shift.shape.size()
    );
    let settle = "UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL, try_count = try_count + 1, \
                  last_attempt_time = UTC_TIMESTAMP(6), last_attempt_error_message = NULL WHERE id";
    let places = repeat_n("?", shift.shape.size()).collect::<Vec<_>>().join(", ");
    let mut session = Session {
        claim: connection.prep(claim)?,
        book: connection.prep("INSERT INTO ledger (payment_id, amount_cents) VALUES (?, ?)")?,
        settle: connection.prep(format!("{settle} = ?"))?,
        settle_all: connection.prep(format!("{settle} IN ({places})"))?,
        connection,
    };
    let mut number = 0;
    while !shift.is_over() {
        if shift.shape == Shape::Commit {
            number += 1;
            session.connection.exec_drop(&session.book, (number, 100))?;
            shift.meter.handled(number);
            continue;
        }
        match session.turn(shift) {
            Ok(0) => thread::sleep(PAUSE),
            Ok(_) => {}
            Err(mysql::Error::MySqlError(error)) if CONFLICTS.contains(&error.code) => {
                session.connection.query_drop("ROLLBACK")?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl Session {
    /// One transaction. Returns how many messages it has handled.
    fn turn(&mut self, shift: &Shift) -> mysql::Result<usize> {
        let connection = &mut self.connection;
        connection.query_drop("BEGIN")?;
        let claimed: Vec<(i64, i64, i64, Option<String>, String, i32)> = connection.exec(&self.claim, ())?;
        for (id, number, amount, ..) in &claimed {
            if shift.handler == Handler::Clock {
                shift.meter.handled(*number);
            }
            if shift.shape.has_savepoints() {
                connection.query_drop("SAVEPOINT message")?;
            }
            if shift.handler == Handler::Ledger {
                connection.exec_drop(&self.book, (id, amount))?;
            }
            if shift.shape.has_savepoints() {
                connection.query_drop("RELEASE SAVEPOINT message")?;
            }
        }
        if claimed.len() == shift.shape.size() && claimed.len() > 1 {
            let keys = claimed.iter().map(|(id, ..)| Value::from(id)).collect();
            connection.exec_drop(&self.settle_all, Params::Positional(keys))?;
        } else {
            for (id, ..) in &claimed {
                connection.exec_drop(&self.settle, (id,))?;
            }
        }
        connection.query_drop("COMMIT")?;
        if shift.handler != Handler::Clock {
            // After the commit: a deadlock has handled nothing.
            shift.meter.handled_all(claimed.iter().map(|&(_, number, ..)| number));
        }
        Ok(claimed.len())
    }
}

pub(super) fn enqueue(url: &str, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
    let mut connection = Conn::new(Opts::from_url(url)?)?;
    let numbers: Vec<i64> = (enqueue.first..enqueue.first + enqueue.count).collect();
    let insert = |rows| {
        let rows = repeat_n("(?, ?, UTC_TIMESTAMP(6))", rows).collect::<Vec<_>>().join(", ");
        format!("INSERT INTO payments (number, amount_cents, next_attempt_time) VALUES {rows}")
    };
    for batch in numbers.chunks(enqueue.batch) {
        enqueue.pause();
        // The connection keeps prepared statements by their text.
        let values = batch.iter().flat_map(|number| [Value::from(number), Value::from(1 + number % 1000)]).collect();
        connection.exec_drop(insert(batch.len()), Params::Positional(values))?;
        batch.iter().for_each(|&number| committed(number));
    }
    Ok(())
}
