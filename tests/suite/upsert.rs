//! An application that hears of revisions in any order and writes each: an older one changes nothing.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::{Message, Migrations, Outcome, Queueable, Status};

use crate::db::{BIGINT, Conn, Database, TEXT};
use crate::upsert::upsert;

diesel::table! {
    articles (id) {
        id -> BigInt,
        revision -> BigInt,
        body -> Text,
    }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = articles)]
#[queue(version = revision, rerun_on_change(body), timeout = "30s")]
pub(crate) struct Article {
    id: i64,
    revision: i64,
    body: String,
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
    let row: (Article, String, i64) = articles::table
        .find(1)
        .select((Article::as_select(), article_queue::status, article_queue::change_count))
        .get_result(&mut connection)
        .unwrap();
    assert_eq!((row.0.id, row.0.revision, &*row.1, row.2), (1, 5, Status::Success.as_str(), 1));
}
