//! Which database is open.

use std::fs::Metadata;

use crate::database::{Database, file_of};

/// Tells the file of an address of SQLite from others that had its name; `None` for servers, and if there is no file.
pub(super) fn identity<C: Database>(address: &str) -> Option<(u64, u64)> {
    if !C::SCHEMES.is_empty() {
        return None;
    }
    std::fs::metadata(file_of(address)).ok().map(|metadata| of(&metadata))
}

#[cfg(unix)]
fn of(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;

    (metadata.dev(), metadata.ino())
}

/// Other systems do not let anybody remove a file that is open.
#[cfg(not(unix))]
fn of(_: &Metadata) -> (u64, u64) {
    (0, 0)
}
