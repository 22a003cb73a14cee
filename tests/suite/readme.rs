//! The README's program compiles and runs as it is pasted: in a new project, with the packages that the README adds. For the
//! other databases, it does so with the changes of the README's table.

#[path = "../project/mod.rs"]
mod project;

use std::fs;
use std::path::Path;

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use queueable::{Migrations, Queueable};

use self::project::{Project, manifest};
use crate::db::{self, Conn, Database};
use crate::suite::bank::Payment;

/// Read when the tests run, so that a change of the text does not compile them again.
fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// The `Cargo.toml` that the README's commands make, and its program, both as they are for this database.
fn pasted() -> (String, String) {
    let column = match db::NAME {
        "postgres" => 2,
        "mysql" => 3,
        _ => 1,
    };
    let (commands, program) = (block("sh", "cargo add"), block("rust", "fn main()"));
    let changed = |text: String, (from, to): (String, String)| {
        assert_eq!(text.matches(&from).count(), 1, "`{from}` stands once in the commands or in the program");
        text.replacen(&from, &to, 1)
    };
    let (of_commands, of_program) = changes(column).into_iter().partition(|(from, _)| from.starts_with("--features"));
    let commands = Vec::into_iter(of_commands).fold(commands, changed);
    (manifest(&commands), Vec::into_iter(of_program).fold(program, changed))
}

/// What the README's table puts in the place of what: the cells in backquotes of SQLite's column and of this one.
fn changes(column: usize) -> Vec<(String, String)> {
    let readme = readme();
    let rows = readme.lines().skip_while(|line| !line.starts_with("| | SQLite |")).skip(2);
    let cell = |row: &str, column: usize| {
        let cell = row.trim_matches('|').split('|').nth(column).expect("four cells").trim();
        cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`')).map(str::to_owned)
    };
    let rows = rows.take_while(|line| line.starts_with('|'));
    let changes: Vec<_> = rows.filter_map(|row| Some((cell(row, 1)?, cell(row, column)?))).collect();
    assert_eq!(changes.len(), 5, "{changes:?}");
    changes
}

/// The README's block of a language that contains a text.
fn block(language: &str, text: &str) -> String {
    let readme = readme();
    let mut lines = readme.lines();
    while let Some(line) = lines.next() {
        if line.strip_prefix("```").is_some_and(|word| word.split(',').next() == Some(language)) {
            let block: String =
                lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
            if block.contains(text) {
                return block;
            }
        }
    }
    panic!("the README has no block of {language} with `{text}`")
}

/// Builds and runs the program, and returns what it prints.
fn run(project: &Project, url: &str) -> String {
    project.cargo("run --quiet", url)
}

#[test]
fn the_readmes_program_runs_as_it_is_pasted() {
    let (manifest, program) = pasted();
    let project = Project::new(&manifest, &[("src/main.rs", &program)]);
    let database = Database::new();
    assert_eq!(run(&project, database.url()), "charged: 1\npayments and their tries: [(1, 1)]\n");
    assert_eq!(run(&project, database.url()), "charged: 1\npayments and their tries: [(1, 1), (2, 1)]\n");
    let booked = sql::<BigInt>("SELECT count(*) FROM ledger").get_result::<i64>(&mut database.connect());
    assert_eq!(booked, Ok(2));
}

/// Runs, reverts and redoes the migrations that are compiled into it.
const EMBEDDED: &str = r#"
use diesel::prelude::*;
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

fn main() {
    let connection = &mut Db::establish(&std::env::var("DATABASE_URL").unwrap()).unwrap();
    let run = connection.run_pending_migrations(MIGRATIONS).unwrap().len();
    let reverted = connection.revert_all_migrations(MIGRATIONS).unwrap().len();
    let redone = connection.run_pending_migrations(MIGRATIONS).unwrap().len();
    println!("{run} {reverted} {redone}");
}
"#;

#[test]
fn written_folders_can_be_embedded() {
    let (manifest, _) = pasted();
    let connection = match db::NAME {
        "postgres" => "PgConnection",
        "mysql" => "MysqlConnection",
        _ => "SqliteConnection",
    };
    let project = Project::new(&manifest, &[("src/main.rs", &format!("type Db = {connection};\n{EMBEDDED}"))]);
    let migrations: Migrations<<Conn as Connection>::Backend> = Migrations::new().entity::<Payment>();
    let written = migrations.write_to(project.path().join("migrations")).unwrap().len();
    let bank = crate::suite::bank::Bank::before_the_queue();
    assert_eq!(run(&project, bank.database.url()), format!("{written} {written} {written}\n"));
    let connection = &mut bank.connect();
    queueable::assert_schema!(connection, Payment);
    // Nothing is left over that would keep the application's next program from starting.
    connection.batch_execute("INSERT INTO payments (company_id, amount_cents) VALUES (1, 1)").unwrap();
    assert_eq!(Payment::queue().pending().count(connection).unwrap(), 0);
}
