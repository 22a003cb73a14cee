//! A key that cannot be decoded stops the claim that reads it, because the claim can do nothing without the key. The
//! worker finds the row by the database's text of the key, and only this row fails.

use diesel::result::{Error as DieselError, QueryResult};

use super::attempt_error::AttemptError;
use super::conclude::record;
use super::ended::{Tally, Turn};
use super::in_transaction::in_transaction;
use super::served_queue::ServedQueue;
use super::settle_rules::{stored, tries_before};
use crate::backend::{QueueConnection, SessionHolder};
use crate::entity::Key;
use crate::error::Error;
use crate::row::{ErrorText, Instant, Status, failure_text};
use crate::statement::{Change, Next, UndecodableRow};

/// How many rows are searched at first. If none of them is the row, the next search covers eight times as many.
const FIRST: u32 = 1_000;

impl<K: Key, C: QueueConnection> ServedQueue<K, C> {
    /// Ends a turn that claimed nothing because of an error. If a key cannot be decoded, its row fails.
    pub(crate) fn has_no_claim(&self, holder: &mut SessionHolder<C>, error: &Error) -> Turn {
        holder.close();
        if let Error::Database(DieselError::DeserializationError(_)) = error
            && let Some(failed) = self.set_aside(holder)
        {
            return Turn::Group(Tally { failed, ..Tally::default() });
        }
        self.warn(&format!("no message can be claimed: {}", failure_text(error, 500)));
        Turn::Trouble
    }

    /// Fails the rows whose keys cannot be decoded. `None`: there are none, or nothing can be done about them.
    fn set_aside(&self, holder: &mut SessionHolder<C>) -> Option<u64> {
        let found = holder.session().and_then(|session| {
            let mut limit = FIRST;
            loop {
                let (rows, are_all) =
                    in_transaction(&mut **session, |connection| self.queue.undecodable(connection, None, limit))?;
                if are_all || !rows.is_empty() {
                    return Ok::<_, Error>(self.fail_all(session, rows, false));
                }
                limit = limit.saturating_mul(8);
            }
        });
        match found {
            Ok(Ok(rows)) => rows,
            Ok(Err(error)) => {
                self.warn(&format!("cannot set aside a row whose key cannot be decoded: {error}"));
                None
            }
            Err(error) => {
                self.warn(&failure_text(&error, 500));
                holder.close();
                None
            }
        }
    }

    /// Fails the rows that were leased at these times and whose keys cannot be decoded. Returns how many.
    pub(crate) fn set_leased_aside(&self, connection: &mut C, began: &[Instant]) -> QueryResult<u64> {
        let mut set_aside = 0;
        for began in began {
            let (rows, _) =
                in_transaction(connection, |connection| self.queue.undecodable(connection, Some(*began), FIRST))?;
            set_aside += self.fail_all(connection, rows, true)?.unwrap_or(0);
        }
        Ok(set_aside)
    }

    /// Writes the failures, each in a transaction of its own. `None`: there is nothing to write. An error: nothing could be
    /// written.
    fn fail_all(&self, connection: &mut C, rows: Vec<UndecodableRow>, leased: bool) -> QueryResult<Option<u64>> {
        if rows.is_empty() {
            return Ok(None);
        }
        let (rules, mut written, mut refused) = (&self.rules, 0, None);
        for row in rows {
            let key = row.key::<C::Backend>();
            // No attempt was made, but the lease has counted one.
            let tries = tries_before(row.fence);
            let why = rules.texts.of(&*row.why);
            let error = rules.texts.of(&AttemptError::UndecodableKey(key.clone(), why));
            let change = Change {
                status: Some(Status::Failed),
                next: Some(Next::Never),
                try_count: leased.then(|| stored(tries.saturating_sub(1))),
                attempted: true,
                error: ErrorText::Set(error.clone()),
                ..Change::default()
            };
            match record(connection, &change, &|connection, change| self.queue.set_aside(connection, &row, change)) {
                Ok(0) => {}
                Ok(_) => {
                    rules.teller.failed_undecodable(&key, &error);
                    written += 1;
                }
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if written == 0 => Err(error),
            _ => Ok(Some(written)),
        }
    }
}
