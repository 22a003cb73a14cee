//! The crash reports that this process has taken over from dead ones, until it claims their rows.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File, ReadDir};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::crash_directory::{CrashDirectory, LARGEST, is_there, open_own};
use super::in_flight::{self, Entry, InFlightFile, SUFFIX};

/// How many reports are kept; the oldest are dropped first.
const KEPT: usize = 1000;

/// How often a worker tries to write a report on its row.
const TRIES: u32 = 3;

/// How long a dead process's record waits for a poller that serves its queue.
const STALE: Duration = Duration::from_secs(7 * 24 * 3600);

/// How many names one call of `adopt` reads. In a directory with very many other files the next call goes on where this
/// one ended.
const AT_ONCE: usize = 1000;

/// How many other files are remembered, which are not opened again.
const REMEMBERED: usize = 10_000;

/// The reports, in memory and in a file of this process, so that another crash loses none.
#[derive(Debug)]
pub(crate) struct CrashReports {
    queues: Vec<String>,
    entries: Vec<Entry>,
    /// Reports that a worker is writing on their rows, each with the number of tries. They stay in the file.
    at_work: Vec<(Entry, u32)>,
    file: InFlightFile,
    /// Files that concern other databases, queues or users.
    others: HashSet<OsString>,
    /// The ones among them that the current pass through the directory has met.
    met: HashSet<OsString>,
    /// Where the current pass goes on.
    listing: Option<ReadDir>,
    /// How many records of dead processes were taken over.
    adopted: usize,
}

impl CrashReports {
    /// Opens the reports of a poller that serves these queues.
    pub(crate) fn open(directory: &CrashDirectory, database: &str, queues: Vec<String>) -> io::Result<Self> {
        Ok(CrashReports {
            file: InFlightFile::create(directory, database)?,
            queues,
            entries: Vec::new(),
            at_work: Vec::new(),
            others: HashSet::new(),
            met: HashSet::new(),
            listing: None,
            adopted: 0,
        })
    }

    /// Creates a record file for a worker.
    pub(crate) fn in_flight_file(&self) -> io::Result<InFlightFile> {
        InFlightFile::create(&self.file.directory, &self.file.database)
    }

    /// Takes over the records of dead processes that one look finds.
    pub(crate) fn adopt(&mut self) -> io::Result<()> {
        self.look(AT_ONCE)
    }

    /// Takes over all records of dead processes.
    pub(crate) fn adopt_all(&mut self) -> io::Result<()> {
        self.listing = None;
        self.look(usize::MAX)
    }

    /// Describes where the records are, and what was found there.
    pub(crate) fn summary(&self) -> String {
        let path = self.file.directory.path().display();
        let found = match (self.adopted, self.entries.len()) {
            (0, _) => "found no records of earlier processes".to_owned(),
            (adopted, suspects) => {
                format!("found the records of {adopted} dead processes and {suspects} suspect rows")
            }
        };
        format!("crash records are kept in {path}: {found}")
    }

    fn look(&mut self, most: usize) -> io::Result<()> {
        if self.file.renew()? {
            self.listing = None;
            self.write()?;
        }
        let mut listing = match self.listing.take() {
            Some(listing) => listing,
            None => fs::read_dir(self.file.directory.path())?,
        };
        for _ in 0..most {
            let Some(file) = listing.next() else {
                // This forgets files that no longer exist.
                self.others = std::mem::take(&mut self.met);
                return Ok(());
            };
            let (name, path) = file.map(|file| (file.file_name(), file.path()))?;
            if path.extension().is_none_or(|extension| extension != SUFFIX) || Some(&*name) == self.file.name() {
                continue;
            }
            // A living process's file is read again next time. Only those of dead processes never change.
            let is_others = self.others.contains(&name) || !self.adopt_file(&path).unwrap_or(true);
            if is_others && self.met.len() < REMEMBERED {
                self.met.insert(name);
            }
        }
        self.listing = Some(listing);
        Ok(())
    }

