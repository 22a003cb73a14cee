//! Columns of an order and of lanes whose values may be longer than an entry of an index: the migration refuses them before its
//! first change. MySQL would refuse the index, and MariaDB might have made one of beginnings, along which no order can be walked.

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::MigrationHarness;
use queueable::{Message, Migrations, Outcome, Queueable, Stage};

use crate::db::{Conn, Database, SHAPE};

diesel::table! { notes (id) { id -> BigInt, author -> Text, seal -> Binary, title -> Nullable<Text>, } }

macro_rules! note {
    ($name:ident, $module:ident, $($settings:tt)*) => {
        #[derive(Debug, Queryable, Selectable, Queueable)]
        #[diesel(table_name = notes)]
        #[queue(module = $module, $($settings)*)]
        struct $name {
            #[allow(dead_code, reason = "only the queue reads it")]
            id: i64,
        }
    };
}

note!(Ordered, ordered_queue, order_by(title, author));
note!(Fair, fair_queue, fair_by = seal);
note!(Strict, strict_queue, serial_by(author, strict));
note!(InSteps, in_steps_queue, exclusive, order_by(title, author), stage = Step);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
enum Step {
    Print,
}

/// Makes a table whose texts and bytes have these types.
fn database_with(text: &str, bytes: &str) -> Database {
    let database = Database::new();
    let table = format!(
        "CREATE TABLE notes (id BIGINT AUTO_INCREMENT PRIMARY KEY, author {text} NOT NULL, seal {bytes} NOT NULL, title {text}) \
         CHARACTER SET utf8mb4"
    );
    database.connect().batch_execute(&table).unwrap();
    database
}

fn shape(connection: &mut Conn) -> Vec<String> {
    sql::<Text>(&SHAPE.replace("$table", "notes")).load(connection).unwrap()
}

/// Migrates, is told of each column in turn, and mends it; then the queue works.
macro_rules! refused {
    ($entity:ident, $database:expr, $columns:expr) => {{
        let database: Database = $database;
        let mut connection = database.connect();
        let queue = || Migrations::new().entity::<$entity>();
        for (column, sql_type, shorter) in $columns {
            let before = shape(&mut connection);
            let error = format!("{:?}", connection.run_pending_migrations(queue()).unwrap_err());
            let problem = format!("the column {column} of `notes` is of type {sql_type}, whose values may be too long");
            assert!(error.contains(&problem), "{error}");
            let mend = format!("ALTER TABLE `notes` MODIFY COLUMN `{column}` {shorter}");
            assert!(error.contains(&mend), "{error}");
            assert_eq!(shape(&mut connection), before);
            connection.batch_execute(&mend).unwrap();
        }
        connection.run_pending_migrations(queue()).unwrap();
        let note = (notes::author.eq("Ada"), notes::seal.eq(vec![1]), $entity::due_now());
        diesel::insert_into(notes::table).values(note).execute(&mut connection).unwrap();
        let handler = |_: &$entity, _: &mut Message<'_, Conn>| Ok(Outcome::Done);
        let poller = || $entity::poller(database.pool(2), handler).workers(1);
        assert_eq!(poller().run_until_idle().unwrap().succeeded, 1);
    }};
}

const COLLATE: &str = "COLLATE utf8mb4_general_ci";

#[test]
fn texts_without_limit_are_refused() {
    let columns = [("author", " NOT NULL"), ("title", "")];
    let columns = columns.map(|(name, null)| (name, "text", format!("VARCHAR(191) {COLLATE}{null}")));
    refused!(Ordered, database_with(&format!("TEXT {COLLATE}"), "BLOB"), columns);
}

#[test]
fn a_shorter_column_keeps_its_default_and_its_comment() {
    let database = database_with(&format!("VARCHAR(500) {COLLATE}"), "BLOB");
    let rest = format!("{COLLATE} NOT NULL DEFAULT 'nobody' COMMENT 'its author'");
    database.connect().batch_execute(&format!("ALTER TABLE notes MODIFY author VARCHAR(500) {rest}")).unwrap();
    refused!(Ordered, database, [("author", "varchar(500)", format!("VARCHAR(191) {rest}"))]);
}

#[test]
fn bytes_without_limit_are_refused() {
    let columns = [("seal", "blob", "VARBINARY(191) NOT NULL")];
    refused!(Fair, database_with(&format!("TEXT {COLLATE}"), "BLOB"), columns);
}

#[test]
fn texts_that_are_too_long_together_are_refused() {
    let columns = [("author", "varchar(500)", format!("VARCHAR(191) {COLLATE} NOT NULL"))];
    refused!(Ordered, database_with(&format!("VARCHAR(500) {COLLATE}"), "BLOB"), columns);
    // With the status, which the migration would add.
    let columns = [("author", "varchar(760)", format!("VARCHAR(191) {COLLATE} NOT NULL"))];
    refused!(Strict, database_with(&format!("VARCHAR(760) {COLLATE}"), "BLOB"), columns);
    // With the stage, which it would add too.
    let columns = [("author", "varchar(300)", format!("VARCHAR(191) {COLLATE} NOT NULL"))];
    refused!(InSteps, database_with(&format!("VARCHAR(300) {COLLATE}"), "BLOB"), columns);
}

#[test]
fn a_table_of_an_old_format_is_refused_with_the_mend() {
    let database = database_with(&format!("VARCHAR(255) {COLLATE}"), "BLOB");
    let mut connection = database.connect();
    connection.batch_execute("ALTER TABLE notes ROW_FORMAT = COMPACT").unwrap();
    let before = shape(&mut connection);
    let queue = || Migrations::new().entity::<Ordered>();
    let error = format!("{:?}", connection.run_pending_migrations(queue()).unwrap_err());
    let mend = "ALTER TABLE `notes` ROW_FORMAT = DYNAMIC";
    assert!(error.contains("one takes 767 bytes") && error.contains(mend), "{error}");
    assert_eq!(shape(&mut connection), before);
    connection.batch_execute(mend).unwrap();
    connection.run_pending_migrations(queue()).unwrap();
    // Values that fit need no other format.
    let database = database_with(&format!("VARCHAR(191) {COLLATE}"), "BLOB");
    let mut connection = database.connect();
    connection.batch_execute("ALTER TABLE notes ROW_FORMAT = COMPACT").unwrap();
    connection.run_pending_migrations(queue()).unwrap();
}
