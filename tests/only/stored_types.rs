//! SQLite stores values of any type in a column. A row whose key reads as that of another row fails alone, and what no attempt
//! could settle is refused where it is written.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::bounds::StoredIn;
use queueable::{Message, Migrations, Outcome, Queueable};

use crate::db::{Conn, Database};

diesel::table! { longs (id) { id -> BigInt, } }
diesel::table! { shorts (id) { id -> Integer, } }
diesel::table! { words (id) { id -> Text, } }

macro_rules! entity {
    ($name:ident, $module:ident, $table:ident, $key:ty, $($settings:tt)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = $table)]
        #[queue(module = $module, retry = fixed("1h"), $($settings)*)]
        struct $name {
            #[allow(dead_code, reason = "nobody reads it but the queue")]
            id: $key,
        }
    };
}

entity!(Long, long_queue, longs, i64, timeout = "30s");
entity!(LongInGroups, long_group_queue, longs, i64, group = 10, timeout = "30s");
entity!(LongInTurn, long_turn_queue, longs, i64, exclusive, timeout = "30s");
entity!(Short, short_queue, shorts, i32, timeout = "30s");
entity!(Word, word_queue, words, String, timeout = "30s");

fn database_of<Q: StoredIn<diesel::sqlite::Sqlite> + 'static>(table: &str) -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    connection.batch_execute(table).unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Q>()).unwrap();
    database
}

#[derive(QueryableByName)]
struct Ended {
    #[diesel(sql_type = diesel::sql_types::Text)]
    id: String,
    #[diesel(sql_type = diesel::sql_types::Text)]
    status: String,
}

/// Runs a queue with these keys, all due at the same time, and shows how each has ended.
macro_rules! assert_ended {
    ($entity:ident, $table:literal, $key:literal, $keys:expr) => {{
        let database =
            database_of::<$entity>(concat!("CREATE TABLE ", $table, " (id ", $key, " NOT NULL PRIMARY KEY)"));
        let mut connection = database.connect();
        for (key, _) in $keys {
            let due = "'2026-01-01 00:00:00.000'";
            let insert = format!("INSERT INTO {} (id, next_attempt_time) VALUES ({key}, {due})", $table);
            connection.batch_execute(&insert).unwrap();
        }
        let handler = |_: &$entity, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        let tally = $entity::poller(database.pool(4), handler).workers(2).run_until_idle().unwrap();
        let ended = diesel::sql_query(concat!("SELECT quote(id) AS id, status FROM ", $table, " ORDER BY rowid"));
        let ended: Vec<Ended> = ended.load(&mut connection).unwrap();
        let ended: Vec<_> = ended.iter().map(|row| (row.id.as_str(), row.status.as_str())).collect();
        assert_eq!(ended, $keys, "{tally:?}");
    }};
}

const LONGS: [(&str, &str); 6] =
    [("0", "SUCCESS"), ("'x'", "FAILED"), ("'yy'", "FAILED"), ("1.5", "FAILED"), ("X'32'", "FAILED"), ("1", "SUCCESS")];

#[test]
fn a_key_that_is_no_number_fails_alone() {
    assert_ended!(Long, "longs", "BIGINT", LONGS);
}

#[test]
fn a_key_that_is_no_number_fails_alone_in_a_group() {
    assert_ended!(LongInGroups, "longs", "BIGINT", LONGS);
}

#[test]
fn a_key_that_is_no_number_fails_alone_at_the_head_of_its_queue() {
    assert_ended!(LongInTurn, "longs", "BIGINT", LONGS);
}

#[test]
fn a_key_beyond_the_range_of_its_type_fails_alone() {
    assert_ended!(Short, "shorts", "INT", [("1", "SUCCESS"), ("4294967297", "FAILED"), ("4294967303", "FAILED")]);
}

#[test]
fn a_key_that_is_no_text_fails_alone() {
    assert_ended!(
        Word,
        "words",
        "BLOB",
        [("1", "FAILED"), ("'1'", "SUCCESS"), ("X'61'", "FAILED"), ("'a'", "SUCCESS")]
    );
}

#[test]
fn what_no_attempt_could_settle_is_refused_where_it_is_written() {
    let database = database_of::<Long>("CREATE TABLE longs (id BIGINT NOT NULL PRIMARY KEY)");
    let mut connection = database.connect();
    for odd in ["'abc'", "x'31'", "1.5", "2147483648", "-2147483649"] {
        let insert = format!("INSERT INTO longs (id, try_count) VALUES (1, {odd})");
        let refused = connection.batch_execute(&insert).unwrap_err().to_string();
        assert!(refused.contains("CHECK constraint failed") && refused.contains("try_count"), "{odd}: {refused}");
    }
    let insert = "INSERT INTO longs (id, next_attempt_time) VALUES (1, '-0001-01-01 00:00:00.000')";
    let refused = connection.batch_execute(insert).unwrap_err().to_string();
    assert!(refused.contains("CHECK constraint failed") && refused.contains("next_attempt_time"), "{refused}");
    connection.batch_execute("INSERT INTO longs (id, try_count) VALUES (1, '7'), (2, -1), (3, 2147483647)").unwrap();
}