    /// Takes over one file, if it belongs to a dead process and concerns this poller. Returns whether to look at it
    /// again.
    fn adopt_file(&mut self, path: &Path) -> io::Result<bool> {
        let Some((mut file, metadata)) = open_own(path)? else { return Ok(false) };
        if file.try_lock().is_err() || !is_there(&file, path) {
            return Ok(true);
        }
        let mut text = Vec::new();
        (&file).take(LARGEST).read_to_end(&mut text)?;
        let Some(found) = in_flight::read(&text, &self.file.database) else {
            let age = SystemTime::now().duration_since(metadata.modified()?).unwrap_or_default();
            if age > STALE {
                fs::remove_file(path)?;
            }
            return Ok(false);
        };
        self.adopted += 1;
        let (ours, others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|entry| self.queues.iter().any(|queue| entry.is_of(queue)));
        if !ours.is_empty() {
            ours.into_iter().for_each(|entry| self.record_suspect(entry));
            // This poller's first: a crash between the two writes counts one crash too many, but never one too few.
            self.write()?;
        }
        if others.is_empty() {
            fs::remove_file(path)?;
            return Ok(true);
        }
        self.leave(&mut file, &others)?;
        Ok(false)
    }

    /// Leaves in a dead process's file the reports for other pollers.
    fn leave(&self, file: &mut File, others: &[Entry]) -> io::Result<()> {
        let mut text = in_flight::header(&self.file.database);
        others.iter().for_each(|entry| entry.push(&mut text));
        file.set_len(0)?;
        file.write_all(text.as_bytes())
    }

    fn record_suspect(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|known| known.is_about(&entry)) {
            Some(known) if known.fence == entry.fence => known.alone = known.alone.saturating_add(entry.alone),
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
        if self.entries.len() > KEPT {
            self.entries.remove(0);
        }
    }

    /// Tells whether this row is reported, in this state.
    pub(crate) fn suspects(&self, row: &Entry) -> bool {
        self.entries.iter().any(|entry| entry.is_about(row) && entry.fence == row.fence)
    }

    /// Takes the report on a row that was claimed in this state, so that no other worker counts it meanwhile.
    pub(crate) fn take(&mut self, row: &Entry) -> Option<Entry> {
        let found = self.entries.iter().position(|entry| entry.is_about(row) && entry.fence == row.fence)?;
        let entry = self.entries.remove(found);
        if !self.at_work.iter().any(|(known, _)| known.is_about(&entry)) {
            self.at_work.push((entry.clone(), 0));
        }
        Some(entry)
    }

    /// Removes a report that was taken, because it is written on the row.
    pub(crate) fn clear(&mut self, entry: &Entry) -> io::Result<()> {
        self.at_work.retain(|(known, _)| !known.is_about(entry));
        self.write()
    }

