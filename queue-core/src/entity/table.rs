//! A table that is a queue.

use diesel::query_source::Table;

use super::claim_condition::ClaimCondition;
use crate::backend::QueueBackend;
use crate::row::{ColumnNames, Options};

/// One queue on one table: the table and the names of its queue columns.
///
/// The derive implements it for a marker type in the module that it writes (`payment_queue::Queue`). The queue columns
/// are generic over this marker and not over the entity, so that entities with lifetimes and type parameters have plain
/// constants as columns.
pub trait QueueTable: Sized + 'static {
    /// The table as `diesel::table!` declares it.
    type Table: Table + Sync + 'static;

    /// The table's value.
    const TABLE: &'static Self::Table;

    /// The names of the queue's columns.
    const COLUMNS: ColumnNames;

    /// What the entity asks for beyond the five columns.
    const OPTIONS: Options = Options::NONE;

    /// The condition on the domain's columns, for one backend. A row is claimed only while it holds. `None`: there is
    /// no condition.
    fn claim_condition<DB: QueueBackend>() -> Option<ClaimCondition<DB>> {
        None
    }
}
