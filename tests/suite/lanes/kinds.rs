//! The kinds of values by which rows are scheduled: texts, equal or not by their collation, bytes and integers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use queueable::bounds::StoredIn;
use queueable::{Lease, Message, Migrations, Outcome, Queueable};

use super::Backend;
use crate::db::{AUTO_KEY, BYTES, Conn, Database, NAME, TEXT};

diesel::table! {
    documents (id) {
        id -> BigInt,
        code -> Text,
        token -> Nullable<Binary>,
        number -> SmallInt,
    }
}

macro_rules! document {
    ($name:ident, $module:ident, $($settings:tt)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = documents)]
        #[queue(module = $module, retry = fixed("1h"), timeout = "30s", $($settings)*)]
        #[allow(dead_code, reason = "not every test looks at every column")]
        pub(super) struct $name {
            id: i64,
            code: String,
        }
    };
}

document!(ByCode, by_code_queue, serial_by = code);
document!(ByCodeLeased, by_code_leased_queue, serial_by = code, lease = "60s");
document!(ByCodeInGroups, by_code_in_groups_queue, serial_by = code, group = 500);
document!(ByToken, by_token_queue, serial_by(token));
document!(ByNumber, by_number_queue, serial_by = number, fair_by = number);

pub(super) fn documents_of<Q>() -> Database
where
    Q: StoredIn<Backend> + 'static,
{
    let database = Database::new();
    let mut connection = database.connect();
    connection
        .batch_execute(&format!(
            "CREATE TABLE documents (id {AUTO_KEY} NOT NULL, code {TEXT} NOT NULL, token {BYTES}, number SMALLINT NOT NULL)"
        ))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Q>()).unwrap();
    database
}

/// Texts with everything that could be mistaken for something else.
pub(super) const CODES: [&str; 6] = ["a:b", "", "'; DROP TABLE documents; --", "ä %,:\n", "0041:a", "7"];

macro_rules! works {
    ($entity:ident, $identity:expr) => {{
        let database = Arc::new(documents_of::<$entity>());
        let rows: Vec<_> = (0..36)
            .map(|i| {
                let at = i % CODES.len();
                (
                    documents::code.eq(CODES[at]),
                    documents::token.eq(vec![0_u8, 255, at as u8]),
                    documents::number.eq(at as i16 - 3),
                    $entity::due_now(),
                )
            })
            .collect();
        diesel::insert_into(documents::table).values(rows).execute(&mut database.connect()).unwrap();
        let running = Arc::new(Mutex::new(HashMap::<String, u32>::new()));
        let other = database.clone();
        let handler = move |document: &$entity, _: &mut Message<'_, Conn>| {
            let identity: String = $identity(&document.code);
            let number = {
                let mut running = running.lock().unwrap();
                let number = running.entry(identity.clone()).or_default();
                *number += 1;
                *number
            };
            dawdle_in(&other);
            *running.lock().unwrap().get_mut(&identity).unwrap() -= 1;
            assert_eq!(number, 1, "{number} documents of {identity:?} at the same time, {} the last", document.id);
            Ok(Outcome::Done)
        };
        let pollers = [(); 2].map(|()| {
            let poller = $entity::poller(database.pool(6), handler.clone()).workers(3);
            thread::spawn(move || poller.run_until_idle().unwrap().succeeded)
        });
        assert_eq!(pollers.map(|poller| poller.join().unwrap()).iter().sum::<u64>(), 36);
    }};
}

/// Some round trips of a session of its own.
fn dawdle_in(database: &Database) {
    let mut connection = database.connect();
    for _ in 0..5 {
        let _: i64 = documents::table.count().get_result(&mut connection).unwrap();
    }
}

#[test]
fn documents_are_scheduled_by_a_text() {
    works!(ByCode, |code: &str| code.to_owned());
}

#[test]
fn documents_are_scheduled_by_bytes() {
    works!(ByToken, |code: &str| code.to_owned());
}

#[test]
fn documents_are_scheduled_by_a_small_integer() {
    works!(ByNumber, |code: &str| code.to_owned());
}

/// A claim that named each row of the group, in each lane, would be too long for SQLite.
#[test]
fn a_group_takes_a_row_of_each_of_many_lanes() {
    let database = documents_of::<ByCodeInGroups>();
    let row = |i: i32| (documents::code.eq(i.to_string()), documents::number.eq(0), ByCodeInGroups::due_now());
    let rows: Vec<_> = (0..1_200).map(row).collect();
    diesel::insert_into(documents::table).values(rows).execute(&mut database.connect()).unwrap();
    let handler = |_: &ByCodeInGroups, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    let poller = ByCodeInGroups::poller(database.pool(2), handler).workers(1);
    assert_eq!(poller.run_until_idle().unwrap().succeeded, 1_200);
}

macro_rules! one_at_a_time {
    ($entity:ident, $equal:expr, $begin:ident => $handler:expr) => {{
        let database = Arc::new(documents_of::<$entity>());
        database.connect().batch_execute($equal).unwrap();
        // Most collations of MariaDB and MySQL compare without the blanks at the end.
        let codes = ["acme", "ACME", "Acme", if NAME == "mysql" { "ácme  " } else { "ácme" }];
        let rows: Vec<_> =
            (0..24).map(|i| (documents::code.eq(codes[i % 4]), documents::number.eq(0), $entity::due_now())).collect();
        diesel::insert_into(documents::table).values(rows).execute(&mut database.connect()).unwrap();
        let (running, other) = (Arc::new(Mutex::new(0)), database.clone());
        let $begin = move || {
            let number = {
                let mut running = running.lock().unwrap();
                *running += 1;
                *running
            };
            dawdle_in(&other);
            *running.lock().unwrap() -= 1;
            assert_eq!(number, 1);
        };
        let tally = $entity::poller(database.pool(6), $handler).workers(4).run_until_idle().unwrap();
        assert_eq!(tally.succeeded, 24, "{tally:?}");
    }};
}

#[test]
fn texts_that_are_equal_by_their_collation_are_one_company() {
    let equal = match NAME {
        "postgres" => {
            "CREATE COLLATION of_no_case (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
             ALTER TABLE documents ALTER COLUMN code TYPE TEXT COLLATE of_no_case"
        }
        // The default of MySQL is another one.
        "mysql" => {
            "ALTER TABLE documents MODIFY code VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"
        }
        // On SQLite a column's collation cannot be changed, and one transaction runs at a time.
        _ => return,
    };
    one_at_a_time!(ByCode, equal, begin => move |_: &ByCode, _: &mut Message<'_, Conn>| {
        begin();
        Ok(Outcome::Done)
    });
    let apply = |_: &ByCodeLeased, (): &(), _: &mut Message<'_, Conn>| Ok(Outcome::Done);
    one_at_a_time!(ByCodeLeased, equal, begin => (
        move |_: &ByCodeLeased, _: &Lease| {
            begin();
            Ok(())
        },
        apply,
    ));
}
