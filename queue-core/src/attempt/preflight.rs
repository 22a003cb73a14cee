//! The checks of an entity's live table: before its poller starts, and in the user's CI.

use diesel::connection::TransactionManager;
use diesel::query_builder::QueryFragment;
use diesel::query_source::Table;
use diesel::result::{Error as DieselError, QueryResult};
use diesel::{Connection, Expression};

use super::served_queue::ServedQueue;
use crate::backend::{
    DeclaredColumn, DeclaredTypes, Dialect, ErrorClass, Holds, QueueBackend, QueueConnection, Target, TriggerMigration,
    check_rights, column_names,
};
use crate::entity::{Entity, Key, QueueTable};
use crate::error::Finding;
use crate::statement::{ErasedQueue, QueueOn};

/// PostgreSQL's message about a statement that took longer than it may.
const TOO_SLOW: &str = "canceling statement due to statement timeout";

/// Compares the live table with what a queue needs, and checks the account's rights.
fn check_table<C: QueueConnection>(connection: &mut C, target: &Target) -> QueryResult<Vec<Finding>> {
    let findings = connection.check(target)?;
    if findings.is_empty() {
        return Ok(check_rights(connection, target)?.into_iter().map(|right| right.finding).collect());
    }
    // MySQL hides tables that the account may not use, so an archive that seems to be missing may well exist.
    let rights = check_rights(connection, target).unwrap_or_default();
    let denied: Vec<_> = rights.into_iter().filter(|right| right.is_denied).map(|right| right.finding).collect();
    Ok(if denied.is_empty() { findings } else { denied })
}

/// Compares the live table with what a queue needs, and makes its claim, which passes over rows that others hold. In lease
/// mode it needs no such lock.
fn check_queue<K: Key, C: QueueConnection>(queue: &ErasedQueue<K, C>, connection: &mut C) -> QueryResult<Vec<Finding>> {
    let target = queue.target()?;
    let mut findings = check_table(connection, &target)?;
    let can_lock = C::Backend::ONE_WRITER || connection.skips_locked_rows()?;
    let finding = |problem, mend: &str| Finding { entity: queue.sql.entity.to_owned(), problem, mend: mend.to_owned() };
    if !can_lock && !queue.is_leased() {
        findings.push(finding(
            "the server has no SKIP LOCKED, without which a worker waits for every other".to_owned(),
            "upgrade it to MariaDB 10.6 or MySQL 8.0.1, or work the queue in lease mode",
        ));
    }
    if !findings.is_empty() {
        return Ok(findings);
    }
    if can_lock {
        // The claim itself, outside a transaction: it shows whether the entity's own columns exist, and whether the account
        // may lock rows.
        match queue.try_claim(connection) {
            Err(error) if C::classify(&error) == ErrorClass::Other => {
                findings.push(finding(format!("its rows cannot be claimed: {error}"), mend_of_claim(&error)));
            }
            tried => tried?,
        }
    }
    let options = queue.sql.options;
    let is_limited = options.at_most.is_some() || options.lanes.is_some_and(|lanes| lanes.at_most.is_some());
    if (options.exclusive || is_limited)
        && let Err(error) = try_place(connection, &target)
    {
        if C::classify(&error) != ErrorClass::Other {
            return Err(error);
        }
        findings.push(finding(
            format!("the server refuses the lock with which its rows take turns: {error}"),
            "let the account run the functions of that lock, or leave `exclusive`, `serial_by` and `at_most` out",
        ));
    }
    findings.extend(check_stages(queue, connection, &target)?);
    Ok(findings)
}

impl<K: Key, C: QueueConnection> ServedQueue<K, C> {
    /// Does the same for a poller that starts, which is written for the table as it is now.
    pub(crate) fn check(&self, connection: &mut C) -> QueryResult<Vec<Finding>> {
        let findings = check_queue(self.queue, connection)?;
        self.note_types(connection)?;
        Ok(findings)
    }
}

/// Takes a place of a lane that no row has, and leaves it.
fn try_place<C: QueueConnection>(connection: &mut C, target: &Target) -> QueryResult<()> {
    let lane = "the lane of no row";
    match connection.take_place(target, lane, 1)? {
        Some(place) => connection.leave_place(target, lane, place),
        None => Ok(()),
    }
}

