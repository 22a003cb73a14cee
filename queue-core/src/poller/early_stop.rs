//! A stop that comes while a poller starts.

use std::sync::Arc;

use super::work_board::WorkBoard;
use crate::error::Error;
use crate::sync::Mutex;

/// What stops a poller before it has started.
#[derive(Clone, Default)]
pub(super) struct EarlyStop(Arc<Mutex<Stopping>>);

#[derive(Default)]
struct Stopping {
    is_stopped: bool,
    board: Option<Arc<WorkBoard>>,
}

impl EarlyStop {
    /// Stops the start. What has begun by then ends as at a shutdown, and nothing else begins.
    pub(super) fn stop(&self) {
        let mut stopping = self.0.lock();
        stopping.is_stopped = true;
        if let Some(board) = &stopping.board {
            board.stop();
        }
    }

    /// Has it stop this board too.
    pub(super) fn stops(&self, board: &Arc<WorkBoard>) -> Result<(), Error> {
        let mut stopping = self.0.lock();
        stopping.board = Some(board.clone());
        if stopping.is_stopped { Err(stopped_early()) } else { Ok(()) }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.lock().is_stopped
    }
}

/// Returns why a poller has not started that was stopped before.
pub(super) fn stopped_early() -> Error {
    Error::Setting {
        setting: "the poller",
        found: "stopped before it had started".to_owned(),
        expected: "a stop that comes later, if it is to process messages",
    }
}
