//! Numbers that differ from statement to statement and must not make each of them another one: a session keeps every text that
//! it has prepared, and so does its server.

use diesel::query_builder::AstPass;
use diesel::result::QueryResult;

use crate::backend::QueueBackend;
use crate::entity::Entity;

/// Of how many keys at most a statement is kept prepared. Of more it is as good to prepare it once more: that costs a round trip
/// beside the work on so many rows.
const MOST_KEPT: usize = 128;

/// How many rows a statement reads at most. The number is bound: only one row is written out, because that is what is read most,
/// and PostgreSQL then plans it once for all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit(i64);

impl Limit {
    /// One row.
    pub(crate) const ONE: Limit = Limit(1);

    /// So many rows.
    pub(crate) fn of(rows: u32) -> Self {
        Limit(rows.into())
    }

    /// Writes ` LIMIT rows`.
    pub(crate) fn push<'b, DB>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: QueueBackend,
    {
        if self.0 == 1 {
            out.push_sql(" LIMIT 1");
            return Ok(());
        }
        out.push_sql(" LIMIT ");
        DB::bind_big_integer(out, &self.0)
    }
}

/// The conditions that pick the rows with some keys. The last one is repeated, so that there are as many as a power of two.
pub(crate) fn is_keys<Q: Entity>(keys: Vec<&Q::Key>) -> Vec<Q::IsKey> {
    padded(keys).into_iter().map(|key| Q::is_key(key.clone())).collect()
}

/// Repeats the last item, so that there are as many as a power of two.
pub(crate) fn padded<T: Copy>(mut items: Vec<T>) -> Vec<T> {
    if let Some(last) = items.last().copied().filter(|_| items.len() <= MOST_KEPT) {
        items.resize(items.len().next_power_of_two(), last);
    }
    items
}

/// Says of a statement with so many keys whether it is kept.
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
        assert_eq!(padded(Vec::<u8>::new()), []);
        assert_eq!(padded(vec![1]), [1]);
        assert_eq!(padded(vec![1, 2, 3]), [1, 2, 3, 3]);
        assert_eq!(padded(vec![7; 65]).len(), 128);
        assert_eq!(padded(vec![7; 129]).len(), 129);
    }
}