fn mend_of_claim(error: &DieselError) -> &'static str {
    match error {
        DieselError::DatabaseError(_, information) if information.message() == TOO_SLOW => {
            "end the sessions that hold old snapshots (`backend_xmin` in pg_stat_activity), and VACUUM the table"
        }
        _ => {
            "make the struct and its `table!` say what the table has, or migrate the table; a claim reads no other table, except \
             in a subselect"
        }
    }
}

/// Finds the rows that are pending in a stage that the entity does not know: no worker would ever claim them.
fn check_stages<K: Key, C: QueueConnection>(
    queue: &ErasedQueue<K, C>,
    connection: &mut C,
    target: &Target,
) -> QueryResult<Vec<Finding>> {
    let Some(stages) = queue.sql.options.stages else { return Ok(Vec::new()) };
    let findings = queue.unknown_stages(connection)?.into_iter().map(|stage| Finding {
        entity: queue.sql.entity.to_owned(),
        problem: format!(
            "rows are pending in the stage `{stage}`, which is none of its stages {}: no worker would process them",
            stages.names.join(", "),
        ),
        mend: target.replacing::<C::Backend>(stages.column, &stage, stages.names.first().copied().unwrap_or_default()),
    });
    Ok(findings.collect())
}

/// A connection on which the `table!` of an entity can be compared with the live table. It is implemented wherever Diesel
/// can run the statements.
///
/// [`Queueable::check_schema`](crate::Queueable::check_schema) asks for it. The connection implements it, and not the
/// entity: at a call, the compiler does not know the connection's type at first. It leaves a bound on the connection alone
/// until it does; a bound on the entity takes it half a second.
#[diagnostic::on_unimplemented(
    message = "the `table!` of `{Q}` cannot be compared with the live table on `{Self}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, and every field can be read \
            from it",
    note = "generic code names this bound: `C: ComparesSchema<Q>`"
)]
pub trait ComparesSchema<Q: Entity>: QueueConnection {
    #[doc(hidden)]
    fn differences_of(&mut self) -> QueryResult<Vec<Finding>>;

    #[doc(hidden)]
    fn trigger_migration_of(&mut self) -> QueryResult<TriggerMigration>;

    /// Returns the entity's queue.
    #[doc(hidden)]
    fn queue_of() -> &'static ErasedQueue<Q::Key, Self>;

    /// Returns the columns that the `table!` declares.
    #[doc(hidden)]
    fn declared() -> QueryResult<Vec<DeclaredColumn>>;
}

/// The columns of an entity's `table!`.
type Columns<Q> = <<<Q as Entity>::Queue as QueueTable>::Table as Table>::AllColumns;

#[diagnostic::do_not_recommend]
impl<Q, C> ComparesSchema<Q> for C
where
    C: QueueConnection,
    Q: QueueOn<C>,
    Columns<Q>: QueryFragment<<C as Connection>::Backend> + Expression<SqlType: DeclaredTypes>,
{
    fn differences_of(&mut self) -> QueryResult<Vec<Finding>> {
        let target = Q::QUEUE.target()?;
        // Rights and the claim are tried in transactions of their own.
        let status = C::TransactionManager::transaction_manager_status_mut(self);
        let is_alone = matches!(status.transaction_depth(), Ok(None));
        let mut findings = match is_alone {
            true => check_table(self, &target)?,
            false => self.check(&target)?,
        };
        for finding in self.differences(&target, &<C as ComparesSchema<Q>>::declared()?)? {
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        if !findings.is_empty() || !is_alone {
            return Ok(findings);
        }
        check_queue(Q::QUEUE, self)
    }

    fn trigger_migration_of(&mut self) -> QueryResult<TriggerMigration> {
        self.trigger_migration(&Q::QUEUE.target()?)
    }

    fn queue_of() -> &'static ErasedQueue<Q::Key, C> {
        Q::QUEUE
    }

    fn declared() -> QueryResult<Vec<DeclaredColumn>> {
        let names = column_names(&<Q::Queue as QueueTable>::Table::all_columns(), &C::Backend::default())?;
        let types = <<Columns<Q> as Expression>::SqlType as DeclaredTypes>::types();
        let declared = names.into_iter().zip(types);
        let holds = |id| Holds::of(id, C::Backend::own_type);
        Ok(declared.map(|(name, (id, nullable))| DeclaredColumn { name, nullable, holds: holds(id) }).collect())
    }
}
