//! The trigger comes and goes with the queue, and a poller does not start without it.

use std::sync::Barrier;
use std::thread;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use queueable::{Error, HandlerResult, Message, Migrations, Outcome, Queueable, Status};

use super::{Document, Library, documents};
use crate::db::{BIGINT, Conn, Database, TEXT, TRIGGERS};

/// The same queue before its attributes named the body, and before they named any column.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = documents)]
#[queue(module = titled_queue, rerun_on_change(title))]
struct Titled {
    #[expect(dead_code, reason = "only its migration is of interest")]
    id: i64,
}

#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = documents)]
#[queue(module = plain_queue)]
struct Plain {
    #[expect(dead_code, reason = "only its migration is of interest")]
    id: i64,
}

/// A second queue on the documents.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = documents)]
#[queue(prefix = "mail_", rerun_on_change(title), timestamps(updated))]
struct Mail {
    #[expect(dead_code, reason = "only its migration is of interest")]
    id: i64,
}

diesel::table! {
    #[sql_name = "the \"pages\""]
    pages (book, number) {
        book -> BigInt,
        number -> Text,
        #[sql_name = "in `print`"]
        print -> Nullable<Text>,
    }
}

/// A row with a key of two columns, and names that have to be quoted.
#[derive(Debug, Queryable, Selectable, Queueable)]
#[diesel(table_name = pages, primary_key(book, number))]
#[queue(rerun_on_change(print), timestamps(created))]
struct Page {
    book: i64,
    number: String,
    print: Option<String>,
}

fn done<Q>(_: &Q, _: &mut Message<'_, Conn>) -> HandlerResult {
    Ok(Outcome::Done)
}

fn triggers(connection: &mut Conn, table: &str) -> Vec<String> {
    sql::<Text>(&TRIGGERS.replace("$table", table)).load(connection).unwrap()
}

#[test]
fn the_trigger_comes_once_and_goes_with_the_queue() {
    let library = Library::new();
    let mut connection = library.connect();
    let once = triggers(&mut connection, "documents");
    assert!(!once.is_empty());
    connection.batch_execute("DELETE FROM __diesel_schema_migrations").unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Document>()).unwrap();
    assert_eq!(triggers(&mut connection, "documents"), once);
    connection.revert_last_migration(Migrations::new().entity::<Document>()).unwrap();
    assert!(triggers(&mut connection, "documents").is_empty());
    connection
        .batch_execute("INSERT INTO documents (title) VALUES ('one'); UPDATE documents SET title = 'two'")
        .unwrap();
}

#[test]
fn files_for_the_diesel_cli_do_the_same() {
    let library = Library::new();
    let mut connection = library.connect();
    connection.revert_last_migration(Migrations::new().entity::<Document>()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let source: Migrations<<Conn as Connection>::Backend> = Migrations::new().entity::<Document>();
    source.write_to(folder.path()).unwrap();
    let files = || FileBasedMigrations::from_path(folder.path()).unwrap();
    connection.run_pending_migrations(files()).unwrap();
    let ids = library.enqueue(["one"]);
    library.run(done);
    library.write("UPDATE documents SET body = 'new'");
    assert_eq!((library.change_count(ids[0]), library.state(ids[0]).status), (1, Status::NotAttempted));
    connection.revert_all_migrations(files()).unwrap();
    assert!(triggers(&mut connection, "documents").is_empty());
}

#[test]
fn another_list_of_columns_is_another_trigger() {
    let library = Library::new();
    let mut connection = library.connect();
    let ids = library.enqueue(["one"]);
    let before = triggers(&mut connection, "documents");
    connection.run_pending_migrations(Migrations::new().entity::<Titled>()).unwrap();
    let after = triggers(&mut connection, "documents");
    assert_eq!(after.len(), before.len());
    assert_ne!(after, before);
    library.write("UPDATE documents SET body = 'new'");
    assert_eq!(library.change_count(ids[0]), 0);
    library.write("UPDATE documents SET title = 'new'");
    assert_eq!(library.change_count(ids[0]), 1);
    connection.run_pending_migrations(Migrations::new().entity::<Plain>()).unwrap();
    assert!(triggers(&mut connection, "documents").is_empty());
}

#[test]
fn processes_that_start_together_create_it_once() {
    let library = Library::new();
    library.connect().revert_last_migration(Migrations::new().entity::<Document>()).unwrap();
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut connection = library.connect();
                barrier.wait();
                // Diesel's own table may stop the processes that come second, but the queue exists all the same.
                let _ = connection.run_pending_migrations(Migrations::new().entity::<Document>());
            });
        }
    });
    let ids = library.enqueue(["one"]);
    library.write("UPDATE documents SET body = 'new'");
    assert_eq!(library.change_count(ids[0]), 1);
    library.run(done);
    assert_eq!(library.state(ids[0]).status, Status::Success);
}

