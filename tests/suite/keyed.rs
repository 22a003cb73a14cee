//! A queue and its rows, as the statements take them.

use diesel::Connection;
use queue_core::internals::statement::ErasedQueue;
use queue_core::internals::{Fence, IsKey, KeyedRow, QueueSql};
use queueable::bounds::{QueueOn, StoredIn};

use crate::db::Conn;

type Backend = <Conn as Connection>::Backend;

pub(crate) fn queue<Q: StoredIn<Backend>>() -> &'static QueueSql<Backend> {
    Q::SQL
}

/// Returns the queue as the engine knows it.
pub(crate) fn erased<Q: QueueOn<Conn>>() -> &'static ErasedQueue<Q::Key, Conn> {
    Q::QUEUE
}

pub(crate) fn row<Q: StoredIn<Backend>>(key: &Q::Key) -> KeyedRow<Backend> {
    Q::row(key)
}

pub(crate) fn rows<Q: StoredIn<Backend>>(keys: &[Q::Key]) -> Vec<IsKey<Backend>> {
    Q::rows(keys)
}

pub(crate) fn fenced_rows<Q: StoredIn<Backend>>(
    rows: impl IntoIterator<Item = (Q::Key, Fence)>,
) -> Vec<(IsKey<Backend>, Fence)> {
    rows.into_iter().map(|(key, fence)| (Q::row(&key).is_key, fence)).collect()
}
