//! How crashes are counted: the setting.

use serde::{Deserialize, Serialize};

/// How a poller finds out rows whose handler ends the whole process: by an abort, a stack overflow, or for want of memory.
///
/// Such a row is rolled back with everything that its attempt wrote. Without accounts it would be due again, and end
/// every process that takes it. With them it is set aside after three crashes: it becomes `FAILED`, and its error text
/// says why. Rows that ran beside it are suspects: each runs once more, alone in its process, and is cleared.
///
/// A process that is ended from outside looks the same: `kill -9` makes suspects too, and so does
/// [`std::process::exit`] while handlers run. A row that such an end hits three times in a row, the last two alone in its
/// process, is set aside. So end a service by [`PollerHandle::shutdown`], which leaves no suspects, however short its
/// grace. A crash while a row is decoded is not counted, and one in a call under a lease is the lease's: when it has ended,
/// the attempt counts as a try.
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
    /// files of those that have died. It costs no statement, and a few microseconds for each message. The default.
    #[default]
    On,
    /// The row itself is marked before its handler runs, for machines whose files do not outlive the process, as in many
    /// containers. It costs one more transaction for each message (four statements), and after a crash the row waits for
    /// its timeout. Messages of groups are worked one by one. A process that is ended while a handler runs, also by a shutdown whose grace is over, leaves a mark.
    Strict,
    /// Crashes are not counted.
    Off,
}
