//! Writes the results of rows: `UPDATE .. WHERE key AND status AND try_count`. In the transaction that settles them, rows
//! whose work has ended stay, are removed, or move to an archive.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::change::{Change, Next, hangs_on_content};
use super::condition::{Condition, push_fence, push_same_content};
use super::operation::{change_all, copy_rows, remove_all};
use super::queue::ErasedQueue;
use super::writer::{Writer, padded};
use crate::backend::{ErrorClass, QueueBackend, QueueConnection, Statement, TableName, execute};
use crate::entity::{IsKey, Key, KeyedRow, QueueSql};
use crate::error::refused;
use crate::log::redacted;
use crate::row::{ErrorText, Fence, OnFinish, Options, RowKey, Status, failure_text};

/// Changes or removes rows, fenced.
pub struct Settle<'a, DB: QueueBackend> {
    pub(crate) queue: &'static QueueSql<DB>,
    rows: Vec<(IsKey<DB>, Fence)>,
    change: Option<&'a Change>,
    /// The condition on the due time, if there is one.
    time: &'static str,
}

impl<'a, DB: QueueBackend> Settle<'a, DB> {
    /// Changes the row with this key if it is still in the fence's state.
    pub fn new(row: KeyedRow<DB>, fence: Fence, change: &'a Change) -> Self {
        Settle { change: Some(change), ..Settle::remove(row, fence) }
    }

    /// Changes those of the rows that are still in their fence's state. There must be at least one.
    pub fn many(queue: &'static QueueSql<DB>, rows: &[(IsKey<DB>, Fence)], change: &'a Change) -> Self {
        Settle { queue, rows: padded(rows.to_vec()), change: Some(change), time: "" }
    }

    /// Removes the row with this key if it is still in the fence's state, with the content that it had at the claim.
    pub fn remove(row: KeyedRow<DB>, fence: Fence) -> Self {
        Settle { queue: row.queue, rows: vec![(row.is_key, fence)], change: None, time: "" }
    }

    /// Settles one row only if it is due, as it was when it was claimed.
    pub fn if_due(self, if_due: bool) -> Self {
        let time = if if_due { " AND {.next_attempt_time} <= {statement_time}" } else { "" };
        Settle { time, ..self }
    }

    /// Settles rows under leases only as long as these have not ended.
    pub fn if_leased(self) -> Self {
        Settle { time: " AND {.next_attempt_time} > {statement_time}", ..self }
    }
}

impl<DB: QueueBackend> Statement<DB> for Settle<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut sql = Writer::new(self.queue, out);
        match self.change {
            Some(change) => {
                sql.push("UPDATE {table}")?;
                change.push_set(&mut sql)?;
            }
            None => sql.push("DELETE FROM {table}")?,
        }
        sql.keep_if_few(self.rows.len());
        let (before, after) = match (self.rows.len(), self.time) {
            (1, _) => (" WHERE ", ""),
            (_, "") => (" WHERE (", ")"),
            _ => (" WHERE ((", "))"),
        };
        sql.push(before)?;
        sql.each(&self.rows, ") OR (", |sql, (is_key, fence)| {
            sql.push_is_key("", is_key)?;
            push_fence(sql, fence)?;
            let of_content = self.change.is_none_or(|change| change.of_content);
            if of_content { push_same_content(sql, fence) } else { Ok(()) }
        })?;
        sql.push(after)?;
        sql.push(self.time)
    }
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Changes the row if it is still as it was claimed, and returns the number of rows changed. If the change is
    /// [`of_content`](Change::of_content) and the content has changed, the row is made due instead. A row whose work
    /// has ended leaves the table if the entity or the change says so, here and in the other methods that settle rows.
    pub fn settle(&self, connection: &mut C, key: &RowKey<K>, fence: Fence, change: &Change) -> QueryResult<usize> {
        let is_of_one_text = self.sql.options.ends_plainly() && self.sql.options.occasion.is_none();
        if is_of_one_text && key.stored().is_none() && is_plain_success(change, fence) {
            return (self.settle_success)(connection, &Settle::new(self.row(key), fence, change));
        }
        settle(connection, self.sql, &[(self.row(key).is_key, fence)], change, false)
    }

    /// Changes those of the rows that are still as they were claimed, and returns the number of rows changed.
    pub fn settle_many(&self, connection: &mut C, rows: &[(&RowKey<K>, Fence)], change: &Change) -> QueryResult<usize> {
        let rows: Vec<_> = rows.iter().map(|(key, fence)| (self.row(key).is_key, *fence)).collect();
        settle(connection, self.sql, &rows, change, false)
    }

    /// Changes those of the rows that are still as they were claimed, under leases that have not ended, and returns the number of
    /// rows changed. The change is of their due time alone.
    pub fn extend_leased(
        &self,
        connection: &mut C,
        rows: &[(&RowKey<K>, Fence)],
        change: &Change,
    ) -> QueryResult<usize> {
        let rows: Vec<_> = rows.iter().map(|(key, fence)| (self.row(key).is_key, *fence)).collect();
        match &*rows {
            [] => Ok(0),
            rows => execute(connection, &Settle::many(self.sql, rows, change).if_leased()),
        }
    }

    /// Settles one row in another transaction than the claim's. The row is no longer locked, so it must still be due:
    /// another worker or an operator may have run or stopped it meanwhile and left its status and tries as they were.
    pub fn settle_anew(
        &self,
        connection: &mut C,
        key: &RowKey<K>,
        fence: Fence,
        change: &Change,
    ) -> QueryResult<usize> {
        settle(connection, self.sql, &[(self.row(key).is_key, fence)], change, true)
    }
}

