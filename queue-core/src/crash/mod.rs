//! Rows whose handler ends the process.
//!
//! Each worker notes in a file what it is about to run. The next poller reads the files of dead processes and counts
//! the crashes of each row. After three it sets the row aside.

mod accounts;
mod crash_directory;
mod exclusive_run;
mod in_flight;
mod reports;

pub use self::accounts::CrashAccounting;

pub(crate) use self::accounts::{CrashAction, CrashMark, Crashes, Recorder, as_it_was};
pub(crate) use self::exclusive_run::GATE;

/// A directory for a unit test's own files.
#[cfg(test)]
mod test_directory {
    use std::fs;
    use std::path::{Path, PathBuf};

    pub(crate) struct TestDirectory(PathBuf);

    impl TestDirectory {
        pub(crate) fn new() -> Self {
            let path = std::env::temp_dir().join(format!("queueable-crash-test-{:x}", fastrand::u64(..)));
            fs::create_dir(&path).expect("the test's own files");
            TestDirectory(path)
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for TestDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
