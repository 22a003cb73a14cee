//! What SQLite can say of its own health, and what its file says.

use std::fs;
use std::path::Path;

use diesel::sql_types::Untyped;
use diesel::sqlite::{Sqlite, SqliteConnection};

use crate::backend::examination::{Check, Examination, Explained, Figures};
use crate::backend::setup::SessionSetup;
use crate::backend::statement::{Statement, load};
use crate::ill::{Ill, IllKind, Severity};

use diesel::prelude::*;

/// The size of a write-ahead log that no checkpoint has reset for long: SQLite makes one at 4 MiB by default. A guess.
const LARGE_WAL: u64 = 64 << 20;

impl Examination for SqliteConnection {
    const OF_DATABASE: &'static [Check] = OF_DATABASE;

    const OF_TABLE: &'static [Check] = &[];

    const VERSION: &'static str = VERSION;

    const SETTINGS: &'static [&'static str] = SETTINGS;

    const SIZES: &'static str = SIZES;

    const EXPLAINS_RIGHTS: bool = false;

    fn plan(&mut self, statement: &dyn Statement<Sqlite>) -> QueryResult<String> {
        load::<Untyped, Figures, _>(self, &Explained("EXPLAIN QUERY PLAN ", statement)).map(Figures::lines)
    }

    fn beyond_queries(&mut self) -> QueryResult<Vec<Ill>> {
        let file = self.database_name()?;
        if file.is_empty() {
            let problem = "the database has no file, so no other connection sees it".to_owned();
            let mend = "open a file that several connections share";
            return Ok(vec![Ill::new(IllKind::JournalMode, Severity::Error, problem, mend)]);
        }
        let mut ills = Vec::new();
        if fs::metadata(&file).is_ok_and(|found| found.permissions().readonly()) {
            let problem = format!("the file {file} may not be written");
            ills.push(Ill::new(
                IllKind::ReadOnly,
                Severity::Error,
                problem,
                "let the process write the file and its directory",
            ));
        }
        let wal = fs::metadata(format!("{file}-wal")).map_or(0, |wal| wal.len());
        if wal > LARGE_WAL {
            let problem = format!(
                "the write-ahead log has {} MiB, which each reader searches: a long read, or a high wal_autocheckpoint, keeps \
                 checkpoints from resetting it",
                wal >> 20
            );
            ills.push(Ill::new(IllKind::LargeWal, Severity::Warning, problem, "PRAGMA wal_checkpoint(TRUNCATE)"));
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if let Some(kind) = network_file_system(&mounts, Path::new(&file)) {
            let problem = format!(
                "the file {file} is on a file system of the type {kind}, on which locks and shared memory may not work"
            );
            let mend = "move the file to a disk of the machine on which all its processes run";
            ills.push(Ill::new(IllKind::NetworkFileSystem, Severity::Error, problem, mend));
        }
        Ok(ills)
    }
}

/// Returns the type of the file system with this file, if it is on another machine. `mounts`: as Linux lists them.
fn network_file_system<'m>(mounts: &'m str, file: &Path) -> Option<&'m str> {
    const NETWORK: [&str; 12] = [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "glusterfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "virtiofs",
    ];
    let mount = |line: &'m str| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?.replace(r"\040", " "), words.next()?))
    };
    let of_file = mounts.lines().filter_map(mount).filter(|(place, _)| file.starts_with(place));
    // Of two mounts on one place, the later one is seen.
    let (_, kind) = of_file.max_by_key(|(place, _)| place.len())?;
    NETWORK.contains(&kind).then_some(kind)
}

