//! A file of this process that others can read when the process is dead: held under an exclusive lock, which ends with
//! the process however it ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::owner::private;
use super::record::{Entry, header};

/// How the files are named; what is named otherwise is none of ours.
pub(crate) const SUFFIX: &str = "flight";

/// A record file of our own. It is removed with the value.
#[derive(Debug)]
pub(crate) struct Flight {
    file: File,
    path: PathBuf,
    /// The bytes before the first entry.
    header: u64,
    clear: bool,
    text: String,
}

impl Flight {
    /// Creates a file in `directory` and locks it.
    pub(crate) fn create(directory: &Path, database: &str) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let header = header(database);
        // Between the creation and the lock somebody may take the file for a dead one, and remove it.
        for _ in 0..100 {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            // The random part tells apart processes with one id, in containers that share a directory.
            let name = format!("{}-{:016x}-{number}.{SUFFIX}", std::process::id(), fastrand::u64(..));
            let path = directory.join(name);
            // Appending: one call writes, wherever the last one ended.
            let mut file = private(OpenOptions::new().append(true).create_new(true)).open(&path)?;
            match file.try_lock() {
                Ok(()) if path.exists() => {
                    file.write_all(header.as_bytes())?;
                    return Ok(Flight { file, path, header: header.len() as u64, clear: true, text: String::new() });
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    let _ = fs::remove_file(&path);
                    return Err(error);
                }
            }
        }
        Err(io::Error::other("every file that is created there is locked by somebody else at once"))
    }

    /// The file's name.
    pub(crate) fn name(&self) -> Option<&std::ffi::OsStr> {
        self.path.file_name()
    }

    /// Writes these entries in the place of what is there. It is not forced to the disk: what was written outlives the
    /// process in the system's cache.
    pub(crate) fn write(&mut self, entries: &[Entry]) -> io::Result<()> {
        self.clear()?;
        self.text.clear();
        entries.iter().for_each(|entry| entry.push(&mut self.text));
        self.clear = entries.is_empty();
        self.file.write_all(self.text.as_bytes())
    }

    /// Removes the entries.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        if !self.clear {
            self.file.set_len(self.header)?;
            self.clear = true;
        }
        Ok(())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Under the lock still, so that nobody takes it for a dead process's.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::Fence;
    use crate::status::Status;

    fn entry(key: &str) -> Entry {
        Entry::new("payments.status", key, Fence { status: Status::NotAttempted, try_count: 0 }, false)
    }

    #[test]
    fn a_record_holds_what_is_in_the_air_and_is_gone_with_its_owner() {
        let directory = std::env::temp_dir().join(format!("queueable-flight-test-{:x}", fastrand::u64(..)));
        fs::create_dir(&directory).unwrap();
        let mut flight = Flight::create(&directory, "shop").unwrap();
        let read = |flight: &Flight| super::super::record::read(&fs::read(&flight.path).unwrap(), "shop").unwrap();
        for key in ["1", "2"] {
            flight.write(&[entry(key)]).unwrap();
            assert_eq!(read(&flight), [entry(key)]);
            flight.clear().unwrap();
            assert_eq!(read(&flight), []);
        }
        flight.write(&[entry("3")]).unwrap();
        flight.write(&[entry("4"), entry("5")]).unwrap();
        assert_eq!(read(&flight), [entry("4"), entry("5")]);
        assert!(matches!(File::open(&flight.path).unwrap().try_lock(), Err(TryLockError::WouldBlock)));
        drop(flight);
        // It fails unless it is empty.
        fs::remove_dir(&directory).unwrap();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error_and_the_record_is_written_again_later() {
        let open = || OpenOptions::new().append(true).open("/dev/full").unwrap();
        let mut flight = Flight {
            file: open(),
            path: PathBuf::from("/nowhere/at/all"),
            header: 0,
            clear: true,
            text: String::new(),
        };
        let error = flight.write(&[entry("1")]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!flight.clear, "half a record may be there");
    }
}
