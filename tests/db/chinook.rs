//! The [Chinook](https://github.com/lerocha/chinook-database) sample: tables of an application without queues.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Reads a backend's script without the lines that create and enter another database, so that `batch_execute` fills the
/// test's database. `None` if the data is not beside the repository.
pub(super) fn script(backend: &str) -> Option<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/chinook");
    let file = directory.join(backend).with_extension("sql");
    match fs::read_to_string(&file) {
        Ok(script) => Some(script.lines().filter(|line| !is_about_databases(line)).collect::<Vec<_>>().join("\n")),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{}: {error}", file.display()),
    }
}

fn is_about_databases(line: &str) -> bool {
    ["DROP DATABASE", "CREATE DATABASE", "USE ", "\\c "].iter().any(|start| line.starts_with(start))
}