const OF_DATABASE: &[Check] = &[
    Check {
        kind: IllKind::JournalMode,
        severity: Severity::Warning,
        // A database without a file is another ill, which `beyond_queries` finds.
        sql: "SELECT journal_mode FROM pragma_journal_mode WHERE journal_mode <> 'wal' \
              AND EXISTS (SELECT 1 FROM pragma_database_list WHERE name = 'main' AND file <> '')",
        problem: "journal_mode is {1}: readers and the writer wait for each other until the first poller switches to WAL",
        mend: "PRAGMA journal_mode = WAL",
    },
    Check {
        kind: IllKind::Durability,
        severity: Severity::Error,
        sql: "SELECT synchronous FROM pragma_synchronous WHERE synchronous = 0",
        problem: "synchronous is OFF on this connection: a crash of the machine may damage the database",
        mend: "PRAGMA synchronous = FULL",
    },
    Check {
        kind: IllKind::Timeouts,
        severity: Severity::Warning,
        sql: "SELECT timeout FROM pragma_busy_timeout WHERE timeout < {short_seconds} * 1000",
        problem: "busy_timeout is {1} ms on this connection: while a worker writes, others fail with `database is locked`",
        mend: "PRAGMA busy_timeout = 5000",
    },
    Check {
        kind: IllKind::ReadOnly,
        severity: Severity::Note,
        sql: "SELECT query_only FROM pragma_query_only WHERE query_only <> 0",
        problem: "query_only is on for this connection, which can neither enqueue nor operate",
        mend: "PRAGMA query_only = 0",
    },
    Check {
        kind: IllKind::LockingMode,
        severity: Severity::Error,
        sql: "SELECT locking_mode FROM pragma_locking_mode WHERE schema = 'main' AND locking_mode = 'exclusive'",
        problem: "locking_mode is {1}: this connection keeps all others out of the file",
        mend: "PRAGMA main.locking_mode = NORMAL",
    },
    Check {
        kind: IllKind::FreePages,
        severity: Severity::Note,
        sql: "SELECT freelist_count, page_count FROM pragma_freelist_count, pragma_page_count \
              WHERE page_count > {small_file_pages} AND freelist_count * 2 > page_count",
        problem: "{1} of the file's {2} pages are free",
        mend: "VACUUM",
    },
    // The first version that drops a column, as a revert does.
    Check {
        kind: IllKind::OldVersion,
        severity: Severity::Warning,
        sql: "SELECT version FROM (SELECT sqlite_version() AS version) \
              WHERE version LIKE '3._.%' OR version LIKE '3.1_.%' OR version LIKE '3.2_.%' OR version GLOB '3.3[0-4].*'",
        problem: "the version of SQLite is {1}, which cannot drop columns",
        mend: "link SQLite 3.35 or later, as the feature `bundled` does",
    },
];

const VERSION: &str = "SELECT sqlite_version()";

const SETTINGS: &[&str] = &[
    "SELECT 'journal_mode', journal_mode FROM pragma_journal_mode UNION ALL SELECT 'synchronous', synchronous FROM pragma_synchronous \
     UNION ALL SELECT 'busy_timeout', timeout FROM pragma_busy_timeout UNION ALL SELECT 'query_only', query_only FROM pragma_query_only \
     UNION ALL SELECT 'locking_mode', locking_mode FROM pragma_locking_mode WHERE schema = 'main' \
     UNION ALL SELECT 'foreign_keys', foreign_keys FROM pragma_foreign_keys UNION ALL SELECT 'encoding', encoding FROM pragma_encoding \
     UNION ALL SELECT 'auto_vacuum', auto_vacuum FROM pragma_auto_vacuum UNION ALL SELECT 'cache_size', cache_size FROM pragma_cache_size \
     UNION ALL SELECT 'page_size', page_size FROM pragma_page_size UNION ALL SELECT 'page_count', page_count FROM pragma_page_count \
     UNION ALL SELECT 'freelist_count', freelist_count FROM pragma_freelist_count",
];

/// To measure a table, SQLite would read it.
const SIZES: &str = "SELECT 'file', page_count * page_size, NULL FROM pragma_page_count, pragma_page_size";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_that_holds_the_file_decides() {
        let mounts = "/dev/sda1 / ext4 rw 0 0\nserver:/export /srv/my\\040data nfs4 rw 0 0\n/dev/sdb1 /srv/my\\040data/local xfs rw 0 0\n";
        let kind = |file| network_file_system(mounts, Path::new(file));
        assert_eq!(kind("/srv/my data/app.sqlite"), Some("nfs4"));
        assert_eq!(kind("/srv/my data/local/app.sqlite"), None);
        assert_eq!(kind("/srv/my database.sqlite"), None);
    }
}
