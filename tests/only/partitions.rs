//! A partitioned table on PostgreSQL gets its queue without a pause for its writers.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Text};
use diesel_migrations::MigrationHarness;
use queueable::{Message, Migrations, Outcome, Queueable};

use crate::db::{Conn, Database};

diesel::table! {
    events (id, day) {
        id -> BigInt,
        day -> Integer,
    }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = events, primary_key(id, day))]
#[queue(priority)]
#[allow(dead_code, reason = "only its table is looked at")]
struct Event {
    id: i64,
    day: i32,
}

fn queue() -> Migrations<diesel::pg::Pg> {
    Migrations::new().entity::<Event>()
}

/// Two levels of partitions, and one of them in another schema.
fn with_partitions() -> Database {
    let database = Database::new();
    database
        .connect()
        .batch_execute(
            "CREATE TABLE events (id bigint NOT NULL, day integer NOT NULL, PRIMARY KEY (id, day)) PARTITION BY LIST (day);
             CREATE SCHEMA \"old days\";
             CREATE TABLE \"old days\".\"Events 1\" PARTITION OF events FOR VALUES IN (1);
             CREATE TABLE events_2 PARTITION OF events FOR VALUES IN (2) PARTITION BY RANGE (id);
             CREATE TABLE events_2_low PARTITION OF events_2 FOR VALUES FROM (0) TO (10);
             CREATE TABLE events_2_high PARTITION OF events_2 FOR VALUES FROM (10) TO (1000);
             INSERT INTO events SELECT id, day FROM generate_series(1, 20) AS id, generate_series(1, 2) AS day",
        )
        .unwrap();
    database
}

fn columns(connection: &mut Conn) -> String {
    let columns = "(SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute
                    WHERE attrelid = 'events'::regclass AND attnum > 0 AND NOT attisdropped)";
    diesel::select(sql::<Text>(columns)).get_result(connection).unwrap()
}

/// How many indexes of the queue there are, and whether all of them are valid.
fn indexes(connection: &mut Conn) -> (i64, bool) {
    let of = |what| {
        format!(
            "(SELECT {what} FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
              WHERE pg_get_indexdef(indexrelid) LIKE '%next_attempt_time IS NOT NULL%')"
        )
    };
    let all = (sql::<BigInt>(&of("count(*)")), sql::<Bool>(&of("COALESCE(bool_and(indisvalid), true)")));
    diesel::select(all).get_result(connection).unwrap()
}

fn works(database: &Database) {
    let due: Vec<_> =
        (21..=40).flat_map(|id| [1, 2].map(|day| (events::id.eq(id), events::day.eq(day), Event::due_now()))).collect();
    diesel::insert_into(events::table).values(due).execute(&mut database.connect()).unwrap();
    let handler = |_: &Event, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let tally = Event::poller(database.pool(3), handler).workers(2).prefetch_at_once().run_until_idle().unwrap();
    assert_eq!(tally.succeeded, 40);
}

#[test]
fn a_partitioned_table_is_migrated_and_reverted() {
    let database = with_partitions();
    let mut connection = database.connect();
    assert_eq!(connection.run_pending_migrations(queue()).unwrap().len(), 1);
    // Both indexes, on the table, the partition that is divided, and the three that are not.
    assert_eq!(indexes(&mut connection), (10, true));
    works(&database);
    // A partition that comes later has what the table has.
    connection.batch_execute("CREATE TABLE events_3 PARTITION OF events FOR VALUES IN (3)").unwrap();
    assert_eq!(indexes(&mut connection), (12, true));
    connection.revert_all_migrations(queue()).unwrap();
    assert_eq!((columns(&mut connection).as_str(), indexes(&mut connection)), ("id day", (0, true)));
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = events, primary_key(id, day))]
#[queue(module = reported_queue, report_index)]
#[allow(dead_code, reason = "only its table is looked at")]
struct Reported {
    id: i64,
    day: i32,
}

/// The server has given that of reports a name of its own.
#[test]
fn a_later_partition_gets_no_second_index() {
    let database = with_partitions();
    let mut connection = database.connect();
    let count = |connection: &mut Conn| {
        let indexes = sql::<BigInt>("(SELECT count(*) FROM pg_index WHERE indrelid = 'events_3'::regclass)");
        diesel::select(indexes).get_result::<i64>(connection).unwrap()
    };
    let queue = || Migrations::new().entity::<Reported>();
    connection.run_pending_migrations(queue()).unwrap();
    connection.batch_execute("CREATE TABLE events_3 PARTITION OF events FOR VALUES IN (3)").unwrap();
    let before = count(&mut connection);
    connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
    connection.run_pending_migrations(queue()).unwrap();
    assert_eq!(count(&mut connection), before);
}

#[test]
fn an_index_that_a_partition_has_already_is_kept() {
    let database = with_partitions();
    let mut connection = database.connect();
    connection.run_pending_migrations(queue()).unwrap();
    // As after an interruption, but for the name of the index.
    connection
        .batch_execute(
            "DO $$ DECLARE name text; BEGIN
                 FOR name IN SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'events'::regclass
                     AND pg_get_indexdef(indexrelid) LIKE '%next_attempt_time IS NOT NULL%'
                 LOOP EXECUTE 'DROP INDEX ' || name; END LOOP;
             END $$;
             DELETE FROM __diesel_schema_migrations",
        )
        .unwrap();
    assert_eq!(indexes(&mut connection), (0, true), "the table's index takes the others with it");
    let pending = "WHERE next_attempt_time IS NOT NULL";
    connection.batch_execute(&format!("CREATE INDEX own ON events_2_low (next_attempt_time) {pending}")).unwrap();
    let before = indexes(&mut connection);
    connection.run_pending_migrations(queue()).unwrap();
    assert_eq!((before, indexes(&mut connection)), ((1, true), (10, true)));
    works(&database);
}

#[test]
fn inside_a_transaction_the_table_is_migrated_at_once() {
    let database = with_partitions();
    let mut connection = database.connect();
    connection
        .transaction::<_, diesel::result::Error, _>(|connection| {
            connection.run_pending_migrations(queue()).unwrap();
            Ok(())
        })
        .unwrap();
    assert_eq!(indexes(&mut connection), (10, true));
    works(&database);
}
