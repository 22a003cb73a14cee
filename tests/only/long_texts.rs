//! Texts and bytes that are longer than an entry of an index may be: they make lanes and orders like any others, and no insert of
//! the application fails.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queue_core::internals::backend::{Sql, Statement};
use queue_core::internals::statement::{Claim, Claimable, FromLane, Pick, next_lanes};
use queue_core::internals::{BoundValue, Lane, LaneValue};
use queueable::bounds::StoredIn;
use queueable::{Message, Migrations, Outcome, Queueable};

use crate::db::{self, AUTO_KEY, BYTES, Conn, Database, NAME, TEXT};
use crate::suite::keyed::queue;

type Backend = <Conn as diesel::Connection>::Backend;

diesel::table! {
    notes (id) {
        id -> BigInt,
        author -> Text,
        seal -> Nullable<Binary>,
        title -> Text,
    }
}

macro_rules! note {
    ($name:ident, $module:ident, $($settings:tt)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = notes)]
        #[queue(module = $module, retry = fixed("1h"), timeout = "30s", $($settings)*)]
        struct $name {
            #[allow(dead_code, reason = "only the queue reads it")]
            id: i64,
            author: String,
            title: String,
        }
    };
}

note!(Ordered, ordered_queue, order_by(title.desc(), author));
note!(Alone, alone_queue, exclusive, order_by = title);
note!(Serial, serial_queue, serial_by = author, order_by = title);
note!(Strict, strict_queue, serial_by(author, strict));
note!(Fair, fair_queue, fair_by = seal, order_by = author);

/// Makes a table with notes, and then adds the queue to it: the titles begin with the letters from `a` to `h`, and two authors
/// take turns. Nothing in them can be compressed.
fn database_of<Q: StoredIn<Backend> + 'static>() -> Database {
    let database = Database::new();
    let mut connection = database.connect();
    let table = format!(
        "CREATE TABLE notes (id {AUTO_KEY} NOT NULL, author {TEXT} NOT NULL, seal {BYTES}, title {TEXT} NOT NULL)"
    );
    connection.batch_execute(&table).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    // Three bytes for each character.
    let mut long =
        |first: char| String::from_iter([first].into_iter().chain((0..3000).map(|_| random.char('一'..='龥'))));
    let authors = ['A', 'B'].map(&mut long);
    for (at, letter) in ('a'..='h').enumerate() {
        let title = long(letter);
        let seal = title.as_bytes();
        let note = (notes::author.eq(&authors[at % 2]), notes::seal.eq(seal), notes::title.eq(&title));
        diesel::insert_into(notes::table).values(note).execute(&mut connection).unwrap();
    }
    connection.run_pending_migrations(Migrations::new().entity::<Q>()).unwrap();
    database
}

/// Enqueues the notes and runs them; returns the first letters of their titles in the order in which they were handled. No two
/// notes of one author are handled at the same time, if there are several `workers`.
macro_rules! letters {
    ($entity:ident, $database:expr, $workers:expr) => {{
        let database = $database;
        let (at_work, letters) = (Mutex::new(HashSet::new()), Arc::new(Mutex::new(Vec::new())));
        let seen = letters.clone();
        let handler = move |note: &$entity, message: &mut Message<'_, Conn>| {
            let is_alone = at_work.lock().unwrap().insert(note.author.clone());
            assert!(is_alone, "two notes of one author at the same time");
            notes::table.count().get_result::<i64>(message.connection())?;
            seen.lock().unwrap().push(note.title.chars().next().unwrap());
            at_work.lock().unwrap().remove(&note.author);
            Ok(Outcome::Done)
        };
        let enqueued = $entity::queue().all_rows().enqueue_existing().run(&mut database.connect(), |_| {}).unwrap();
        assert_eq!(enqueued, 8);
        let tally = $entity::poller(database.pool($workers + 1), handler).workers($workers).run_until_idle().unwrap();
        assert_eq!((tally.succeeded, tally.failed, tally.retried), (8, 0, 0), "{tally:?}");
        String::from_iter(letters.lock().unwrap().iter())
    }};
}

#[test]
fn long_texts_are_an_order() {
    assert_eq!(letters!(Ordered, database_of::<Ordered>(), 1), "hgfedcba");
    assert_eq!(letters!(Alone, database_of::<Alone>(), 3), "abcdefgh");
}

#[test]
fn long_texts_and_bytes_are_lanes() {
    let letters = letters!(Serial, database_of::<Serial>(), 3);
    for of_an_author in ["aceg", "bdfh"] {
        assert_eq!(String::from_iter(letters.chars().filter(|letter| of_an_author.contains(*letter))), of_an_author);
    }
    letters!(Strict, database_of::<Strict>(), 3);
    letters!(Fair, database_of::<Fair>(), 1);
}

