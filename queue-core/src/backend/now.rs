//! The database's current time, as an expression.

use std::time::Duration;

use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::sql_types::Nullable;
use diesel::{AppearsOnTable, Expression, SelectableExpression};

use super::connection::QueueBackend;
use crate::row::{TimestampUtc, microseconds};

/// The database's current time, as an expression.
#[derive(Debug, Clone, Copy, QueryId)]
pub struct Now;

/// The database's current time plus a delay, as an expression.
#[derive(Debug, Clone, Copy, QueryId)]
pub struct NowPlus(pub(crate) Duration);

impl<DB: QueueBackend> QueryFragment<DB> for Now {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(DB::NOW);
        Ok(())
    }
}

impl<DB> QueryFragment<DB> for NowPlus
where
    DB: QueueBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        push_now_plus(&mut out, self.0);
        Ok(())
    }
}

/// Writes `now + delay`. The number is written out, not bound: it consists of digits, and a bound one would have to
/// outlive the query. If the number differs each time, the statement must not be cached.
pub(crate) fn push_now_plus<DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>, delay: Duration) {
    out.push_sql(DB::NOW_PLUS_MICROSECONDS.0);
    out.push_sql(&microseconds(delay).to_string());
    out.push_sql(DB::NOW_PLUS_MICROSECONDS.1);
}

macro_rules! time_expression {
    ($($name:ty),*) => {$(
        impl Expression for $name {
            type SqlType = Nullable<TimestampUtc>;
        }
        impl<QS> AppearsOnTable<QS> for $name {}
        impl<QS> SelectableExpression<QS> for $name {}
        impl<GB> diesel::expression::ValidGrouping<GB> for $name {
            type IsAggregate = diesel::expression::is_aggregate::Never;
        }
    )*};
}

time_expression!(Now, NowPlus);
