//! Which of the due rows a worker claims.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::Text;

use crate::backend::QueueBackend;
use crate::entity::QueueTable;
use crate::options::Stages;

/// Which of the due rows a worker claims: none with these keys, and only those in these stages.
#[derive(Debug)]
pub struct Scope<'a, K> {
    /// The keys of rows that are left alone.
    pub except: &'a [K],
    /// The texts of the stages, if not all that the entity has.
    pub stages: Option<&'a [&'static str]>,
}

impl<K> Scope<'_, K> {
    /// All rows.
    pub const ALL: Self = Scope { except: &[], stages: None };
}

impl<K> Clone for Scope<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Scope<'_, K> {}

impl<K> Default for Scope<'_, K> {
    fn default() -> Self {
        Scope::ALL
    }
}

/// Writes ` AND stage IN (..)` for an entity that has stages. A row in a stage that it does not know is never claimed.
pub(super) fn push_stages<'b, T, DB>(
    out: &mut AstPass<'_, 'b, DB>,
    stages: Option<&'b [&'static str]>,
) -> QueryResult<()>
where
    T: QueueTable,
    DB: QueueBackend,
    T::Table: QueryFragment<DB>,
    str: ToSql<Text, DB>,
{
    let Some(known) = T::OPTIONS.stages else { return Ok(()) };
    out.push_sql(" AND ");
    push_stage_in::<T, DB>(out, known, " IN (", stages.unwrap_or(known.names))
}

/// Writes `stage IN (..)`.
pub(super) fn push_stage_in<'b, T, DB>(
    out: &mut AstPass<'_, 'b, DB>,
    Stages { column, .. }: Stages,
    is: &str,
    stages: &'b [&'static str],
) -> QueryResult<()>
where
    T: QueueTable,
    DB: QueueBackend,
    T::Table: QueryFragment<DB>,
    str: ToSql<Text, DB>,
{
    out.push_sql(DB::EXACTLY.0);
    T::TABLE.walk_ast(out.reborrow())?;
    out.push_sql(".");
    out.push_identifier(column)?;
    out.push_sql(DB::EXACTLY.1);
    out.push_sql(is);
    for (i, stage) in stages.iter().enumerate() {
        out.push_sql(if i == 0 { "" } else { ", " });
        out.push_bind_param::<Text, str>(stage)?;
    }
    out.push_sql(")");
    Ok(())
}
