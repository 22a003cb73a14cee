//! The comparison of the derive, the application's `table!` and the live table, for the user's CI.

use diesel::connection::TransactionManager;
use diesel::query_builder::QueryFragment;
use diesel::query_source::Table;
use diesel::result::QueryResult;
use diesel::{Connection, Expression};

use super::preflight::{check_queue, check_table};
use crate::backend::{DeclaredColumn, DeclaredTypes, QueueConnection, TriggerMigration, column_names};
use crate::entity::{Entity, QueueTable};
use crate::error::Finding;
use crate::statement::QueueOn;

/// An entity whose `table!` can be compared with the live table on a connection of type `C`. It is implemented wherever
/// Diesel can run the statements.
pub trait SchemaOn<C>: Entity {
    #[doc(hidden)]
    fn differences(connection: &mut C) -> QueryResult<Vec<Finding>>;

    #[doc(hidden)]
    fn trigger_migration(connection: &mut C) -> QueryResult<TriggerMigration>;
}

/// A connection on which an entity is [`SchemaOn`].
///
/// [`Queueable::check_schema`](crate::Queueable::check_schema) asks for this one. At a call, the compiler does not know
/// the connection's type at first. It leaves a bound on the connection alone until it does; a bound on the entity takes
/// it half a second.
#[diagnostic::on_unimplemented(
    message = "the `table!` of `{Q}` cannot be compared with the live table on `{Self}`",
    note = "a queue works on `PgConnection`, `MysqlConnection` and `SqliteConnection`, alone or from a pool, and every field can be read \
            from it",
    note = "generic code names the bound `Q: SchemaOn<C>`"
)]
pub trait ComparesSchema<Q: Entity> {
    #[doc(hidden)]
    fn differences_of(&mut self) -> QueryResult<Vec<Finding>>;

    #[doc(hidden)]
    fn trigger_migration_of(&mut self) -> QueryResult<TriggerMigration>;
}

#[diagnostic::do_not_recommend]
impl<Q: SchemaOn<C>, C> ComparesSchema<Q> for C {
    fn differences_of(&mut self) -> QueryResult<Vec<Finding>> {
        Q::differences(self)
    }

    fn trigger_migration_of(&mut self) -> QueryResult<TriggerMigration> {
        Q::trigger_migration(self)
    }
}

/// The columns of an entity's `table!`.
type Columns<Q> = <<<Q as Entity>::Queue as QueueTable>::Table as Table>::AllColumns;

impl<Q, C> SchemaOn<C> for Q
where
    C: QueueConnection,
    Q: QueueOn<C>,
    Columns<Q>: QueryFragment<<C as Connection>::Backend> + Expression<SqlType: DeclaredTypes>,
{
    fn differences(connection: &mut C) -> QueryResult<Vec<Finding>> {
        let names = column_names(&<Q::Queue as QueueTable>::Table::all_columns(), &C::Backend::default())?;
        let nullable = <<Columns<Q> as Expression>::SqlType as DeclaredTypes>::nullable();
        let declared = names.into_iter().zip(nullable).map(|(name, nullable)| DeclaredColumn { name, nullable });
        let target = Q::QUEUE.target()?;
        // Rights and the claim are tried in transactions of their own.
        let status = C::TransactionManager::transaction_manager_status_mut(connection);
        let is_alone = matches!(status.transaction_depth(), Ok(None));
        let mut findings = match is_alone {
            true => check_table(connection, &target)?,
            false => connection.check(&target)?,
        };
        for finding in connection.differences(&target, &declared.collect::<Vec<_>>())? {
            if !findings.contains(&finding) {
                findings.push(finding);
            }
        }
        if !findings.is_empty() || !is_alone {
            return Ok(findings);
        }
        check_queue(Q::QUEUE, connection)
    }

    fn trigger_migration(connection: &mut C) -> QueryResult<TriggerMigration> {
        connection.trigger_migration(&Q::QUEUE.target()?)
    }
}
