//! A file of this process that others read after the process has died, and its text. The process holds an exclusive lock
//! on it, which ends with the process, however that ends.
//!
//! The text has one line for the database, one for each row that is in flight or reported, and one for their end. Other
//! processes read it, even of other versions, after a crash or on a full disk. They skip what they cannot read, and a line
//! counts only if its end was written.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::crash_directory::{CrashDirectory, create_private, is_there};
use crate::row::Fence;

/// The extension of the record files. Files with any other are ignored.
pub(crate) const SUFFIX: &str = "flight";

/// How long a file grows before it is cut back. Appending a line is three times cheaper than cutting one off.
const LONGEST: usize = 64 * 1024;

/// How often the worker checks that the file still exists: cron jobs and people clean up directories.
const CHECK: Duration = Duration::from_secs(1);

/// A record file of this process. It is removed with the value.
#[derive(Debug)]
pub(crate) struct InFlightFile {
    file: File,
    path: PathBuf,
    pub(crate) directory: CrashDirectory,
    pub(crate) database: String,
    /// When the file was last known to exist.
    seen: Option<Instant>,
    /// The bytes of the first line.
    header: u64,
    /// How many bytes were written after it.
    length: usize,
    /// Whether nothing is in flight.
    clear: bool,
    /// Whether the last line may be incomplete.
    broken: bool,
    text: String,
}

impl InFlightFile {
    /// Creates a file in `directory` and locks it.
    pub(crate) fn create(directory: &CrashDirectory, database: &str) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        directory.create()?;
        let header = header(database);
        // Between the creation and the lock another process may take the file for a dead one, and remove it.
        for _ in 0..100 {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            // The random part distinguishes processes with the same id, in containers that share a directory.
            let name = format!("{}-{:016x}-{number}.{SUFFIX}", std::process::id(), fastrand::u64(..));
            let path = directory.path().join(name);
            let mut file = create_private(&path)?;
            match file.try_lock() {
                Ok(()) if is_there(&file, &path) => {
                    file.write_all(header.as_bytes())?;
                    return Ok(InFlightFile::new(file, path, directory, database, header.len() as u64));
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    let _ = fs::remove_file(&path);
                    return Err(error);
                }
            }
        }
        Err(io::Error::other("another process locks every file that is created there at once"))
    }

    fn new(file: File, path: PathBuf, directory: &CrashDirectory, database: &str, header: u64) -> Self {
        InFlightFile {
            file,
            path,
            directory: directory.clone(),
            database: database.to_owned(),
            seen: Some(Instant::now()),
            header,
            length: 0,
            clear: true,
            broken: false,
            text: String::new(),
        }
    }

    /// Creates the file, and its directory, again if it was removed. Returns whether it was.
    pub(crate) fn renew(&mut self) -> io::Result<bool> {
        self.seen = Some(Instant::now());
        let is_gone = !is_there(&self.file, &self.path);
        if is_gone {
            *self = InFlightFile::create(&self.directory, &self.database)?;
        }
        Ok(is_gone)
    }

    /// Returns the file's name.
    pub(crate) fn name(&self) -> Option<&std::ffi::OsStr> {
        self.path.file_name()
    }

    /// Replaces the entries by these. It does not force them to the disk: the system's cache outlives the process.
    pub(crate) fn write(&mut self, entries: &[Entry]) -> io::Result<()> {
        if self.seen.is_none_or(|seen| seen.elapsed() > CHECK) {
            self.renew()?;
        }
        self.text.clear();
        if !self.clear {
            self.push_end()?;
        }
        self.clear = entries.is_empty();
        entries.iter().for_each(|entry| entry.push(&mut self.text));
        self.append()
    }

    /// Removes the entries.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        if self.clear {
            return Ok(());
        }
        self.text.clear();
        self.push_end()?;
        self.append()?;
        self.clear = true;
        Ok(())
    }

    /// Appends the end of all that was in flight to the text, unless the file is to be cut back.
    fn push_end(&mut self) -> io::Result<()> {
        if self.broken || self.length > LONGEST {
            self.file.set_len(self.header)?;
            (self.broken, self.length) = (false, 0);
        } else {
            self.text.push_str(ENDED);
        }
        Ok(())
    }

    /// Writes the text with one call.
    fn append(&mut self) -> io::Result<()> {
        self.broken = true;
        self.file.write_all(self.text.as_bytes())?;
        self.length += self.text.len();
        self.broken = false;
        Ok(())
    }
}

