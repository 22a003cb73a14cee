//! An upsert in two statements, for a database whose own takes no condition.

use diesel::prelude::*;
use queueable::Queueable;

use crate::db::Conn;
use crate::suite::upsert::{Article, articles};

/// Inserts the article, or renews one of an older revision. Returns how many rows it changed. If two sessions insert the
/// same article at once, one of them finds it there and goes on to the update.
pub(crate) fn upsert(connection: &mut Conn, id: i64, revision: i64, body: &str) -> usize {
    connection
        .transaction(|connection| -> QueryResult<_> {
            let values =
                (articles::id.eq(id), articles::revision.eq(revision), articles::body.eq(body), Article::due_now());
            let inserted = diesel::insert_or_ignore_into(articles::table).values(values).execute(connection)?;
            if inserted > 0 {
                return Ok(inserted);
            }
            diesel::update(articles::table.find(id).filter(articles::revision.lt(revision)))
                .set((articles::revision.eq(revision), articles::body.eq(body), Article::due_now()))
                .execute(connection)
        })
        .unwrap()
}
