//! The queues' migrations as folders: one for each release of an application, which Diesel runs, redoes and reverts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use queueable::{Migrations, Queueable, Stage};

use crate::db::{self, BIGINT, Conn, Database, SHAPE};
use crate::suite::bank::{Bank, Payment, book};

type Backend = <Conn as diesel::Connection>::Backend;

fn queue() -> Migrations<Backend> {
    Migrations::new().entity::<Payment>()
}

fn files(directory: &Path) -> FileBasedMigrations {
    FileBasedMigrations::from_path(directory).unwrap()
}

/// Returns the columns and indexes of a table from the catalogue.
fn shape(connection: &mut Conn, table: &str) -> Vec<String> {
    sql::<Text>(&SHAPE.replace("$table", table)).load(connection).unwrap()
}

/// Returns the names of folders without their versions.
fn titles(folders: &[PathBuf]) -> Vec<String> {
    let title = |folder: &PathBuf| {
        let name = folder.file_name().unwrap().to_str().unwrap();
        name.split_once('_').unwrap().1.to_owned()
    };
    folders.iter().map(title).collect()
}

/// Keeps only the names of folders that this database has: only PostgreSQL builds an index by a statement that has to
/// stand alone.
fn expected(together: &[&str], alone: &[&str]) -> Vec<String> {
    let alone = if db::NAME == "postgres" { alone } else { &[] };
    together.iter().chain(alone).map(|title| (*title).to_owned()).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
#[allow(dead_code)]
enum Step {
    Ask,
    Tell,
}

/// Declares tables `shop_1` and so on, an entity on each, and a source with all of them.
macro_rules! shop {
    ($($module:ident $table:ident $(($($option:tt)*))?;)*) => {
        $(mod $module {
            #[allow(unused_imports)]
            use super::*;

            diesel::table! { $table (id) { id -> BigInt, amount -> BigInt, } }

            #[derive(Queryable, Selectable, Queueable)]
            #[diesel(table_name = $table)]
            #[queue(module = queue_columns $(, $($option)*)?)]
            #[allow(dead_code)]
            pub(super) struct Order {
                id: i64,
                amount: i64,
            }
        })*

        fn shop() -> Migrations<Backend> {
            Migrations::new()$(.entity::<$module::Order>())*
        }

        const TABLES: &[&str] = &[$(stringify!($table)),*];
    };
}

shop! {
    one shop_1 (priority);
    two shop_2 (stage = Step);
    three shop_3 (periodic);
    four shop_4 (timestamps(created, updated, begin, end));
    five shop_5 (rerun_on_change(amount));
    six shop_6 (occasion);
    seven shop_7 (on_success = delete, exclusive);
    eight shop_8 (wake = notify);
    nine shop_9;
}

/// The shop's first entity as it was before it had options.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = one::shop_1)]
#[queue(module = plain_queue)]
#[allow(dead_code)]
struct Plain {
    id: i64,
}

/// The same with another option.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = one::shop_1)]
#[queue(module = timed_queue, timestamps(begin))]
#[allow(dead_code)]
struct Timed {
    id: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Stage)]
#[allow(dead_code)]
enum OtherStep {
    Listen,
    Ask,
    Tell,
}

/// The shop's second entity with another first stage.
#[derive(Queryable, Selectable, Queueable)]
#[diesel(table_name = two::shop_2)]
#[queue(module = staged_queue, stage = OtherStep)]
#[allow(dead_code)]
struct Staged {
    id: i64,
}

/// A database with the shop's tables.
fn with_shop() -> Database {
    let database = Database::new();
    for table in TABLES {
        let create = format!("CREATE TABLE {table} (id {BIGINT} PRIMARY KEY NOT NULL, amount {BIGINT} NOT NULL)");
        database.connect().batch_execute(&create).unwrap();
    }
    database
}