impl Drop for InFlightFile {
    fn drop(&mut self) {
        // While the lock is still held, so that no process takes the file for a dead one's.
        let _ = fs::remove_file(&self.path);
    }
}

/// Stands at the beginning of every record, with the version of the format.
const MAGIC: &str = "queueable-flight-1";

/// Says that all rows before it have ended.
pub(crate) const ENDED: &str = "-\n";

/// A row in a record. Its texts are escaped, so that each fits on a line. They are compared, and never unescaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    queue: String,
    key: String,
    pub(crate) fence: Fence,
    /// How many times the row ended a process in which it was alone. 0: it has ended one at least, beside others.
    pub(crate) alone: u32,
}

impl Entry {
    /// Makes the entry of a row that is about to be handled.
    pub(crate) fn new(queue: &str, key: &str, fence: Fence, alone: bool) -> Self {
        // Only what a record keeps of the fence, so that the entry compares with one that was read.
        let fence = Fence::new(fence.status, fence.try_count);
        Entry { queue: escaped(queue), key: escaped(key), fence, alone: alone.into() }
    }

    pub(crate) fn is_of(&self, queue: &str) -> bool {
        self.queue == escaped(queue)
    }

    /// Tells whether both are about the same row, in any state.
    pub(crate) fn is_about(&self, other: &Entry) -> bool {
        self.queue == other.queue && self.key == other.key
    }

    /// Appends the entry's line.
    pub(crate) fn push(&self, text: &mut String) {
        let Fence { status, try_count, .. } = self.fence;
        let columns = [&self.queue, &self.key, status.as_str(), &try_count.to_string(), &self.alone.to_string()];
        text.push_str(&columns.join("\t"));
        text.push('\n');
    }

    fn read(line: &str) -> Option<Self> {
        let mut columns = line.split('\t');
        let mut next = || columns.next();
        let (queue, key) = (next()?.to_owned(), next()?.to_owned());
        let fence = Fence::new(next()?.parse().ok()?, next()?.parse().ok()?);
        let alone = next()?.parse().ok()?;
        columns.next().is_none().then_some(Entry { queue, key, fence, alone })
    }
}

/// Returns the first line, which names the database of the rows.
pub(crate) fn header(database: &str) -> String {
    format!("{MAGIC}\t{}\n", escaped(database))
}

/// Reads a record. `None`: it is not a record of this database.
pub(crate) fn read(text: &[u8], database: &str) -> Option<Vec<Entry>> {
    let text = String::from_utf8_lossy(text);
    let entries = text.strip_prefix(&header(database))?;
    // The text after the last line end is incomplete, so its row was never handled.
    let (whole, _half) = entries.rsplit_once('\n').unwrap_or_default();
    let mut open = Vec::new();
    for line in whole.lines() {
        if line == ENDED.trim_end() {
            open.clear();
        }
        open.extend(Entry::read(line));
    }
    Some(open)
}

