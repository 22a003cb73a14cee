//! Numbers that differ from statement to statement. They must not make each statement a different one, because the
//! session and its server keep every text that they have prepared.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use crate::backend::QueueBackend;

/// The largest number of keys for which a statement is kept prepared. With more keys it is prepared each time: that
/// costs one round trip, beside the work on so many rows.
const MOST_KEPT: usize = 128;

/// The largest number of rows that a statement reads. The number is bound, except for one row. One row is the most
/// frequent case, and written out it lets PostgreSQL plan the statement once and for all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit(i64);

impl Limit {
    /// One row.
    pub(crate) const ONE: &'static Limit = &Limit(1);

    /// Makes a limit of this many rows.
    pub(crate) fn of(rows: u32) -> Self {
        Limit(rows.into())
    }

    /// Writes ` LIMIT rows`.
    pub(crate) fn push<'b, DB: QueueBackend>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if self.0 == 1 {
            out.push_sql(" LIMIT 1");
            return Ok(());
        }
        out.push_sql(" LIMIT ");
        DB::bind_big_integer(out, &self.0)
    }
}

/// Repeats the last item, so that the number of items is a power of two.
pub(crate) fn padded<T: Clone>(mut items: Vec<T>) -> Vec<T> {
    if let Some(last) = items.last().cloned().filter(|_| items.len() <= MOST_KEPT) {
        items.resize(items.len().next_power_of_two(), last);
    }
    items
}

/// Says whether a statement with this many keys is kept prepared.
pub(crate) fn keep_if_few<DB: QueueBackend>(out: &mut AstPass<'_, '_, DB>, keys: usize) {
    if keys > MOST_KEPT {
        out.unsafe_to_cache_prepared();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_as_long_as_a_power_of_two() {
        assert!(padded(Vec::<u8>::new()).is_empty());
        assert_eq!(padded(vec![1]), [1]);
        assert_eq!(padded(vec![1, 2, 3]), [1, 2, 3, 3]);
        assert_eq!(padded(vec![7; 65]).len(), 128);
        assert_eq!(padded(vec![7; 129]).len(), 129);
    }
}
