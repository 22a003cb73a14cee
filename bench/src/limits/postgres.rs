//! By hand on PostgreSQL, through libpq.

use std::ffi::{CStr, CString};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use contestant::{Enqueue, Handler};

use super::libpq::Connection;
use super::{PAUSE, Shape, Shift};

pub(super) fn work(url: &str, shift: &Shift) -> Result<()> {
    let mut connection = Connection::open(url)?;
    connection.prepare(
        c"claim",
        &format!(
            "SELECT id, number, amount_cents, note, status, try_count FROM payments \
             WHERE next_attempt_time <= statement_timestamp() \
             ORDER BY next_attempt_time LIMIT {} FOR UPDATE SKIP LOCKED",
            shift.shape.size()
        ),
    )?;
    connection.prepare(c"book", "INSERT INTO ledger (payment_id, amount_cents) VALUES ($1, $2)")?;
    connection.prepare(
        c"settle",
        "UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL, try_count = try_count + 1, \
         last_attempt_time = clock_timestamp(), last_attempt_error_message = NULL WHERE id = $1",
    )?;
    connection.prepare(
        c"settle all",
        "UPDATE payments SET status = 'SUCCESS', next_attempt_time = NULL, try_count = try_count + 1, \
         last_attempt_time = clock_timestamp(), last_attempt_error_message = NULL WHERE id = ANY ($1)",
    )?;
    if shift.shape == Shape::Listen {
        connection.run(c"LISTEN payments")?;
    }
    let mut number = 0;
    while !shift.is_over() {
        if shift.shape == Shape::Commit {
            number += 1;
            connection.execute(c"book", &[&CString::new(number.to_string())?, c"100"])?;
            shift.meter.handled(number);
        } else if turn(&mut connection, shift)? == 0 {
            match shift.shape {
                Shape::Listen => connection.wait_for_notice(Duration::from_secs(1))?,
                _ => thread::sleep(PAUSE),
            }
        }
    }
    Ok(())
}

/// One transaction. Returns how many messages it has handled.
fn turn(connection: &mut Connection, shift: &Shift) -> Result<usize> {
    connection.run(c"BEGIN")?;
    let claimed = connection.execute(c"claim", &[])?;
    let text = |row, column| claimed.text(row, column).context("the column has a value");
    for row in 0..claimed.count() {
        if shift.shape.has_savepoints() {
            connection.run(c"SAVEPOINT message")?;
        }
        shift.meter.handled(text(row, 1)?.to_str()?.parse()?);
        if shift.handler == Handler::Ledger {
            connection.execute(c"book", &[text(row, 0)?, text(row, 2)?])?;
        }
        if shift.shape.has_savepoints() {
            connection.run(c"RELEASE SAVEPOINT message")?;
        }
    }
    match claimed.count() {
        0 => {}
        1 => drop(connection.execute(c"settle", &[text(0, 0)?])?),
        count => {
            let keys = (0..count).map(|row| Ok(text(row, 0)?.to_str()?)).collect::<Result<Vec<_>>>()?;
            connection.execute(c"settle all", &[&array(&keys)?])?;
        }
    }
    connection.run(c"COMMIT")?;
    Ok(claimed.count())
}

/// Several values as one.
fn array(values: &[&str]) -> Result<CString> {
    Ok(CString::new(format!("{{{}}}", values.join(",")))?)
}

pub(super) fn enqueue(url: &str, shape: Shape, enqueue: &Enqueue, committed: &mut dyn FnMut(i64)) -> Result<()> {
    let mut connection = Connection::open(url)?;
    let one = "INSERT INTO payments (number, amount_cents, next_attempt_time) VALUES ($1, $2, clock_timestamp())";
    let many = "INSERT INTO payments (number, amount_cents, next_attempt_time) \
                SELECT n, a, clock_timestamp() FROM unnest($1::bigint[], $2::bigint[]) AS new (n, a)";
    for (name, insert) in [(c"one", one), (c"many", many)] {
        if shape == Shape::Listen {
            let announced = format!("WITH new AS ({insert} RETURNING 1) SELECT pg_notify('payments', '') FROM new");
            connection.prepare(name, &announced)?;
        } else {
            connection.prepare(name, insert)?;
        }
    }
    let numbers: Vec<i64> = (enqueue.first..enqueue.first + enqueue.count).collect();
    for batch in numbers.chunks(enqueue.batch) {
        enqueue.pause();
        let texts: Vec<String> = batch.iter().map(i64::to_string).collect();
        let amounts: Vec<String> = batch.iter().map(|number| (1 + number % 1000).to_string()).collect();
        let (name, first, second): (&CStr, _, _) = if let ([number], [amount]) = (&*texts, &*amounts) {
            (c"one", CString::new(number.as_str())?, CString::new(amount.as_str())?)
        } else {
            let as_texts = |values: &[String]| array(&values.iter().map(String::as_str).collect::<Vec<_>>());
            (c"many", as_texts(&texts)?, as_texts(&amounts)?)
        };
        connection.execute(name, &[&first, &second])?;
        batch.iter().for_each(|&number| committed(number));
    }
    Ok(())
}
