//! What an operator does to payments through the library, and the notes of it that the checker reads.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use diesel::prelude::*;
use queueable::Queueable;

use super::{Conn, application};
use crate::application::Books;
use crate::bank::{COMPANIES, Locked, payments, touched};
use crate::session::Session;

/// How long an operation waits for rows that workers hold.
const WAIT: Duration = Duration::from_secs(1);

const PENDING: &str = "next_attempt_time IS NOT NULL";

/// One operation, chosen at random.
pub(super) fn operate(connection: &mut Conn, random: &mut fastrand::Rng, books: &Books) -> Result<()> {
    let some = random.u32(1..10);
    let (what, payments) = match random.u8(..10) {
        0..2 => ("payments stopped", stop(connection, some)?),
        2..4 => ("payments resumed", resume(connection)?),
        4..6 => ("payments postponed", postpone(connection, some, Duration::from_millis(random.u64(100..2000)))?),
        6..9 => ("payments retried", retry(connection, random.i64(1..=COMPANIES))?),
        _ => ("payments skipped", skip(connection, some.min(3))?),
    };
    books.count(what, payments);
    Ok(())
}

/// Resumes everything that is stopped, so that nothing is left behind.
pub(super) fn resume_all(connection: &mut Conn, books: &Books) -> Result<()> {
    books.count("payments resumed", resume(connection)?);
    Ok(())
}

/// Its notes go first: a transaction on SQLite that begins by reading may not write later.
fn stop(connection: &mut Conn, count: u32) -> Result<usize> {
    let ids = pick(connection, count, PENDING)?;
    connection.transaction(|connection| {
        note(connection, &ids, "stopped")?;
        Ok(Locked::queue().filter(payments::id.eq_any(ids)).wait(WAIT).stop(connection)?)
    })
}

/// Of all that are stopped: only so many are that it takes one statement.
fn resume(connection: &mut Conn) -> Result<usize> {
    let stopped = touched::table.filter(touched::how.eq("stopped"));
    let ids: Vec<i64> = stopped.select(touched::payment_id).load(connection)?;
    if ids.is_empty() {
        return Ok(0);
    }
    connection.transaction(|connection| {
        diesel::delete(touched::table.filter(touched::how.eq("stopped")).filter(touched::payment_id.eq_any(&ids)))
            .execute(connection)?;
        Ok(Locked::queue().filter(payments::id.eq_any(ids)).wait(WAIT).resume(connection)?)
    })
}

fn postpone(connection: &mut Conn, count: u32, by: Duration) -> Result<usize> {
    let ids = pick(connection, count, PENDING)?;
    let time = SystemTime::now() + by;
    Ok(Locked::queue().filter(payments::id.eq_any(ids)).wait(WAIT).postpone_until(connection, time.into())?)
}

/// Has the failed payments of a company run again, with their tries from the start.
fn retry(connection: &mut Conn, company: i64) -> Result<usize> {
    Ok(Locked::queue().filter(payments::company_id.eq(company)).failed().wait(WAIT).retry_now(connection)?)
}

/// Keeps the notes of those only that were not booked before their turn came.
fn skip(connection: &mut Conn, count: u32) -> Result<usize> {
    let ids = pick(connection, count, "status = 'NOT_ATTEMPTED' AND next_attempt_time IS NOT NULL")?;
    connection.transaction(|connection| {
        note(connection, &ids, "skipped")?;
        let skipped = Locked::queue().filter(payments::id.eq_any(&ids)).wait(WAIT).skip(connection)?;
        connection.run(
            "DELETE FROM touched WHERE how = 'skipped'
             AND payment_id NOT IN (SELECT id FROM payments WHERE status = 'SKIPPED')",
        )?;
        Ok(skipped)
    })
}

fn note(connection: &mut Conn, ids: &[i64], how: &str) -> QueryResult<usize> {
    let notes: Vec<_> = ids.iter().map(|id| (touched::payment_id.eq(*id), touched::how.eq(how))).collect();
    diesel::insert_into(touched::table).values(notes).execute(connection)
}

fn pick(connection: &mut Conn, count: u32, condition: &str) -> Result<Vec<i64>> {
    Ok(application::pick(connection, count, condition)?.into_iter().map(|(id, _)| id).collect())
}