/// Tells whether a change is the most frequent one, which differs from one row to the next in its values alone.
fn is_plain_success(change: &Change, fence: Fence) -> bool {
    let is_plain = matches!(
        change,
        Change {
            status: Some(Status::Success),
            next: Some(Next::Never),
            unless_stopped: false,
            try_count: Some(_),
            another_try: false,
            attempted: true,
            began: None,
            error: ErrorText::Clear,
            begin: None,
            removes: false,
            ..
        }
    );
    is_plain && matches!(fence, Fence { began: None, due: Some(_), change_count: None, .. })
}

/// How many bytes of the reason why a row could not be moved are written on it.
pub(crate) const REASON_BYTES: usize = 500;

impl Change {
    /// Returns what happens to a row with this change.
    pub(crate) fn on_finish(&self, options: &Options) -> OnFinish {
        if self.stays {
            return OnFinish::Keep;
        }
        match (self.status, self.next) {
            _ if self.removes => OnFinish::Delete,
            (Some(Status::Success), Some(Next::Never)) => options.of_attempts().on_success,
            (Some(Status::Failed), Some(Next::Never)) => options.of_attempts().on_failure,
            _ => OnFinish::Keep,
        }
    }

    /// Returns the state of a settled row, by which a later check recognizes it; `None` if the row is gone.
    pub(crate) fn reached(&self, before: Fence, options: &Options) -> Option<Fence> {
        (self.on_finish(options) == OnFinish::Keep)
            .then(|| Fence::new(self.status.unwrap_or(before.status), self.try_count.unwrap_or(before.try_count)))
    }
}

/// Changes rows that are still as they were claimed, and moves or removes them if their work has ended.
fn settle<C: QueueConnection>(
    connection: &mut C,
    queue: &'static QueueSql<C::Backend>,
    rows: &[(IsKey<C::Backend>, Fence)],
    change: &Change,
    if_due: bool,
) -> QueryResult<usize> {
    if let (true, [(is_key, fence)]) = (change.removes, rows) {
        return remove(connection, &queue.row(is_key), *fence);
    }
    let on_finish = change.on_finish(queue.options);
    if on_finish == OnFinish::Keep {
        return write(connection, queue, rows, change, if_due);
    }
    if let (OnFinish::Delete, Some(Status::Success), [(is_key, fence)]) = (on_finish, change.status, rows) {
        return execute(connection, &Settle::remove(queue.row(is_key), *fence).if_due(if_due));
    }
    let written = write(connection, queue, rows, change, if_due)?;
    if written == 0 || written != rows.len() {
        return Ok(written);
    }
    let keys: Vec<_> = rows.iter().map(|(is_key, _)| is_key.clone()).collect();
    if change.status == Some(Status::Success) {
        return let_go(connection, queue, &keys, on_finish).map(|()| written);
    }
    // A failure must be recorded whatever happens to its archive: the row stays, and its text says why.
    connection.batch_execute("SAVEPOINT queueable_fate")?;
    match let_go(connection, queue, &keys, on_finish) {
        Ok(()) => connection.batch_execute("RELEASE SAVEPOINT queueable_fate")?,
        Err(error) if C::classify(&error) == ErrorClass::Other => {
            connection.batch_execute("ROLLBACK TO SAVEPOINT queueable_fate; RELEASE SAVEPOINT queueable_fate")?;
            let reason = redacted(&failure_text(&error, REASON_BYTES), change.redact.as_ref());
            tracing::error!(entity = queue.entity, reason, "a row that has failed cannot leave the table");
            let note = Change { error: that_it_stays(&change.error, &reason), ..Change::default() };
            let condition = Condition::of_keys(queue, &keys);
            execute(connection, &change_all(condition, &note, false))?;
        }
        Err(error) => return Err(error),
    }
    Ok(written)
}