#[test]
fn nine_entities_with_options_are_one_release_and_nothing_is_written_twice() {
    let directory = tempfile::tempdir().unwrap();
    let written = shop().block_writers().write_to(directory.path()).unwrap();
    let readers_go_on = if db::NAME == "postgres" {
        &["queue_index_order_and_stages_of_shop_1_shop_2_shop_3_and_6_more"][..]
    } else {
        &[]
    };
    let mut all = vec!["queue_of_shop_1_shop_2_shop_3_and_6_more"];
    all.extend(readers_go_on);
    assert_eq!(titles(&written), all);
    assert_eq!(shop().block_writers().write_to(directory.path()).unwrap(), [""; 0].map(PathBuf::from));
    // Not even in the other way.
    assert_eq!(shop().write_to(directory.path()).unwrap(), [""; 0].map(PathBuf::from));

    // With `CONCURRENTLY`, each index has to stand alone.
    let directory = tempfile::tempdir().unwrap();
    let written = shop().write_to(directory.path()).unwrap();
    assert_eq!(written.len(), if db::NAME == "postgres" { 1 + 9 + 3 } else { 1 }, "{written:?}");
    let versions: BTreeSet<_> =
        written.iter().map(|path| path.file_name().unwrap().to_str().unwrap().split('_').next().unwrap()).collect();
    assert_eq!(versions.len(), written.len(), "{versions:?}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), written.len());
}

#[test]
fn a_release_is_run_redone_and_reverted() {
    for source in [shop, || shop().block_writers()] {
        let directory = tempfile::tempdir().unwrap();
        let written = source().write_to(directory.path()).unwrap();
        let shapes = |connection: &mut Conn| TABLES.iter().map(|table| shape(connection, table)).collect::<Vec<_>>();
        let database = with_shop();
        let mut connection = database.connect();
        let before = shapes(&mut connection);
        // As `diesel migration run`.
        let run = connection.run_pending_migrations(files(directory.path())).unwrap();
        assert_eq!(run.len(), written.len());
        assert_eq!(connection.run_pending_migrations(files(directory.path())).unwrap().len(), 0);
        // As `diesel migration redo`, once and for all.
        let after = shapes(&mut connection);
        connection.revert_last_migration(files(directory.path())).unwrap();
        assert_ne!(shapes(&mut connection), after);
        connection.run_pending_migrations(files(directory.path())).unwrap();
        assert_eq!(shapes(&mut connection), after);
        connection.revert_all_migrations(files(directory.path())).unwrap();
        assert_eq!(shapes(&mut connection), before);
        connection.run_pending_migrations(files(directory.path())).unwrap();
        // The program finds nothing to do, and nothing to complain of.
        let program = with_shop();
        program.connect().run_pending_migrations(shop()).unwrap();
        assert_eq!(shapes(&mut program.connect()), after);
        let connection = &mut connection;
        queueable::assert_schema!(connection, one::Order, two::Order, three::Order, four::Order, five::Order);
        queueable::assert_schema!(connection, six::Order, seven::Order, eight::Order, nine::Order);
        // As `diesel migration revert --all`.
        connection.revert_all_migrations(files(directory.path())).unwrap();
        assert_eq!(shapes(connection), before);
    }
}

#[test]
fn an_option_that_is_added_later_is_one_more_release() {
    let directory = tempfile::tempdir().unwrap();
    let first = || Migrations::<Backend>::new().entity::<Plain>().entity::<nine::Order>();
    let written = first().write_to(directory.path()).unwrap();
    let indexes = ["queue_index_of_shop_1", "queue_index_of_shop_9"];
    assert_eq!(titles(&written), expected(&["queue_of_shop_1_and_shop_9"], &indexes));
    // The attributes change, and an entity is new.
    let second = || first().entity::<Timed>().entity::<six::Order>();
    let written = second().write_to(directory.path()).unwrap();
    assert_eq!(titles(&written), expected(&["queue_of_shop_1_and_shop_6"], &["queue_index_of_shop_6"]));
    // Options alone.
    let third = || second().entity::<one::Order>();
    let written = third().write_to(directory.path()).unwrap();
    let together = match db::NAME {
        "postgres" => "queue_priority_of_shop_1",
        "mysql" => "queue_priority_pending_and_order_of_shop_1",
        _ => "queue_priority_and_order_of_shop_1",
    };
    assert_eq!(titles(&written), expected(&[together], &["queue_order_of_shop_1"]));
    assert!(third().write_to(directory.path()).unwrap().is_empty());

    let database = with_shop();
    let mut connection = database.connect();
    let before = shape(&mut connection, "shop_1");
    connection.run_pending_migrations(files(directory.path())).unwrap();
    let connection = &mut connection;
    queueable::assert_schema!(connection, Plain, Timed, one::Order, six::Order, nine::Order);
    connection.revert_all_migrations(files(directory.path())).unwrap();
    assert_eq!(shape(connection, "shop_1"), before);
}

/// The start tells how the default changes. A second column of this name could not be added.
#[test]
fn another_first_stage_is_no_further_release() {
    let directory = tempfile::tempdir().unwrap();
    assert!(!Migrations::<Backend>::new().entity::<two::Order>().write_to(directory.path()).unwrap().is_empty());
    assert!(Migrations::<Backend>::new().entity::<Staged>().write_to(directory.path()).unwrap().is_empty());
}

#[test]
fn what_was_written_is_known_by_its_line_alone() {
    let directory = tempfile::tempdir().unwrap();
    let written = queue().write_to(directory.path()).unwrap();
    // The owner puts everything into one folder of an own name, and writes other SQL.
    let own = directory.path().join("2026-01-02-030405_payments_become_a_queue");
    fs::create_dir(&own).unwrap();
    let mut all = String::new();
    for folder in written {
        let sql = fs::read_to_string(folder.join("up.sql")).unwrap();
        let kept = sql.lines().filter(|line| line.starts_with("-- queueable ")).collect::<Vec<_>>();
        assert!(!kept.is_empty(), "{sql}");
        all += &format!("{}\r\n/* done elsewhere */ SELECT 1;\r\n", kept.join("\r\n"));
        fs::remove_dir_all(folder).unwrap();
    }
    fs::write(own.join("up.sql"), all).unwrap();
    // Files, and folders of something else, are left alone.
    fs::write(directory.path().join("README"), "no migration").unwrap();
    fs::create_dir(directory.path().join(".keep")).unwrap();
    assert!(queue().write_to(directory.path()).unwrap().is_empty());
}

#[test]
fn written_folders_do_the_same_as_a_direct_run() {
    let direct = shape(&mut Bank::new().connect(), "payments");
    let directory = tempfile::tempdir().unwrap();
    let written = queue().write_to(directory.path()).unwrap();
    assert_eq!(titles(&written), expected(&["queue_of_payments"], &["queue_index_of_payments"]));
    let bank = Bank::before_the_queue();
    let mut connection = bank.connect();
    let before = shape(&mut connection, "payments");
    connection.run_pending_migrations(files(directory.path())).unwrap();
    assert_eq!(shape(&mut connection, "payments"), direct);
    bank.enqueue([1]);
    assert_eq!(bank.run(book).succeeded, 1);
    // So the direct run finds nothing to do.
    connection.run_pending_migrations(queue()).unwrap();
    assert_eq!(shape(&mut connection, "payments"), direct);
    connection.batch_execute("DELETE FROM __diesel_schema_migrations WHERE version LIKE 'queueable%'").unwrap();
    connection.revert_all_migrations(files(directory.path())).unwrap();
    assert_eq!(shape(&mut connection, "payments"), before);
}

#[test]
fn a_refused_call_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let source = Migrations::<Backend>::new().entity::<Plain>().adopt::<Payment>();
    assert!(source.write_to(directory.path()).is_err());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn half_a_folder_of_a_call_that_was_interrupted_does_not_count() {
    let directory = tempfile::tempdir().unwrap();
    for folder in queue().write_to(directory.path()).unwrap() {
        let name = folder.file_name().unwrap().to_str().unwrap();
        fs::rename(&folder, directory.path().join(format!(".{name}"))).unwrap();
    }
    let written = queue().write_to(directory.path()).unwrap();
    assert_eq!(titles(&written), expected(&["queue_of_payments"], &["queue_index_of_payments"]));
    assert!(written.iter().all(|folder| folder.join("up.sql").exists() && folder.join("down.sql").exists()));
}
