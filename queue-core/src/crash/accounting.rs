//! The setting of how a poller counts crashes.

use serde::{Deserialize, Serialize};

/// How a poller finds rows whose handler ends the whole process: by an abort, a stack overflow, or lack of memory.
///
/// After a crash, the database rolls such a row back with everything that its attempt wrote. Without crash accounting
/// it would be due again, and end every process that claims it. With it the queue sets the row aside after three
/// crashes: it becomes `FAILED`, and its error text says why. Rows that ran beside it are suspects: each runs once
/// more, alone in its process, and is cleared.
///
/// A process that is killed from outside looks the same: `kill -9` makes suspects too, and so does
/// [`std::process::exit`] while handlers run. A row that is running at three such ends in a row, the last two alone in
/// its process, is set aside. So stop a service by [`PollerHandle::shutdown`], which leaves no suspects, however short
/// its grace. A crash while a row is decoded is not counted. A crash in a call under a lease is left to the lease: the
/// claim has counted the attempt as a try, and the row is due again when the lease has ended.
///
/// ```
/// use queueable::{CrashAccounting, PollerSettings};
///
/// assert_eq!(PollerSettings::default().crash_accounting, CrashAccounting::On);
/// ```
///
/// [`PollerHandle::shutdown`]: crate::PollerHandle::shutdown
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CrashAccounting {
    /// Each worker notes in a small file of its own what it is about to run, and a process that starts later reads the
    /// files of those that have died. It costs no statement, and a few microseconds for each message. This is the
    /// default.
    #[default]
    On,
    /// The worker marks the row itself before its handler runs. This is for machines whose files do not outlive the
    /// process, as in many containers. It costs one more transaction for each message (four statements), and after a
    /// crash the row waits for its timeout. Messages of groups run one by one. A process that is ended while a handler
    /// runs leaves a mark, even by a shutdown whose grace is over.
    Strict,
    /// Crashes are not counted.
    Off,
}
