//! Numbers that differ from statement to statement. They must not make each statement a different one, because the
//! session and its server keep every text that they have prepared.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use super::writer::Writer;
use crate::backend::QueueBackend;

/// The largest number of keys for which a statement is kept prepared. With more keys it is prepared each time: that
/// costs one round trip, beside the work on so many rows.
const MOST_KEPT: usize = 128;

impl<'b, DB: QueueBackend> Writer<'_, 'b, DB> {
    /// Writes ` LIMIT rows`. The number is bound, except for one row. One row is the most frequent case, and written out
    /// it lets PostgreSQL plan the statement once and for all.
    pub(crate) fn push_limit(&mut self, rows: &'b i64) -> QueryResult<()> {
        if *rows == 1 {
            return self.push(" LIMIT 1");
        }
        self.push(" LIMIT ")?;
        DB::bind_big_integer(&mut self.out, rows)
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
