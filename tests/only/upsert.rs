//! One statement that inserts a row or renews it, where the database has `ON CONFLICT .. DO UPDATE .. WHERE`: what arrives
//! out of order changes nothing.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::query_dsl::methods::FilterDsl;
use diesel::upsert::excluded;
use diesel_migrations::MigrationHarness;
use queueable::{Message, Migrations, Outcome, Queueable, Status};

use crate::db::{BIGINT, Conn, Database, TEXT};

diesel::table! {
    articles (id) {
        id -> BigInt,
        revision -> BigInt,
        body -> Text,
    }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = articles)]
#[queue(version = revision, rerun_on_change(body))]
struct Article {
    id: i64,
    revision: i64,
    body: String,
}

/// What an application writes that hears of revisions in any order.
fn upsert(connection: &mut Conn, id: i64, revision: i64, body: &str) -> usize {
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

#[test]
fn an_upsert_enqueues_what_is_newer_and_leaves_the_rest_alone() {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE articles (id {BIGINT} PRIMARY KEY NOT NULL, revision {BIGINT} NOT NULL, body {TEXT} NOT NULL)"
        ))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Article>()).unwrap();
    let run = || {
        Article::poller(database.pool(3), |article: &Article, _: &mut Message<'_, Conn>| {
            assert_eq!(article.body, format!("revision {}", article.revision));
            Ok(Outcome::Done)
        })
        .workers(1)
        .run_until_idle()
        .unwrap()
        .succeeded
    };
    assert_eq!(upsert(&mut connection, 1, 3, "revision 3"), 1);
    assert_eq!(run(), 1);
    assert_eq!(upsert(&mut connection, 1, 2, "revision 2"), 0);
    assert_eq!(upsert(&mut connection, 1, 3, "revision 3, once more"), 0);
    assert_eq!(run(), 0);
    assert_eq!(upsert(&mut connection, 1, 5, "revision 5"), 1);
    assert_eq!(run(), 1);
    let row: (Article, String, i64) = QueryDsl::find(articles::table, 1)
        .select((Article::as_select(), article_queue::status, article_queue::change_count))
        .get_result(&mut connection)
        .unwrap();
    assert_eq!((row.0.id, row.0.revision, &*row.1, row.2), (1, 5, Status::Success.as_str(), 1));
}
