//! A directory for a unit test's own files.

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
