//! A row on which the database refuses to write, because of a constraint or a trigger: whether the refusal concerns
//! this row alone, and what can still be noted on it. And a row that has come back as it was when its last attempt began,
//! although its new state was committed: a trigger restores the old values. And a row whose key cannot be used.

use std::time::Duration;

use diesel::result::{Error as DieselError, QueryResult};

use super::ended::{AttemptError, Conclusion, Tally, Turn, UnsettledRow};
use super::served_queue::{ServedQueue, in_transaction, record};
use super::settle_rules::{stored, tries_before};
use super::stall::{TypesChanged, is_of_the_table};
use crate::backend::{ErrorClass, QueueConnection, SessionHolder, is_of_a_pooler};
use crate::claim::Refusal;
use crate::entity::Key;
use crate::error::Error;
use crate::row::{ErrorText, Fence, Instant, RowKey, Status, failure_text};
use crate::statement::{Change, Claimed, Next, Scope, UnusableRow};

/// The cause that is logged for a row that stays as it is although writing on it causes no error.
pub(crate) const KEPT: &str = "a trigger keeps it from changing";

/// How far in the future the row would be due in the trial of a failure.
const FAR: Duration = Duration::from_secs(3600);

/// How many rows are searched at first. If none of them is the row, the next search covers eight times as many.
const FIRST_SEARCHED: u32 = 1_000;

/// How many rows are read to find one that can be decoded.
const SAMPLE: u32 = 16;

/// Tells whether the database has refused a write, and may refuse it for this row alone.
pub(crate) fn is_refusal<C: QueueConnection>(error: &DieselError) -> bool {
    matches!(error, DieselError::DatabaseError(..)) && C::classify(error) == ErrorClass::Other
}

/// Returns a state that no row has.
pub(crate) fn nowhere(fence: Fence) -> Fence {
    Fence { try_count: i32::MIN, ..fence }
}