#[test]
fn two_queues_on_one_table_have_a_trigger_each() {
    let library = Library::new();
    let mut connection = library.connect();
    let both = || Migrations::new().entity::<Document>().entity::<Mail>();
    connection.run_pending_migrations(both()).unwrap();
    let ids = library.enqueue(["one"]);
    library.write("UPDATE documents SET body = 'new'");
    library.write("UPDATE documents SET title = 'new'");
    let count = mail_queue::change_count;
    assert_eq!(documents::table.select(count).get_result(&mut connection), Ok(1));
    assert_eq!(library.change_count(ids[0]), 2);
    let due = documents::table.filter(mail_queue::next_attempt_time.is_not_null());
    assert_eq!(due.filter(mail_queue::updated_time.is_not_null()).count().get_result(&mut connection), Ok(1));
    connection.revert_last_migration(both()).unwrap();
    library.write("UPDATE documents SET body = 'newer'");
    assert!(triggers(&mut connection, "documents").len() <= 2);
}

#[test]
fn a_poller_does_not_start_without_it_and_says_what_mends() {
    let library = Library::new();
    let mut connection = library.connect();
    connection.run_pending_migrations(Migrations::new().entity::<Titled>()).unwrap();
    let refused = Document::poller(library.pool(1), done::<Document>).workers(1).run_until_idle();
    let Err(Error::Unsafe(findings)) = refused else { panic!("{refused:?}") };
    assert_eq!(findings.len(), 1);
    let finding = &findings[0];
    assert!(finding.problem.contains("a change of title, body makes no row due"), "{finding}");
    connection.batch_execute(&finding.mend).unwrap();
    library.run(done);
    let ids = library.enqueue(["one"]);
    library.write("UPDATE documents SET body = 'new'");
    assert_eq!(library.change_count(ids[0]), 1);
}

#[test]
fn a_key_of_two_columns_and_names_in_quotes_are_no_matter() {
    let database = Database::new();
    let mut connection = database.connect();
    let (table, column) = (crate::db::quote("the \"pages\""), crate::db::quote("in `print`"));
    connection
        .batch_execute(&format!(
            "CREATE TABLE {table} (book {BIGINT} NOT NULL, number {TEXT} NOT NULL, {column} {TEXT}, PRIMARY KEY (book, number))"
        ))
        .unwrap();
    connection.run_pending_migrations(Migrations::new().entity::<Page>()).unwrap();
    for (book, number) in [(1, "i"), (1, "ii"), (2, "i")] {
        let values = (pages::book.eq(book), pages::number.eq(number), pages::print.eq("draft"), Page::due_now());
        diesel::insert_into(pages::table).values(values).execute(&mut connection).unwrap();
    }
    let run = || Page::poller(database.pool(3), done::<Page>).workers(1).run_until_idle().unwrap().succeeded;
    assert_eq!(run(), 3);
    diesel::update(pages::table.find((1, "i"))).set(pages::print.eq("final")).execute(&mut connection).unwrap();
    let due: Vec<(Page, i64)> = pages::table
        .filter(page_queue::next_attempt_time.is_not_null())
        .select((Page::as_select(), page_queue::change_count))
        .load(&mut connection)
        .unwrap();
    assert_eq!(due.iter().map(|(page, count)| (page.book, &*page.number, *count)).collect::<Vec<_>>(), [(1, "i", 1)]);
    assert_eq!(due[0].0.print.as_deref(), Some("final"));
    assert_eq!(run(), 1);
    let with_time = pages::table.filter(page_queue::created_time.is_not_null());
    assert_eq!(with_time.count().get_result(&mut connection), Ok(3));
}
