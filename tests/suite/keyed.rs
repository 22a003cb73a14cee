//! A queue and its rows, as the statements take them.

use diesel::Connection;
use queueable::StoredIn;
use queueable::internals::{Fence, IsKey, KeyedRow, QueueSql};

use crate::db::Conn;

type Backend = <Conn as Connection>::Backend;

pub(crate) fn queue<Q: StoredIn<Backend>>() -> &'static QueueSql<Backend> {
    Q::SQL
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