impl<K: Key, C: QueueConnection> ServedQueue<K, C> {
    /// Notes on the row as much as the database allows: that it waits, and why. In a strict lane it stays due, because with
    /// a later due time it would no longer be the first one. An error means that the database refuses this on any row, so
    /// the refusal does not concern this one alone.
    pub(crate) fn note_refusal(
        &self,
        connection: &mut C,
        row: &UnsettledRow<K>,
        text: &ErrorText,
        pause: Duration,
    ) -> QueryResult<Conclusion> {
        let stays_due = self.queue.sql.options.keeps_order_in(row.details.lane.as_ref());
        let waits = (!stays_due).then(|| Change { next: Some(Next::In(pause)), ..Change::default() });
        let mut changes: Vec<_> = waits.into_iter().collect();
        if *text != ErrorText::Keep {
            changes.insert(0, Change { error: text.clone(), ..changes.first().cloned().unwrap_or_default() });
        }
        for change in changes {
            match self.settle_alone(connection, &row.key, row.fence, &change) {
                Ok(1) => return Ok(Conclusion::Refused { is_noted: true }),
                Ok(_) => return self.kept_or_overtaken(connection, row),
                Err(error) if is_refusal::<C>(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.try_writing(connection, &row.key, row.fence)?;
        Ok(Conclusion::Refused { is_noted: false })
    }

    /// Makes a write that matches no row. An error shows that a right or a column is missing.
    pub(crate) fn try_writing(&self, connection: &mut C, key: &RowKey<K>, fence: Fence) -> QueryResult<()> {
        let change = Change { next: Some(Next::In(Duration::ZERO)), ..Change::default() };
        self.settle_alone(connection, key, nowhere(fence), &change).map(drop)
    }

    /// Writes a row's new state in a transaction of its own.
    pub(super) fn settle_alone(
        &self,
        connection: &mut C,
        key: &RowKey<K>,
        fence: Fence,
        change: &Change,
    ) -> QueryResult<usize> {
        in_transaction(connection, |connection| self.queue.settle_anew(connection, key, fence, change))
    }

    /// Leaves a row alone for a while because the database refuses to write on it, and logs this. `is_noted`: the row shows it
    /// too.
    pub(crate) fn leave_alone(&self, row: &UnsettledRow<K>, cause: &str, is_noted: bool) -> Turn {
        let refusal = self.refuse(row, 0, is_noted);
        if refusal.is_first && !is_noted {
            self.tell_left_alone(row, "the database refuses to write on rows", &format!(": {}", self.redacted(cause)));
        }
        if refusal.is_left_alone { Turn::Refused } else { Turn::Trouble }
    }

    /// Leaves a row alone that came back as it was although its new state was written. It had come back `times` times
    /// before.
    pub(crate) fn leave_kept_alone(&self, row: &UnsettledRow<K>, times: u32) -> Turn {
        let refusal = self.refuse(row, times, false);
        if times == 0 {
            let what = "rows have come back as they were when their attempts began, although the attempts were committed, so their \
                        effects may come twice: a trigger puts the old values back";
            self.tell_left_alone(row, what, "");
        }
        if refusal.is_left_alone { Turn::Refused } else { Turn::Trouble }
    }

    /// Logs why rows are left alone, with the last one and their number: one line a second, however many they are.
    fn tell_left_alone(&self, row: &UnsettledRow<K>, what: &str, cause: &str) {
        let Some(suppressed) = self.log.admits(what) else { return };
        let (entity, rows) = (self.info.entity, self.due_rows.refused());
        let pauses = "each is tried again after pauses of up to an hour";
        tracing::warn!(entity, key = ?row.key, rows, suppressed, "{what}; {pauses}{cause}");
    }

    /// Passes over a row for a while. It had been passed over `times` times before.
    pub(super) fn refuse(&self, row: &UnsettledRow<K>, times: u32, is_noted: bool) -> Refusal {
        self.due_rows.refuse(&row.key, (row.due, row.details.lane.as_ref(), is_noted), times)
    }

    /// Explains why a write has found no row. If the row is still due as it was claimed, a trigger keeps it. If its key does
    /// not find it, it fails. Otherwise another session was faster.
    pub(super) fn kept_or_overtaken(&self, connection: &mut C, row: &UnsettledRow<K>) -> QueryResult<Conclusion> {
        let key = std::slice::from_ref(&row.key);
        let found = in_transaction(connection, |connection| self.queue.claim_keys(connection, key, 1, Scope::ALL))?;
        let is_as_claimed =
            |found: Fence| found.reads_as(row.fence) && (row.fence.due.is_none() || found.due == row.fence.due);
        // A key that the type in Rust has changed may find another row.
        Ok(match found.iter().find(|found| found.key == row.key).map(|found| found.fence) {
            Some(fence) if is_as_claimed(fence) => Conclusion::Kept,
            Some(_) => Conclusion::Overtaken { is_due: true },
            None if self.set_lost_aside(connection, &row.key, None)? => Conclusion::SetAside,
            None => Conclusion::Overtaken { is_due: false },
        })
    }

    /// Tries to settle this locked row, and tells whether a trigger restores its old values. The trial is undone.
    pub(super) fn puts_old_values_back(&self, connection: &mut C, key: &RowKey<K>, fence: Fence) -> QueryResult<bool> {
        let tries = Some(stored(tries_before(fence) + 1));
        let settled =
            Change { try_count: tries, attempted: true, error: ErrorText::Clear, stays: true, ..Change::default() };
        let trials = [
            Change { status: Some(Status::Success), next: Some(Next::Never), ..settled.clone() },
            Change { status: Some(Status::Error), next: Some(Next::In(FAR)), ..settled },
        ];
        for change in trials {
            // If the row's due time cannot be compared, the state that is written must differ in other values.
            let reads_as_before = (change.status, change.try_count) == (Some(fence.status), Some(fence.try_count));
            if reads_as_before && fence.due.is_none() {
                continue;
            }
            connection.batch_execute("SAVEPOINT queueable_trial")?;
            let is_kept = match self.queue.settle(connection, key, fence, &change) {
                Ok(rows) => rows == 1 && self.queue.is_still(connection, key, fence)?,
                Err(error) if C::classify(&error) == ErrorClass::Other => false,
                Err(error) => return Err(error),
            };
            connection.batch_execute("ROLLBACK TO SAVEPOINT queueable_trial")?;
            connection.batch_execute("RELEASE SAVEPOINT queueable_trial")?;
            if is_kept {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl<K: Key, C: QueueConnection> ServedQueue<K, C> {
    /// Ends a turn that claimed nothing because of an error. If a key cannot be used, its row fails.
    ///
    /// Such a key stops the claim that reads it, because the claim can do nothing without the key. The worker finds the row by
    /// the database's text of the key, and only this row fails.
    pub(crate) fn end_unclaimed(&self, holder: &mut SessionHolder<C>, error: &Error) -> Turn {
        holder.close();
        let what = "no message can be claimed";
        let is_of_a_row =
            matches!(error, Error::Database(DieselError::DeserializationError(why)) if !is_of_the_table(&**why));
        match is_of_a_row.then(|| self.set_aside(holder)) {
            Some(Ok(Some(failed))) => return Turn::Group(Tally { failed, ..Tally::default() }),
            Some(Err(error)) => {
                holder.close();
                self.note_trouble(what, &error);
            }
            Some(Ok(None)) | None => self.note_trouble(what, error),
        }
        Turn::Trouble
    }

    /// Fails the rows whose keys cannot be used. `None`: there are none, or nothing can be done about them.
    fn set_aside(&self, holder: &mut SessionHolder<C>) -> Result<Option<u64>, Error> {
        let (session, mut limit) = (holder.session()?, FIRST_SEARCHED);
        in_transaction(&mut **session, |connection| self.expect_types(connection))?;
        loop {
            let (rows, are_all) =
                in_transaction(&mut **session, |connection| self.queue.unusable(connection, None, limit, None))?;
            if are_all || !rows.is_empty() {
                return Ok(self.fail_all(session, rows, false).unwrap_or_else(|error| {
                    self.warn(&format!("cannot set aside a row whose key cannot be used: {error}"));
                    None
                }));
            }
            limit = limit.saturating_mul(8);
        }
    }

    /// Fails the rows that were leased at these times and whose keys cannot be decoded. Returns how many.
    pub(crate) fn set_leased_aside(&self, connection: &mut C, began: &[Instant]) -> QueryResult<u64> {
        let mut set_aside = 0;
        for began in began {
            let (rows, _) = in_transaction(connection, |connection| {
                self.queue.unusable(connection, Some(*began), FIRST_SEARCHED, None)
            })?;
            set_aside += self.fail_all(connection, rows, true)?.unwrap_or(0);
        }
        Ok(set_aside)
    }

    /// Gives back the rows that were leased at these times and whose keys cannot be decoded.
    pub(crate) fn give_leased_back(&self, connection: &mut C, began: &[Instant]) -> QueryResult<()> {
        began.iter().try_for_each(|began| {
            in_transaction(connection, |connection| {
                let (rows, _) = self.queue.unusable(connection, Some(*began), FIRST_SEARCHED, None)?;
                rows.iter().try_for_each(|row| {
                    let tries = tries_before(row.fence).saturating_sub(1);
                    let status = Some(if tries == 0 { Status::NotAttempted } else { Status::Error });
                    let next = Some(Next::In(Duration::ZERO));
                    let change = Change { status, next, try_count: Some(stored(tries)), ..Change::default() };
                    self.queue.set_aside(connection, row, &change).map(drop)
                })
            })
        })
    }

    /// Fails a row of which a write by its key has found nothing, if its key does not find it. `leased`: when its lease
    /// began. `false`: it is no such row.
    pub(crate) fn set_lost_aside(
        &self,
        connection: &mut C,
        key: &RowKey<K>,
        leased: Option<Instant>,
    ) -> QueryResult<bool> {
        if !self.queue.can_lose_keys() {
            return Ok(false);
        }
        let (rows, _) = in_transaction(connection, |connection| {
            self.queue.unusable(connection, leased, FIRST_SEARCHED, Some(key))
        })?;
        Ok(self.fail_all(connection, rows, leased.is_some())?.is_some_and(|failed| failed > 0))
    }

    /// Writes the failures, each in a transaction of its own. `None`: there is nothing to write. An error: nothing could be
    /// written.
    fn fail_all(&self, connection: &mut C, rows: Vec<UnusableRow<K>>, leased: bool) -> QueryResult<Option<u64>> {
        if rows.is_empty() {
            return Ok(None);
        }
        let (rules, mut written, mut refused) = (&self.rules, 0, None);
        for row in rows {
            let key = row.key_text::<C::Backend>();
            // No attempt was made, but the lease has counted one.
            let tries = tries_before(row.fence);
            let error = match (&row.key, &row.lane, self.queue.sql.options.lanes) {
                (Err(why), ..) => AttemptError::UndecodableKey(key.clone(), rules.texts.of(&**why)),
                (_, Some(why), Some(lanes)) => AttemptError::UndecodableLane(lanes.column, rules.texts.of(&**why)),
                _ => AttemptError::LostKey(key.clone()),
            };
            let error = rules.texts.of(&error);
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
                    rules.teller.tell_unusable(&key, &error);
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

impl<K: Key, C: QueueConnection> ServedQueue<K, C> {
    /// Notes the types of the columns for which the entity was written, as far as the start can know.
    pub(super) fn note_types(&self, connection: &mut C) -> QueryResult<()> {
        let types = connection.column_types(&self.info.target)?;
        self.stall.types.get_or_init(|| types);
        Ok(())
    }

    /// Logs that rows cannot be claimed, or that nobody can look for them. If the table is the cause, that is said once.
    pub(crate) fn note_trouble(&self, what: &str, error: &Error) {
        let mut text = format!("{what}: {}", failure_text(error, 500));
        if is_of_a_pooler(&text) {
            text.push_str(
                "; a pooler lends the session to others, or does not reset it (PgBouncer: `server_reset_query`)",
            );
        }
        let is_refused = match error {
            Error::Database(DieselError::DeserializationError(why)) => is_of_the_table(&**why),
            Error::Database(error) => is_refusal::<C>(error),
            _ => false,
        };
        let teller = &self.rules.teller;
        if !is_refused || !self.stall.note_refusal(&self.info, &self.redacted(&text), &teller.events) {
            self.warn(&text);
        }
    }

    /// Notes that a row was claimed, or that none is due.
    pub(crate) fn note_answer(&self) {
        self.stall.note_answer(&self.info, &self.rules.teller.events);
    }

    /// Returns an error if none of the claimed rows can be decoded because the table has changed.
    pub(crate) fn expect_decoded(&self, connection: &mut C, rows: &[Claimed<K>]) -> QueryResult<()> {
        if rows.is_empty() || rows.iter().any(|row| row.message.is_ok()) {
            return Ok(());
        }
        self.expect_types(connection)
    }

    /// After rows could not be decoded: returns an error if a column has another type than at the start, and no due row can be
    /// decoded. Otherwise the fault is in the rows.
    pub(crate) fn expect_types(&self, connection: &mut C) -> QueryResult<()> {
        let Some(before) = self.stall.types.get() else { return Ok(()) };
        let now = connection.column_types(&self.info.target)?;
        // A column that is gone is an error of its own, and the entity does not know a new one.
        let changed = before.iter().find_map(|(name, before)| {
            let (_, now) = now.iter().find(|(other, now)| other == name && now != before)?;
            Some(format!("column `{name}` had the type {before} when the poller started, and has {now} now"))
        });
        match changed {
            Some(changed) if !self.queue.any_decodable(connection, SAMPLE)? => {
                Err(DieselError::DeserializationError(Box::new(TypesChanged(changed))))
            }
            _ => Ok(()),
        }
    }
}