#[test]
fn a_copy_of_the_table_has_the_indexes() {
    let database = database_of::<Serial>();
    let mut connection = database.connect();
    if NAME == "postgres" {
        // The copies of the indexes have names of their own.
        let copy = "ALTER TABLE notes RENAME TO old; CREATE TABLE notes (LIKE old INCLUDING ALL); \
                    INSERT INTO notes SELECT * FROM old; ALTER SEQUENCE notes_id_seq OWNED BY notes.id; DROP TABLE old";
        connection.batch_execute(copy).unwrap();
    }
    letters!(Serial, database, 3);
}

/// Returns the plan of a statement that binds texts alone.
fn plan_of(connection: &mut Conn, statement: &impl Statement<Backend>) -> String {
    let sql = diesel::debug_query::<Backend, _>(&Sql::new(statement)).to_string();
    let (sql, binds) = sql.split_once(" -- binds: ").expect("the binds stand behind the statement");
    let binds = binds.trim_matches(['[', ']']).replace('"', "'");
    let plain = binds
        .split(", ")
        .enumerate()
        .fold(sql.to_owned(), |sql, (at, bind)| sql.replace(&format!("${}", at + 1), bind).replacen('?', bind, 1));
    db::plan(connection, &plain)
}

#[test]
fn claims_walk_along_the_indexes_of_beginnings() {
    let database = database_of::<Serial>();
    let mut connection = database.connect();
    let digits = "WITH d (i) AS (SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 \
                  UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
    let backlog = format!(
        "INSERT INTO notes (author, title, next_attempt_time) {digits} \
         SELECT 'author' || a.i, 'title' || (b.i + 10 * c.i + 100 * e.i), '2026-01-01 00:00:00.000' \
         FROM d a CROSS JOIN d b CROSS JOIN d c CROSS JOIN d e; {}",
        db::ANALYZE.replace("payments", "notes")
    );
    connection.batch_execute(&backlog).unwrap();
    let lane = LaneValue { identity: "7".into(), bound: BoundValue::Text("author7".to_owned()) };
    let next = next_lanes(Claimable::new(queue::<Serial>(), None), Some(lane.clone()), 1);
    let in_lane = FromLane { lane: Lane::Value(lane), place: None, pick: Pick::First };
    let claim = Claim::<Backend>::new::<Serial>().some(1, Vec::new()).in_lane(in_lane);
    for plan in [plan_of(&mut connection, &next), plan_of(&mut connection, &claim)] {
        assert!(plan.contains("queueable_lane_notes_"), "{plan}");
        assert!(!["Sort", "TEMP B-TREE", "Seq Scan"].iter().any(|no| plan.contains(no)), "{plan}");
    }
}

diesel::table! {
    pages (id) { id -> BigInt, a -> Text, b -> Text, c -> Text, d -> Text, e -> Text, }
}

#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = pages)]
#[queue(serial_by = e, order_by(a, b.desc(), c, d), timeout = "30s")]
struct PageOfMany {
    id: i64,
}

#[test]
fn many_long_texts_fit_into_one_index() {
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE pages (id {AUTO_KEY} NOT NULL, a {TEXT} NOT NULL, b {TEXT} NOT NULL, c {TEXT} NOT NULL,
                 d {TEXT} NOT NULL, e {TEXT} NOT NULL)"
        ))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<PageOfMany>()).unwrap();
    // Four bytes for each character, and nothing that can be compressed.
    let mut random = fastrand::Rng::with_seed(7);
    let mut long = || String::from_iter((0..2000).map(|_| random.char('\u{20000}'..='\u{2a6df}')));
    let lane = long();
    for first in ["b", "a", "c"] {
        let texts = (pages::a.eq(format!("{first}{}", long())), pages::b.eq(long()), pages::c.eq(long()));
        let row = (texts, pages::d.eq(long()), pages::e.eq(&lane), PageOfMany::due_now());
        diesel::insert_into(pages::table).values(row).execute(&mut connection).unwrap();
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let at_work = seen.clone();
    let handler = move |page: &PageOfMany, _: &mut Message<'_, Conn>| {
        at_work.lock().unwrap().push(page.id);
        Ok(Outcome::Done)
    };
    assert_eq!(PageOfMany::poller(database.pool(2), handler).workers(1).run_until_idle().unwrap().succeeded, 3);
    assert_eq!(*seen.lock().unwrap(), [2, 1, 3]);
}