    /// Takes back a report that cannot be written on its row now. After some tries it is dropped, because there are
    /// rows that nobody can write on.
    pub(crate) fn put_back(&mut self, entry: Entry) -> io::Result<()> {
        let Some((_, tries)) = self.at_work.iter_mut().find(|(known, _)| known.is_about(&entry)) else {
            return Ok(());
        };
        *tries += 1;
        if *tries >= TRIES {
            return self.clear(&entry);
        }
        self.record_suspect(entry);
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let mut entries = self.entries.clone();
        for (entry, _) in &self.at_work {
            if !entries.iter().any(|known| known.is_about(entry)) {
                entries.push(entry.clone());
            }
        }
        self.file.write(&entries)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::test_directory::TestDirectory;
    use crate::row::Fence;
    use crate::row::Status;

    const FENCE: Fence = Fence::new(Status::NotAttempted, 0);

    impl TestDirectory {
        fn open(&self, queues: &[&str]) -> CrashReports {
            let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
            CrashReports::open(&CrashDirectory::named(self.path()), "shop", queues).expect("the test's own files")
        }

        /// Leaves a file like that of a process that has died.
        fn die_with(&self, entries: &[Entry]) {
            let name = format!("{:x}.flight", fastrand::u64(..));
            fs::write(self.path().join(name), record(entries)).expect("the test's own files");
        }

        fn files(&self) -> usize {
            fs::read_dir(self.path()).expect("the test's own files").count()
        }
    }

    fn record(entries: &[Entry]) -> String {
        let mut text = in_flight::header("shop");
        entries.iter().for_each(|entry| entry.push(&mut text));
        text
    }

    fn entry(queue: &str, key: &str, alone: bool) -> Entry {
        Entry::new(queue, key, FENCE, alone)
    }

    #[test]
    fn what_a_dead_process_left_is_taken_over_once_and_kept_for_the_next_crash() {
        let directory = TestDirectory::new();
        let (mut one, mut other) = (directory.open(&["a"]), directory.open(&["a"]));
        directory.die_with(&[entry("a", "1", false), entry("a", "2", true)]);
        one.adopt().expect("the test's own files");
        other.adopt().expect("the test's own files");
        assert!(other.is_empty());
        assert_eq!(one.entries, [entry("a", "1", false), entry("a", "2", true)]);
        assert_eq!(one.take(&entry("b", "1", false)), None);
        directory.die_with(&[entry("a", "2", true)]);
        one.adopt().expect("the test's own files");
        assert_eq!(carried(&directory, &one), one.entries);
        let taken = one.take(&entry("a", "2", false)).expect("the test's own files");
        assert_eq!(taken.alone, 2);
        assert_eq!(one.take(&entry("a", "2", false)), None, "it is counted once");
        one.write().expect("the test's own files");
        assert_eq!(carried(&directory, &one).len(), 2, "a crash loses nothing that is not on the row yet");
        one.clear(&taken).expect("the test's own files");
        assert_eq!(carried(&directory, &one), [entry("a", "1", false)]);
        assert!(!one.is_empty());
    }

    fn carried(directory: &TestDirectory, reports: &CrashReports) -> Vec<Entry> {
        in_flight::read(
            &fs::read(directory.path().join(reports.file.name().expect("the test's own files")))
                .expect("the test's own files"),
            "shop",
        )
        .expect("the test's own files")
    }

    #[test]
    fn what_cannot_be_written_on_its_row_is_forgotten_after_some_tries() {
        let directory = TestDirectory::new();
        let mut reports = directory.open(&["a"]);
        reports.record_suspect(entry("a", "1", true));
        for _ in 0..TRIES {
            let taken = reports.take(&entry("a", "1", false)).expect("the test's own files");
            reports.put_back(taken).expect("the test's own files");
        }
        assert!(reports.is_empty() && reports.at_work.is_empty());
    }

    #[test]
    fn a_row_in_another_state_than_at_the_crash_is_not_accused() {
        let directory = TestDirectory::new();
        let mut reports = directory.open(&["a"]);
        directory.die_with(&[entry("a", "1", true)]);
        reports.adopt().expect("the test's own files");
        let later = Entry::new("a", "1", Fence::new(Status::Error, 1), false);
        assert_eq!(reports.take(&later), None);
    }

    #[test]
    fn a_living_process_a_queue_of_others_and_garbage_are_left_alone() {
        let directory = TestDirectory::new();
        let mut reports = directory.open(&["a"]);
        let mut living = reports.in_flight_file().expect("the test's own files");
        living.write(&[entry("a", "1", true)]).expect("the test's own files");
        directory.die_with(&[entry("b", "2", true), entry("a", "3", true)]);
        fs::write(directory.path().join("garbage.flight"), b"\0\xff").expect("the test's own files");
        fs::write(directory.path().join("notes.txt"), b"mine").expect("the test's own files");
        for _ in 0..2 {
            reports.adopt().expect("the test's own files");
            assert_eq!(reports.entries, [entry("a", "3", true)]);
        }
        assert_eq!(directory.files(), 5);
        let mut other = directory.open(&["b"]);
        other.adopt().expect("the test's own files");
        assert_eq!(other.entries, [entry("b", "2", true)]);
        drop(living);
        assert_eq!(directory.files(), 4);
    }

    #[test]
    fn a_row_among_too_many_accused_is_forgotten_in_turn() {
        let directory = TestDirectory::new();
        let mut reports = directory.open(&["a"]);
        for number in 0..KEPT + 5 {
            reports.record_suspect(entry("a", &number.to_string(), false));
        }
        assert_eq!(reports.entries.len(), KEPT);
        assert!(reports.take(&entry("a", "0", false)).is_none());
    }

    #[test]
    fn very_many_files_of_others_are_looked_at_a_few_at_a_time() {
        let directory = TestDirectory::new();
        for number in 0..3 * AT_ONCE {
            fs::write(directory.path().join(format!("{number}.flight")), "theirs").expect("the test's own files");
        }
        directory.die_with(&[entry("a", "1", true)]);
        let mut reports = directory.open(&["a"]);
        reports.adopt_all().expect("the test's own files");
        assert_eq!(reports.entries, [entry("a", "1", true)], "at the start all are looked at");
        for looks in 1..=3 {
            reports.adopt().expect("the test's own files");
            assert!(reports.listing.is_some(), "{looks} thousand of more are looked at");
        }
        directory.die_with(&[entry("a", "2", true)]);
        // A file that is created while the directory is read may only be seen in the next pass.
        for _ in 0..8 {
            reports.adopt().expect("the test's own files");
        }
        assert_eq!(reports.entries, [entry("a", "1", true), entry("a", "2", true)]);
        assert!(reports.others.len() <= REMEMBERED && reports.met.len() <= REMEMBERED);
    }

    #[test]
    fn what_was_reported_outlives_the_cleaning_of_its_directory() {
        let directory = TestDirectory::new();
        let mut reports = directory.open(&["a"]);
        directory.die_with(&[entry("a", "1", true)]);
        reports.adopt().expect("the test's own files");
        fs::remove_dir_all(directory.path()).expect("the test's own files");
        reports.adopt().expect("it is created again");
        assert_eq!(carried(&directory, &reports), [entry("a", "1", true)]);
        directory.die_with(&[entry("a", "2", true)]);
        reports.adopt().expect("the test's own files");
        assert_eq!(reports.entries.len(), 2);
    }

    #[test]
    fn the_summary_says_where_the_records_are_and_what_was_found() {
        let directory = TestDirectory::new();
        directory.die_with(&[entry("a", "1", true)]);
        directory.die_with(&[]);
        let mut reports = directory.open(&["a"]);
        let path = directory.path().display();
        assert_eq!(
            reports.summary(),
            format!("crash records are kept in {path}: found no records of earlier processes")
        );
        reports.adopt_all().expect("the test's own files");
        let found = "found the records of 2 dead processes and 1 suspect rows";
        assert_eq!(reports.summary(), format!("crash records are kept in {path}: {found}"));
    }

    #[test]
    #[cfg(unix)]
    fn a_text_that_is_reached_by_a_link_a_pipe_or_a_second_name_accuses_nobody() {
        use std::os::unix::fs::symlink;

        let (directory, uploads) = (TestDirectory::new(), TestDirectory::new());
        let uploaded = |name: &str| {
            let path = uploads.path().join(name);
            fs::write(&path, record(&[entry("a", name, true)])).expect("the test's own files");
            path
        };
        symlink(uploaded("1"), directory.path().join("link.flight")).expect("the test's own files");
        fs::hard_link(uploaded("2"), directory.path().join("name.flight")).expect("the test's own files");
        let pipe = directory.path().join("pipe.flight");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).expect("the test's own files");
        let mut reports = directory.open(&["a"]);
        reports.adopt_all().expect("the test's own files");
        assert!(reports.is_empty());
        assert_eq!((directory.files(), uploads.files()), (4, 2), "what is not ours is left alone");
    }
}
