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
pub trait ComparesSchema<Q: Entity> {
    #[doc(hidden)]
    fn differences_of(&mut self) -> QueryResult<Vec<Finding>>;

    #[doc(hidden)]
    fn trigger_migration_of(&mut self) -> QueryResult<TriggerMigration>;
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
        let names = column_names(&<Q::Queue as QueueTable>::Table::all_columns(), &C::Backend::default())?;
        let nullable = <<Columns<Q> as Expression>::SqlType as DeclaredTypes>::nullable();
        let declared = names.into_iter().zip(nullable).map(|(name, nullable)| DeclaredColumn { name, nullable });
        let target = Q::QUEUE.target()?;
        // Rights and the claim are tried in transactions of their own.
        let status = C::TransactionManager::transaction_manager_status_mut(self);
        let is_alone = matches!(status.transaction_depth(), Ok(None));
        let mut findings = match is_alone {
            true => check_table(self, &target)?,
            false => self.check(&target)?,
        };
        for finding in self.differences(&target, &declared.collect::<Vec<_>>())? {
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
}
