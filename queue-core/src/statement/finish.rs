//! Settles a message together with the statements before and after it, so that the end of a message is one round trip: by
//! prepared statements that a text runs, which can contain other statements too, or by one prepared statement that is a
//! block. MariaDB has such blocks. The beginning of the transaction that applies a lease's answer is such a text too.

use std::any::Any;

use diesel::backend::Backend;
use diesel::query_builder::{QueryBuilder, QueryFragment};
use diesel::result::QueryResult;

use super::change::{Change, hangs_on_content};
use super::condition::{push_fence, push_is_due_at};
use super::key_text::has_literals;
use super::queue::ErasedQueue;
use super::settle::Settle;
use super::writer::{Writer, statement};
use crate::backend::{Dialect, QueueBackend, QueueConnection, Sql, Statement, Unfinished, execute};
use crate::entity::{Key, KeyedRow, QueueSql};
use crate::row::{Fence, OnFinish, Options, RowKey, integer_text, time_literal};

/// The server's message if a [`finish_block`] finds not exactly one row in the fence's state.
const FINISHED_NOT_ONE: &str = "queueable: the row is not as it was claimed";

/// The text in the error of a settlement that has not changed exactly one row.
const PASSED_NOT_ONE: &str = "queueable: not one row was changed";

/// The update that settles a success, of a row under a lease if it is `leased`. `$1` is the key, `$2` the new status and `$3`
/// the new number of tries, `$4` and `$5` the status and the tries as claimed. `$6` is when the row was due, or under a
/// lease when the attempt began. It returns the rows that it has changed.
pub fn finish<DB: QueueBackend>(queue: &'static QueueSql<DB>, leased: bool) -> impl Statement<DB> {
    statement(queue, leased, |leased, sql| {
        sql.push("UPDATE {table} SET {status} = $2, {next_attempt_time} = NULL, {try_count} = $3")?;
        push_end(sql)?;
        sql.push("{key} = $1 AND {.status} = $4 AND {.try_count} = $5 AND ")?;
        if *leased {
            sql.push("{.last_attempt_time} = ")?;
        } else {
            push_is_due_at(sql)?;
        }
        sql.push("$6 RETURNING 1")
    })
}

/// Locks a row that is under a lease, and waits for another session that holds its lock. `$1` is the key, `$2` and `$3`
/// the status and the tries as claimed, `$4` when the attempt began. It returns one row for each that it has locked.
pub fn lock_leased<DB: QueueBackend>(queue: &'static QueueSql<DB>) -> impl Statement<DB> {
    statement(queue, (), |(), sql| {
        sql.push("SELECT 1 FROM {table} WHERE {key} = $1 AND {.status} = $2 AND {.try_count} = $3")?;
        sql.push(" AND {.last_attempt_time} = $4{row_lock}")
    })
}

/// `RELEASE`, the update of [`finish`], `COMMIT`. It ends at the first statement that fails: then nothing is committed, and
/// the transaction is still open. The fence must have no lease, and must contain when the row was due. `tries`: the new
/// number of tries. `compares`: it fails if the session's settings are not what they were.
pub fn finish_block<DB: QueueBackend>(
    row: KeyedRow<DB>,
    fence: Fence,
    tries: i32,
    compares: bool,
) -> impl Statement<DB> {
    statement(row.queue, (row, fence, tries, compares), |(row, fence, tries, compares), sql| {
        sql.push("BEGIN NOT ATOMIC ")?;
        push_settings_check(sql, *compares)?;
        sql.push("RELEASE SAVEPOINT queueable_handler; UPDATE {table} SET {status} = 'SUCCESS'")?;
        sql.push(", {next_attempt_time} = NULL, {try_count} = ")?;
        DB::bind_integer(&mut sql.out, tries)?;
        push_end(sql)?;
        sql.push_is_key("", &row.is_key)?;
        push_fence(sql, fence)?;
        push_unless_one_row(sql, FINISHED_NOT_ONE)?;
        sql.push("COMMIT; END")
    })
}

/// The update of a [`finish_block`] without binds, for a text with several statements, also of a row under a lease. `key` is a
/// number, which every server reads alike.
fn text_of_success<DB: QueueBackend>(
    queue: &'static QueueSql<DB>,
    key: String,
    Fence { status, try_count, .. }: Fence,
    [began, due]: [Option<String>; 2],
    tries: i32,
) -> impl Statement<DB> {
    let claimed = format!(" AND {{.status}} = '{status}' AND {{.try_count}} = {try_count}");
    statement(queue, (key, claimed, began, due, tries.to_string()), |(key, claimed, began, due, tries), sql| {
        sql.push("UPDATE {table} SET {status} = 'SUCCESS', {next_attempt_time} = NULL, {try_count} = ")?;
        sql.out.push_sql(tries);
        push_end(sql)?;
        sql.push("{key} = ")?;
        sql.out.push_sql(key);
        sql.push_with(claimed, &[])?;
        if let Some(began) = began {
            sql.push(" AND {.last_attempt_time} = ")?;
            sql.out.push_sql(began);
        }
        if let Some(due) = due {
            sql.push(" AND ")?;
            push_is_due_at(sql)?;
            sql.out.push_sql(due);
        }
        Ok(())
    })
}