fn escaped(text: &str) -> String {
    text.escape_default().to_string()
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::path::Path;

    use super::*;
    use crate::crash::test_directory::TestDirectory;
    use crate::row::Status;

    fn entry(key: &str) -> Entry {
        Entry::new("payments.status", key, Fence::new(Status::NotAttempted, 0), false)
    }

    #[test]
    fn a_record_holds_what_is_in_the_air_and_is_gone_with_its_owner() {
        let directory = TestDirectory::new();
        let mut in_flight_file =
            InFlightFile::create(&CrashDirectory::named(directory.path()), "shop").expect("the test's own files");
        let read = |in_flight_file: &InFlightFile| {
            super::read(&fs::read(&in_flight_file.path).expect("the test's own files"), "shop")
                .expect("the test's own files")
        };
        for key in ["1", "2"] {
            in_flight_file.write(&[entry(key)]).expect("the test's own files");
            assert_eq!(read(&in_flight_file), [entry(key)]);
            in_flight_file.clear().expect("the test's own files");
            assert_eq!(read(&in_flight_file), []);
        }
        in_flight_file.write(&[entry("3")]).expect("the test's own files");
        in_flight_file.write(&[entry("4"), entry("5")]).expect("the test's own files");
        assert_eq!(read(&in_flight_file), [entry("4"), entry("5")]);
        for key in 0..5000 {
            in_flight_file.write(&[entry(&key.to_string())]).expect("the test's own files");
            in_flight_file.clear().expect("the test's own files");
        }
        assert!(fs::metadata(&in_flight_file.path).expect("the test's own files").len() < 2 * LONGEST as u64);
        assert_eq!(read(&in_flight_file), []);
        // Half a line, as a full disk leaves it.
        in_flight_file.write(&[entry("6")]).expect("the test's own files");
        in_flight_file.file.write_all(b"payments.status\t7\tNOT_").expect("the test's own files");
        in_flight_file.broken = true;
        in_flight_file.write(&[entry("8")]).expect("the test's own files");
        assert_eq!(read(&in_flight_file), [entry("8")]);
        assert!(matches!(
            File::open(&in_flight_file.path).expect("the test's own files").try_lock(),
            Err(TryLockError::WouldBlock)
        ));
        drop(in_flight_file);
        // This fails unless the directory is empty.
        fs::remove_dir(directory.path()).expect("the test's own files");
    }

    #[test]
    fn a_record_whose_directory_was_cleaned_away_is_created_anew() {
        let directory = TestDirectory::new();
        let mut in_flight_file =
            InFlightFile::create(&CrashDirectory::named(directory.path()), "shop").expect("the test's own files");
        in_flight_file.write(&[entry("1")]).expect("the test's own files");
        fs::remove_dir_all(directory.path()).expect("the test's own files");
        // As if a second had passed.
        in_flight_file.seen = None;
        in_flight_file.write(&[entry("2")]).expect("the test's own files");
        let found = fs::read(&in_flight_file.path).expect("it is there again");
        assert_eq!(super::read(&found, "shop"), Some(vec![entry("2")]));
        assert!(!in_flight_file.renew().expect("the test's own files"), "it is there");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error_and_the_record_is_written_again_later() {
        let open = || OpenOptions::new().append(true).open("/dev/full").expect("the test's own files");
        let mut in_flight_file = InFlightFile::new(
            open(),
            PathBuf::from("/nowhere/at/all"),
            &CrashDirectory::named(Path::new("/nowhere")),
            "shop",
            0,
        );
        let error = in_flight_file.write(&[entry("1")]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!in_flight_file.clear && in_flight_file.broken, "half a record may be there");
    }

    fn reported(key: &str) -> Entry {
        Entry::new("shop.payments.status", key, Fence::new(Status::Error, 2), true)
    }

    fn written(entries: &[Entry]) -> String {
        let mut text = header("shop");
        entries.iter().for_each(|entry| entry.push(&mut text));
        text
    }

    #[test]
    fn a_record_is_read_as_it_was_written_whatever_is_in_a_key() {
        let entries: Vec<_> =
            ["7", "", "(1, \"a\")", "a\nb\tc\r\\", "\u{e9}\0\u{2028}", &"long".repeat(10_000)].map(reported).into();
        let read = read(written(&entries).as_bytes(), "shop").expect("the test's own files");
        assert_eq!(read, entries);
        assert!(read[3].is_about(&reported("a\nb\tc\r\\")) && read[3].is_of("shop.payments.status"));
        assert!(!read[3].is_about(&reported("a\\nb\tc\r\\")));
    }

    #[test]
    fn what_has_landed_is_in_the_air_no_more() {
        let mut text = written(&[reported("1"), reported("-")]);
        text.push_str(ENDED);
        assert_eq!(read(text.as_bytes(), "shop"), Some(vec![]));
        reported("2").push(&mut text);
        assert_eq!(read(text.as_bytes(), "shop"), Some(vec![reported("2")]));
    }

    #[test]
    fn a_half_written_line_does_not_count() {
        let text = written(&[reported("1"), reported("2")]);
        let first = written(&[reported("1")]).len();
        for length in 0..text.len() {
            let read = read(&text.as_bytes()[..length], "shop");
            assert_eq!(read.map_or(0, |entries| entries.len()), usize::from(length >= first), "{length}");
        }
    }

    #[test]
    fn garbage_and_the_records_of_others_are_passed_over() {
        assert_eq!(read(b"", "shop"), None);
        assert_eq!(read(b"\xff\xfe\0\0", "shop"), None);
        assert_eq!(read(written(&[]).as_bytes(), "another"), None);
        assert_eq!(read(b"queueable-flight-2\tshop\n", "shop"), None);
        let mut text = written(&[]).into_bytes();
        text.extend(b"q\tk\tDONE\t0\t0\n\n\t\t\nq\tk\tERROR\t99999999999\t0\nq\tk\tERROR\t0\t0\tmore\n\xff\xff\n");
        assert_eq!(read(&text, "shop"), Some(vec![]));
    }
}
