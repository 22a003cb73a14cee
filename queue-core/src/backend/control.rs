//! A statement that controls the transaction, as a prepared one. Other databases take it as text, which on MySQL costs
//! three round trips.

use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;

use super::connection::QueueBackend;

/// The statement.
pub(crate) struct Control(pub(crate) &'static str);

impl<DB: QueueBackend> QueryFragment<DB> for Control {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(self.0);
        Ok(())
    }
}

impl QueryId for Control {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}