/// The step from one message of a group to the next: it releases the sentinel, settles, and sets the sentinel anew. `compares`: as
/// for a [`finish_block`].
pub fn pass_on<DB: QueueBackend>(settle: Settle<'_, DB>, compares: bool) -> impl Statement<DB> {
    statement(settle.queue, (settle, compares), |(settle, compares), sql| {
        sql.push("BEGIN NOT ATOMIC ")?;
        push_settings_check(sql, *compares)?;
        sql.push("RELEASE SAVEPOINT queueable_handler; ")?;
        settle.walk_ast(sql.out.reborrow())?;
        push_unless_one_row(sql, PASSED_NOT_ONE)?;
        sql.push("SAVEPOINT queueable_handler; END")
    })
}

/// Writes `, last_attempt_time = .., occasion = occasion + 1, last_attempt_error_message = NULL WHERE `. The occasion, if
/// the entity counts them, ends with the success.
fn push_end<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>) -> QueryResult<()> {
    sql.push(", {last_attempt_time} = {now}, ")?;
    if let Some(occasion) = sql.queue.options.occasion {
        sql.push_with("{} = {} + 1, ", &[occasion])?;
    }
    sql.push("{last_attempt_error_message} = NULL WHERE ")
}

/// Writes the statement that ends a block before it has done anything, if the session's settings have changed.
fn push_settings_check<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, compares: bool) -> QueryResult<()> {
    let Some((settings, says)) = DB::OTHER_SETTINGS.filter(|_| compares) else { return Ok(()) };
    sql.within(("IF NOT (", " <=> @queueable_settings) "), |sql| sql.push(settings))?;
    push_error(sql, says)
}

/// Writes the statement that ends a block after an update that has not changed exactly one row.
fn push_unless_one_row<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, says: &'static str) -> QueryResult<()> {
    sql.push("; IF ROW_COUNT() <> 1 ")?;
    push_error(sql, says)
}

fn push_error<DB: QueueBackend>(sql: &mut Writer<'_, '_, DB>, says: &'static str) -> QueryResult<()> {
    sql.within(("THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '", "'; END IF; "), |sql| sql.push(says))
}

/// Tells whether a text that contains other statements too can settle a success of this entity.
pub(crate) fn ends_at_once<K: Any, C: QueueConnection>(options: &Options) -> bool {
    C::Backend::FINISHES_AT_ONCE && options.ends_plainly() && (C::Backend::FINISHES_IN_A_BLOCK || has_literals::<K>())
}

/// Returns the text of a statement without binds.
pub(crate) fn text_of<C: QueueConnection>(statement: &dyn Statement<C::Backend>) -> QueryResult<String> {
    let mut builder = <C::Backend as Backend>::QueryBuilder::default();
    Sql::new(statement).to_sql(&mut builder, &C::Backend::default())?;
    Ok(builder.finish())
}

impl<K: Key, C: QueueConnection> ErasedQueue<K, C> {
    /// Releases the sentinel of a message, settles its row and sets the sentinel of the next message, if one statement can do
    /// that. `None`: it cannot, and nothing is done.
    pub fn pass_on(
        &self,
        connection: &mut C,
        key: &RowKey<K>,
        fence: Fence,
        change: &Change,
        compares: bool,
    ) -> Option<Result<(), Unfinished>> {
        let is_one_update = change.on_finish(self.sql.options) == OnFinish::Keep && !hangs_on_content(change, fence);
        if !is_one_update || !C::has_compounds(None) {
            return None;
        }
        match execute(connection, &pass_on(Settle::new(self.row(key), fence, change), compares)) {
            // The server did not understand the text, so it did nothing of it.
            Err(error) if !C::has_compounds(Some(&error)) => None,
            passed => Some(passed.map(drop).map_err(|error| C::unfinished(error, PASSED_NOT_ONE))),
        }
    }

    /// Returns the statement that settles a success, as a text without binds, for a server that could have blocks and has none.
    /// `None`: its end needs more, or its key is no number.
    pub fn text_of_success(&self, key: &RowKey<K>, fence: Fence, tries: i32) -> Option<String> {
        let is_one = C::Backend::FINISHES_IN_A_BLOCK && !C::has_compounds(None) && self.sql.options.ends_plainly();
        let times = [fence.began, fence.due];
        let literals = times.map(|time| time.and_then(|time| time_literal(time, "")));
        // Each time has a literal, and there is one.
        let are_all = times.iter().zip(&literals).all(|(time, literal)| time.is_some() == literal.is_some());
        let key = integer_text(key.value()).filter(|_| is_one && are_all && times != [None; 2])?;
        text_of::<C>(&text_of_success(self.sql, key, fence, literals, tries)).ok()
    }

    /// Releases the handler's savepoint, settles a success and commits, in one statement. `compares`: as for a [`finish_block`].
    pub fn finish_in_a_block(
        &self,
        connection: &mut C,
        key: &RowKey<K>,
        fence: Fence,
        tries: i32,
        compares: bool,
    ) -> Result<(), Unfinished> {
        let execute = self.finish_block[usize::from(compares)];
        let finished = execute(connection, &finish_block(self.row(key), fence, tries, compares));
        finished.map(drop).map_err(|error| C::unfinished(error, FINISHED_NOT_ONE))
    }
}