/// Adds to a failure's text why the row stays in its table.
pub(crate) fn that_it_stays(text: &ErrorText, reason: &str) -> ErrorText {
    let text = if let ErrorText::Set(text) = text { text.as_str() } else { "" };
    let text = format!("{text}\n(the row stays here, because it cannot leave the table: {reason})");
    ErrorText::Set(text.trim_start().to_owned())
}

/// Changes rows that are still as they were claimed.
fn write<C: QueueConnection>(
    connection: &mut C,
    queue: &'static QueueSql<C::Backend>,
    rows: &[(IsKey<C::Backend>, Fence)],
    change: &Change,
    if_due: bool,
) -> QueryResult<usize> {
    let mut write_as = |change: &Change| match rows {
        [] => Ok(0),
        rows => execute(connection, &Settle::many(queue, rows, change).if_due(if_due)),
    };
    let written = write_as(change)?;
    if written >= rows.len() || !rows.iter().all(|(_, fence)| hangs_on_content(change, *fence)) {
        return Ok(written);
    }
    // Two statements, and not one with a CASE in every column: the row is locked, or the second statement is right in
    // any case. Rows that the first has settled are in another state now.
    Ok(written + write_as(&change.after_new_content())?)
}

/// Removes a row that is still as it was claimed. If its content has changed, the row is made due instead.
fn remove<C: QueueConnection>(connection: &mut C, row: &KeyedRow<C::Backend>, fence: Fence) -> QueryResult<usize> {
    let removed = execute(connection, &Settle::remove(row.clone(), fence))?;
    if removed > 0 || fence.change_count.is_none() {
        return Ok(removed);
    }
    let attempted = Change {
        next_occasion: true,
        attempted: true,
        error: ErrorText::Clear,
        unless_stopped: fence.began.is_some(),
        ..Change::default()
    };
    execute(connection, &Settle::new(row.clone(), fence, &attempted.after_new_content()))
}

/// Removes finished rows from the table, after it has copied each to its archive.
pub(super) fn let_go<C: QueueConnection>(
    connection: &mut C,
    queue: &'static QueueSql<C::Backend>,
    keys: &[IsKey<C::Backend>],
    on_finish: OnFinish,
) -> QueryResult<()> {
    let condition = Condition::of_keys(queue, keys);
    if let OnFinish::Archive(name) = on_finish {
        let live = TableName::of(queue.table, &C::Backend::default())?;
        // Read each time, because the application may add a column while its pollers run. It cannot do so while this
        // transaction holds a row of the table.
        let columns = connection.copied_columns(&live)?;
        let archive = live.beside(name);
        let copied = execute(connection, &copy_rows(condition, Some(&archive), &columns))?;
        if copied != keys.len() {
            return Err(refused(format!("{copied} of {} rows were copied to {archive}", keys.len())));
        }
    }
    let removed = execute(connection, &remove_all(condition))?;
    match removed == keys.len() {
        true => Ok(()),
        false => Err(refused(format!("{removed} of {} finished rows could be removed from their table", keys.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_gone_that_has_ended_and_leaves_and_no_other() {
        let options =
            Options { on_success: OnFinish::Delete, on_failure: OnFinish::Archive("failed"), ..Options::NONE };
        let change = |status, next| Change { status: Some(status), next: Some(next), ..Change::default() };
        let never = |status| change(status, Next::Never);
        assert_eq!(never(Status::Success).on_finish(&options), OnFinish::Delete);
        assert_eq!(never(Status::Failed).on_finish(&options), OnFinish::Archive("failed"));
        assert_eq!(never(Status::Skipped).on_finish(&options), OnFinish::Keep);
        assert_eq!(never(Status::Success).on_finish(&Options::NONE), OnFinish::Keep);
        let again = change(Status::Success, Next::In(std::time::Duration::ZERO));
        assert_eq!(again.on_finish(&options), OnFinish::Keep, "a schedule goes on");
        assert_eq!(Change { next: Some(Next::Never), ..Change::default() }.on_finish(&options), OnFinish::Keep);

        let before = Fence::new(Status::Error, 2);
        assert_eq!(never(Status::Success).reached(before, &options), None);
        assert_eq!(never(Status::Success).reached(before, &Options::NONE), Some(Fence::new(Status::Success, 2)));
        let retried = Change { try_count: Some(3), ..change(Status::Error, Next::Never) };
        assert_eq!(retried.reached(before, &options), Some(Fence::new(Status::Error, 3)));
    }
}
