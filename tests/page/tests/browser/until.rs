//! Waiting for something that nobody announces.

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a page may take on a machine that does other things too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until there is an answer. A browser sends no signal to wait for, so an empty channel paces it.
pub(crate) fn until<T>(what: &str, ask: impl FnMut() -> Result<T, String>) -> T {
    within(1, what, ask)
}

/// Does the same for what may take so many times as long.
pub(crate) fn within<T>(times: u32, what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let patience = PATIENCE * times;
    let deadline = Instant::now() + patience;
    let (_nobody, pace) = mpsc::channel::<()>();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(why) => assert!(Instant::now() < deadline, "not within {patience:?}: {what}: {why}"),
        }
        let _ = pace.recv_timeout(Duration::from_millis(20));
    }
}
