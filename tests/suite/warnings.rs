//! The warnings and hints of the library. A process has one subscriber, so all tests of a program share it.

use std::io::{self, Write};
use std::sync::{Condvar, Mutex, Once};
use std::time::Duration;

use tracing::Level;

/// How long a test waits for a warning before it fails.
const PATIENCE: Duration = Duration::from_secs(300);

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static ARRIVED: Condvar = Condvar::new();

/// Keeps the lines that it gets.
struct Keeper;

impl Write for Keeper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.lock().unwrap().push(String::from_utf8_lossy(bytes).into_owned());
        ARRIVED.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to keep warnings and hints. A test that waits for one calls this first.
pub(crate) fn keep_warnings() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt().with_max_level(Level::INFO).with_ansi(false).with_writer(|| Keeper).init();
    });
}

/// Waits for a warning that contains all of these texts.
pub(crate) fn await_warning(texts: &[&str]) {
    let is_it = |line: &String| contains(line, texts);
    let lines = LINES.lock().unwrap();
    let (lines, _) = ARRIVED.wait_timeout_while(lines, PATIENCE, |lines| !lines.iter().any(is_it)).unwrap();
    // Not under the lock, because the other tests go on.
    let is_told = lines.iter().any(is_it);
    drop(lines);
    assert!(is_told, "nothing warns of {texts:?}");
}

/// Tells whether a line that contains all of these texts has been kept.
pub(crate) fn is_told(texts: &[&str]) -> bool {
    LINES.lock().unwrap().iter().any(|line| contains(line, texts))
}

/// Returns how many of the lines that have been kept contain all of these texts.
pub(crate) fn times_told(texts: &[&str]) -> usize {
    LINES.lock().unwrap().iter().filter(|line| contains(line, texts)).count()
}

fn contains(line: &str, texts: &[&str]) -> bool {
    texts.iter().all(|text| line.contains(text))
}
