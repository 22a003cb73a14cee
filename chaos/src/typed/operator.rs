//! An operator's actions on payments through the library, and the notes of them that the checker reads.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use diesel::prelude::*;
use queueable::Queueable;

use super::{Conn, pick};
use crate::application::Books;
use crate::bank::{Grouped, Leased, Locked, payments, touched};
use crate::options::Mode;
use crate::session::Session;

/// How long an operation waits for rows that workers hold.
const WAIT: Duration = Duration::from_secs(1);

const PENDING: &str = "next_attempt_time IS NOT NULL";

/// An operator, who uses the entity of the mode, because the entity has the lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operator {
    pub(super) mode: Mode,
}

/// Applies an operation to the rows with these keys, in the queue of the mode's entity.
macro_rules! on_queue {
    ($mode:expr, $ids:expr, |$queue:ident| $operation:expr) => {{
        let chosen = payments::id.eq_any($ids.clone());
        match $mode {
            Mode::Transaction => {
                let $queue = Locked::queue().filter(chosen).wait(WAIT);
                $operation
            }
            Mode::Group => {
                let $queue = Grouped::queue().filter(chosen).wait(WAIT);
                $operation
            }
            Mode::Lease => {
                let $queue = Leased::queue().filter(chosen).wait(WAIT);
                $operation
            }
        }
    }};
}

impl Operator {
    /// One operation, chosen at random.
    pub(super) fn operate(self, connection: &mut Conn, random: &mut fastrand::Rng, books: &Books) -> Result<()> {
        let some = random.u32(1..10);
        let (what, payments) = match random.u8(..10) {
            0..2 => ("payments stopped", self.stop(connection, some)?),
            2..4 => ("payments restarted", self.restart(connection)?),
            4..6 => {
                ("payments postponed", self.postpone(connection, some, Duration::from_millis(random.u64(100..2000)))?)
            }
            6..9 => ("payments retried", self.retry(connection, some)?),
            _ => ("payments skipped", self.skip(connection, some.min(3))?),
        };
        books.count(what, payments);
        Ok(())
    }

    /// Restarts all stopped payments, so that none is left behind.
    pub(super) fn restart_all(self, connection: &mut Conn, books: &Books) -> Result<()> {
        books.count("payments restarted", self.restart(connection)?);
        Ok(())
    }

    /// Writes its notes first: on SQLite a transaction that begins by reading may be unable to write later.
    fn stop(self, connection: &mut Conn, count: u32) -> Result<usize> {
        let ids = pick(connection, count, PENDING)?;
        connection.transaction(|connection| {
            note(connection, &ids, "stopped")?;
            Ok(on_queue!(self.mode, ids, |queue| queue.stop(connection))?)
        })
    }

    /// Restarts all stopped payments. They are few enough for one statement.
    fn restart(self, connection: &mut Conn) -> Result<usize> {
        let stopped = touched::table.filter(touched::how.eq("stopped"));
        let ids: Vec<i64> = stopped.select(touched::payment_id).load(connection)?;
        if ids.is_empty() {
            return Ok(0);
        }
        connection.transaction(|connection| {
            diesel::delete(touched::table.filter(touched::how.eq("stopped")).filter(touched::payment_id.eq_any(&ids)))
                .execute(connection)?;
            Ok(on_queue!(self.mode, ids, |queue| queue.restart(connection))?)
        })
    }

    fn postpone(self, connection: &mut Conn, count: u32, by: Duration) -> Result<usize> {
        let ids = pick(connection, count, PENDING)?;
        let time = SystemTime::now() + by;
        Ok(on_queue!(self.mode, ids, |queue| queue.postpone_until(connection, time.into()))?)
    }

    /// Has failed payments run again, with their tries from the start.
    fn retry(self, connection: &mut Conn, count: u32) -> Result<usize> {
        let ids = pick(connection, count, "status = 'FAILED'")?;
        Ok(on_queue!(self.mode, ids, |queue| queue.failed().retry_now(connection))?)
    }

    /// Keeps only the notes of the payments that were not booked before their turn came.
    fn skip(self, connection: &mut Conn, count: u32) -> Result<usize> {
        let ids = pick(connection, count, "status = 'NOT_ATTEMPTED' AND next_attempt_time IS NOT NULL")?;
        connection.transaction(|connection| {
            note(connection, &ids, "skipped")?;
            let skipped = on_queue!(self.mode, ids, |queue| queue.skip(connection))?;
            connection.run(
                "DELETE FROM touched WHERE how = 'skipped'
             AND payment_id NOT IN (SELECT id FROM payments WHERE status = 'SKIPPED')",
            )?;
            Ok(skipped)
        })
    }
}

fn note(connection: &mut Conn, ids: &[i64], how: &str) -> QueryResult<usize> {
    let notes: Vec<_> = ids.iter().map(|id| (touched::payment_id.eq(*id), touched::how.eq(how))).collect();
    diesel::insert_into(touched::table).values(notes).execute(connection)
}

fn pick(connection: &mut Conn, count: u32, condition: &str) -> Result<Vec<i64>> {
    Ok(pick::pick(connection, count, condition)?.into_iter().map(|(id, _)| id).collect())
}
