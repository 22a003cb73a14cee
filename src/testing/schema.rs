//! What tests say of the schema: that all migrations of the queues are written.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::Migrations;
use crate::bounds::QueueBackend;

/// Asserts that a directory of migrations has all that the queues need: that [`Migrations::write_to`] would write nothing more.
///
/// It is for applications that keep the queues' migrations as folders, for the diesel CLI or for `embed_migrations!`. It fails
/// when an attribute was added to an entity and nobody has written its migration. It writes nothing into the directory, and needs
/// no database. Cargo runs tests in the folder of the package, so `"migrations"` is the package's.
///
/// [`assert_schema!`](crate::assert_schema) tells whether the database has what the folders make.
///
/// ```
/// # use diesel::prelude::*;
/// use queueable::testing::assert_migrations_written;
/// use queueable::{Migrations, Queueable};
///
/// # diesel::table! { payments (id) { id -> BigInt, } }
/// # #[derive(Queryable, Selectable, Queueable)] struct Payment { id: i64 }
/// fn queues() -> Migrations<diesel::sqlite::Sqlite> {
///     Migrations::new().entity::<Payment>()
/// }
///
/// # let folder = tempfile::tempdir()?;
/// # let migrations = folder.path();
/// queues().write_to(migrations)?; // for each release, by hand
/// // #[test]
/// assert_migrations_written(migrations, &queues());
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Panics
///
/// If something is missing. The message has the SQL of it. Also if the directory cannot be read, or if an entity is
/// [adopted](Migrations::adopt), of which no folder can be written.
#[track_caller]
pub fn assert_migrations_written<DB: QueueBackend>(directory: impl AsRef<Path>, migrations: &Migrations<DB>) {
    let directory = directory.as_ref();
    match missing(directory, migrations) {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => panic!(
            "{} lacks migrations of the queues: let `Migrations::write_to` write them, and commit them. It would write\n{}",
            directory.display(),
            missing.concat()
        ),
        Err(error) => panic!("the migrations in {} cannot be compared: {error}", directory.display()),
    }
}

/// Returns the SQL of the folders that are not written, each with the folder's name.
fn missing<DB: QueueBackend>(directory: &Path, migrations: &Migrations<DB>) -> io::Result<Vec<String>> {
    let copy = tempfile::tempdir()?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let sql = match fs::read(entry.path().join("up.sql")) {
            // A file, or a folder of something else.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            sql => sql?,
        };
        let folder = copy.path().join(entry.file_name());
        fs::create_dir(&folder)?;
        fs::write(folder.join("up.sql"), sql)?;
    }
    let told = |folder: PathBuf| {
        let sql = fs::read_to_string(folder.join("up.sql"))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(format!("{name}/up.sql:\n{sql}"))
    };
    migrations.write_to(copy.path())?.into_iter().map(told).collect()
}
