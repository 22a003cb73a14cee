//! An entity's settings, as its attributes give them.

use std::fmt::Debug;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Settings of an entity. Its attributes give them, and a poller may override them.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The number of recorded attempts after which a failure becomes `FAILED`. The default, 20, is half a day of
    /// retries under the default policy.
    pub max_tries: u32,
    /// How long a handler may take. `None` means the mode's default: in transaction and group mode the backend's (30
    /// seconds, on SQLite one second, because its one writer blocks every other), in lease mode the lease.
    pub timeout: Option<Duration>,
    /// Lease mode: how long a claimed row belongs to its worker without a heartbeat. The default is 60 seconds.
    pub lease: Duration,
    /// Group mode: the largest number of rows that share a transaction. The default is 50.
    pub group: u32,
    /// Group mode: whether the messages of a group share one savepoint, and run one by one only after a failure.
    pub optimistic: bool,
}

impl Settings {
    /// The settings of an entity whose attributes give none.
    pub const DEFAULT: Settings =
        Settings { max_tries: 20, timeout: None, lease: Duration::from_secs(60), group: 50, optimistic: false };
}
