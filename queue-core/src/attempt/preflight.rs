//! The checks of an entity's live table before its poller starts.

use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{ErrorClass, LockSql, QueueConnection, RoundTrips, TableName, Target, check_rights};
use crate::entity::Key;
use crate::error::Finding;
use crate::row::{Stages, queue_name};
use crate::statement::ErasedQueue;

/// PostgreSQL's message about a statement that took longer than it may.
const TOO_SLOW: &str = "canceling statement due to statement timeout";

/// Compares the live table with what a queue needs, and checks the account's rights.
pub(crate) fn check_table<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
) -> QueryResult<Vec<Finding>> {
    check_target(connection, &queue.target()?)
}

/// The same for a table that is known by its description.
fn check_target<C: QueueConnection>(connection: &mut C, target: &Target) -> QueryResult<Vec<Finding>> {
    let findings = connection.check(target)?;
    if findings.is_empty() {
        return Ok(check_rights(connection, target)?.into_iter().map(|right| right.finding).collect());
    }
    // MySQL hides tables that the account may not use, so an archive that seems to be missing may well exist.
    let rights = check_rights(connection, target).unwrap_or_default();
    let denied: Vec<_> = rights.into_iter().filter(|right| right.is_denied).map(|right| right.finding).collect();
    Ok(if denied.is_empty() { findings } else { denied })
}

/// Compares the live table with the needs of a queue whose claim passes over rows that others hold.
pub(crate) fn check_claim<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
) -> QueryResult<Vec<Finding>> {
    let mut findings = check_table(queue, connection)?;
    let finding = |problem, mend: &str| Finding { entity: queue.sql.entity.to_owned(), problem, mend: mend.to_owned() };
    if !C::Backend::ONE_WRITER && !connection.skips_locked_rows()? {
        findings.push(finding(
            "the server has no SKIP LOCKED, without which a worker waits for every other".to_owned(),
            "upgrade it to MariaDB 10.6 or MySQL 8.0.1, or work the queue in lease mode",
        ));
    }
    if !findings.is_empty() {
        return Ok(findings);
    }
    // The claim itself, outside a transaction: it shows whether the entity's own columns exist, and whether the account
    // may lock rows.
    match queue.try_claim(connection) {
        Err(error) if C::classify(&error) == ErrorClass::Other => {
            let problem = format!("its rows cannot be claimed: {error}");
            let is_too_slow =
                matches!(&error, DieselError::DatabaseError(_, information) if information.message() == TOO_SLOW);
            let mend = match is_too_slow {
                true => {
                    "end the sessions that hold old snapshots (`backend_xmin` in pg_stat_activity), and VACUUM the table"
                }
                false => {
                    "make the struct and its `table!` say what the table has, or migrate the table; a claim reads no other table, \
                     except in a subselect"
                }
            };
            findings.push(finding(problem, mend));
        }
        tried => tried?,
    }
    findings.extend(check_stages(queue, connection)?);
    Ok(findings)
}

/// The same for a queue in lease mode. Its claim needs no lock that passes over rows.
pub(crate) fn check_leased<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    can_lock: bool,
) -> QueryResult<Vec<Finding>> {
    if can_lock {
        return check_claim(queue, connection);
    }
    let mut findings = check_table(queue, connection)?;
    if findings.is_empty() {
        findings.extend(check_stages(queue, connection)?);
    }
    Ok(findings)
}

/// Finds the rows that are pending in a stage that the entity does not know: no worker would ever claim them.
pub(crate) fn check_stages<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
) -> QueryResult<Vec<Finding>> {
    let Some(stages) = queue.sql.options.stages else { return Ok(Vec::new()) };
    Ok(unknown_stages(queue.sql.entity, queue.unknown_stages(connection)?, &queue.target()?.table, stages))
}

fn unknown_stages(entity: &str, unknown: Vec<String>, table: &TableName, stages: Stages) -> Vec<Finding> {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let column = table.quoted(stages.column);
    let findings = unknown.into_iter().map(|stage| Finding {
        entity: entity.to_owned(),
        problem: format!(
            "rows are pending in the stage `{stage}`, which is none of its stages {}: they would never be worked",
            stages.names.join(", "),
        ),
        mend: format!(
            "UPDATE {table} SET {column} = {} WHERE {column} = {}",
            quoted(stages.names.first().copied().unwrap_or_default()),
            quoted(&stage),
        ),
    });
    findings.collect()
}

/// Returns the beginning of an idempotency key, before the primary key: the table and the queue's status column.
pub(crate) fn key_prefix<K: Key, C: QueueConnection>(queue: &ErasedQueue<K, C>) -> QueryResult<String> {
    let table = queue.target()?.table;
    Ok(queue_name(table.schema.as_deref(), &table.name, queue.sql.names.status))
}

/// Returns the channel on which the database announces a queue's rows that become due, if it does.
pub(crate) fn channel<K: Key, C: QueueConnection>(queue: &ErasedQueue<K, C>) -> QueryResult<Option<String>> {
    let is_told = queue.sql.options.notifies && C::Backend::NOTIFIES;
    is_told.then(|| Ok(queue.target()?.channel())).transpose()
}
