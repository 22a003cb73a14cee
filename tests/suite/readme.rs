//! The README's program compiles and runs as it is pasted: in a new project, with the packages that the README adds. For the
//! other databases, it does so with the changes of the README's table.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use diesel::connection::SimpleConnection;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use queueable::{Migrations, Queueable};

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

/// What `cargo new` and `cargo add` write, with any version: `Cargo.lock` has the versions.
fn manifest(commands: &str) -> String {
    let dependency = |added: &str| {
        let (name, features) = added.split_once(" --features ").unwrap_or((added, ""));
        let features: Vec<_> = features.split(',').filter(|feature| !feature.is_empty()).collect();
        format!("{name} = {{ version = \"*\", features = {features:?} }}\n")
    };
    let added: String = commands.lines().filter_map(|line| line.strip_prefix("cargo add ")).map(dependency).collect();
    let package = "[package]\nname = \"payments\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n";
    package.to_owned() + &added
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

/// A new project beside the others that the tests have built, so that it need not build the libraries again.
struct Project {
    folder: tempfile::TempDir,
    /// To cargo, projects of one name are one project, which is built again only if its files are younger than its
    /// program. So there is one project at a time.
    _lock: fs::File,
}

impl Project {
    fn new(manifest: &str, program: &str) -> Self {
        fs::create_dir_all(target()).unwrap();
        let lock = fs::File::create(target().join("one_at_a_time")).unwrap();
        lock.lock().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).display();
        // The packages as they are here, with the versions of everything else that the tests have.
        let here = format!(
            "\n[patch.crates-io]\nqueueable = {{ path = \"{root}\" }}\nqueueable-core = {{ path = \"{root}/queue-core\" }}\n\
             queueable-derive = {{ path = \"{root}/queue-derive\" }}\n\n[profile.dev]\ndebug = false\n"
        );
        fs::write(folder.path().join("Cargo.toml"), manifest.to_owned() + &here).unwrap();
        fs::copy(format!("{root}/Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        fs::write(folder.path().join("src/main.rs"), program).unwrap();
        Project { folder, _lock: lock }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Builds and runs the program, and returns what it prints.
    fn run(&self, url: &str) -> String {
        let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["run", "--offline", "--quiet"])
            .current_dir(self.path())
            .env("CARGO_TARGET_DIR", target())
            .env("DATABASE_URL", url)
            // What cargo has set for the tests is not for this project.
            .env_remove("CARGO_MANIFEST_DIR")
            .env_remove("RUSTFLAGS")
            .env_remove("RUSTC_BOOTSTRAP")
            .output()
            .unwrap();
        let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{out}{error}");
        // As pasted, and without a warning.
        assert_eq!(error, "");
        out
    }
}

/// The target directory of such projects: in that of the tests, which may be in use.
fn target() -> PathBuf {
    let program = env::current_exe().unwrap();
    program.ancestors().nth(3).expect("target/debug/deps/<program>").join("tests/projects")
}

#[test]
fn the_readmes_program_runs_as_it_is_pasted() {
    let (manifest, program) = pasted();
    let project = Project::new(&manifest, &program);
    let database = Database::new();
    assert_eq!(project.run(database.url()), "charged: 1\npayments and their tries: [(1, 1)]\n");
    assert_eq!(project.run(database.url()), "charged: 1\npayments and their tries: [(1, 1), (2, 1)]\n");
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
    let project = Project::new(&manifest, &format!("type Db = {connection};\n{EMBEDDED}"));
    let migrations: Migrations<<Conn as Connection>::Backend> = Migrations::new().entity::<Payment>();
    let written = migrations.write_to(project.path().join("migrations")).unwrap().len();
    let bank = crate::suite::bank::Bank::before_the_queue();
    assert_eq!(project.run(bank.database.url()), format!("{written} {written} {written}\n"));
    let connection = &mut bank.connect();
    queueable::assert_schema!(connection, Payment);
    // Nothing is left over that would keep the application's next program from starting.
    connection.batch_execute("INSERT INTO payments (company_id, amount_cents) VALUES (1, 1)").unwrap();
    assert_eq!(Payment::queue().pending().count(connection).unwrap(), 0);
}
