//! An upsert in one statement, where the database has `ON CONFLICT .. DO UPDATE .. WHERE`.

use diesel::prelude::*;
use diesel::query_dsl::methods::FilterDsl;
use diesel::upsert::excluded;
use queueable::Queueable;

use crate::db::Conn;
use crate::suite::upsert::{Article, articles};

/// Inserts the article, or renews one of an older revision. Returns how many rows it changed.
pub(crate) fn upsert(connection: &mut Conn, id: i64, revision: i64, body: &str) -> usize {
    diesel::insert_into(articles::table)
        .values((articles::id.eq(id), articles::revision.eq(revision), articles::body.eq(body), Article::due_now()))
        .on_conflict(articles::id)
        .do_update()
        .set((
            articles::revision.eq(excluded(articles::revision)),
            articles::body.eq(excluded(articles::body)),
            Article::due_now(),
        ))
        .filter(excluded(articles::revision).gt(articles::revision))
        .execute(connection)
        .unwrap()
}
