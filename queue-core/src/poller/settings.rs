//! The poller's settings, with every default in one place.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attempt::RunnerSettings;
use crate::claim::ClaimStyle;
use crate::control::{LONGEST_BY, check_text};
use crate::crash::CrashAccounting;
use crate::entity::Window;
use crate::error::Error;
use crate::event::Events;
use crate::log::Redact;
use crate::row::{FailureTexts, HORIZON};
use crate::sync::TurnToWrite;

/// The poller's settings, with every default in one place.
///
/// ```
/// use std::time::Duration;
/// use queueable::PollerSettings;
///
/// let settings = PollerSettings::default();
/// assert_eq!(settings.workers, 4);
/// assert_eq!(settings.poll_interval, Duration::from_secs(1));
/// ```
///
/// It has a field for each setting, side by side as in a configuration file. There, a setting that is left out has its
/// default, and an unknown setting is an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PollerSettings {
    /// How many messages are handled at the same time, each by a thread with its own connection. Default 4.
    pub workers: usize,
    /// How long an idle poller waits between two probes for due rows. A tenth of it is added at random, so that many
    /// processes do not probe in step. Default 1 second. The poller finds rows that were enqueued through this process,
    /// and rows whose time is known to come earlier, before that. On PostgreSQL, if an entity asks for it by
    /// `#[queue(wake = notify)]`, it finds all other rows earlier too.
    pub poll_interval: Duration,
    /// How long a statement waits for a lock that another session holds. Default 5 seconds.
    pub lock_timeout: Duration,
    /// How long the pool may take to give a connection. Default 5 seconds.
    pub pool_timeout: Duration,
    /// How long a thread of the poller waits, beyond `lock_timeout`, for a connection or for the answer to a statement of its
    /// own. The network, or a proxy, may have fallen silent: another thread with another connection takes its place, and
    /// [`ConnectionLost`](crate::Event::ConnectionLost) says so. 1 millisecond to 1 hour, default 30 seconds. Handlers' own
    /// statements have the handler's timeout, and on SQLite nothing falls silent.
    pub network_timeout: Duration,
    /// How long running handlers may go on when the handle is dropped. Default 30 seconds, the handlers' default timeout.
    pub shutdown_grace: Duration,
    /// How many bytes of a failure's text are stored. Default 8 KiB.
    pub error_text_limit: usize,
    /// Lease mode: how many rows one claim takes at most, 1 to 1000. The rows that its worker cannot begin at once wait
    /// for the other workers of this poller, and are given back at shutdown. A larger number saves transactions, but
    /// rows may wait here while another process is idle, and a killed process costs each of them a try. A worker calls
    /// the handlers of its claimed rows for some 5 milliseconds and applies their answers, at most 64, in one transaction;
    /// if one of them cannot be committed, each is applied in a transaction of its own.
    ///
    /// Default none: as many as the workers call within some 5 milliseconds, and no more than 64. That is 1 while
    /// little is due, if a row has fewer than 10 tries, and if a call takes longer than these milliseconds, so that
    /// nothing waits behind it. If a call takes longer without warning, the next claim takes 1, and rows that have
    /// waited for an eighth of the lease are given back soon. Set 1 if a killed process is to cost no more tries than
    /// it has workers, or if each answer is to have a transaction of its own.
    pub claim_batch: Option<u32>,
    /// Lease mode: how rows are claimed. Default [`ClaimStyle::Auto`].
    pub claim_style: ClaimStyle,
    /// The hours at which messages are processed, by the database's clock. Default none: always. Outside the window
    /// nothing is claimed; a handler that runs when the window closes goes on to its end. An entity may have a window
    /// of its own too, `#[queue(window = "..")]`: then both must be open.
    pub window: Option<Window>,
    /// Whether the poller reads the control table, see [`Poller::control`](crate::Poller::control). Default no.
    pub control: bool,
    /// Whether the poller counts what it does in the table of minutes, see [`Poller::minutes`](crate::Poller::minutes). Default
    /// no.
    pub minutes: bool,
    /// Whether the poller writes into the table of pollers what it is and does, see
    /// [`Poller::register`](crate::Poller::register). Default no.
    pub register: bool,
    /// What the application says of itself in that table, such as its name and version, in up to 255 characters. Default none.
    pub application: Option<String>,
    /// The environment to which the database has to belong, see [`Poller::environment`](crate::Poller::environment). Default
    /// none: any.
    pub environment: Option<String>,
    /// How many handlers may be stuck, past their timeout and without an end, before their workers are no longer
    /// replaced. Default as many as there are workers, so that stuck handlers keep at most as many threads and connections
    /// again. While more handlers are stuck, the poller works with fewer threads.
    pub max_stuck_workers: Option<usize>,
    /// How the poller detects rows whose handler ends the whole process. Default [`CrashAccounting::On`].
    pub crash_accounting: CrashAccounting,
    /// Rewrites the text of each failure before it is stored on a row or logged, see
    /// [`Poller::redact`](crate::Poller::redact). Default none. It is not part of a configuration file.
    #[serde(skip)]
    pub redact: Option<Redact>,
    #[doc(hidden)]
    #[serde(skip)]
    pub low_water_at_once: bool,
    #[doc(hidden)]
    #[serde(skip)]
    pub prefetch_at_once: bool,
}

impl Default for PollerSettings {
    fn default() -> Self {
        PollerSettings {
            workers: 4,
            poll_interval: Duration::from_secs(1),
            lock_timeout: Duration::from_secs(5),
            pool_timeout: Duration::from_secs(5),
            network_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(30),
            error_text_limit: 8 * 1024,
            claim_batch: None,
            claim_style: ClaimStyle::Auto,
            window: None,
            control: false,
            minutes: false,
            register: false,
            application: None,
            environment: None,
            max_stuck_workers: None,
            crash_accounting: CrashAccounting::On,
            redact: None,
            low_water_at_once: false,
            prefetch_at_once: false,
        }
    }
}

impl PollerSettings {
    /// Returns what a runner takes.
    pub(crate) fn for_runner(&self, events: Events, writer: Arc<TurnToWrite>) -> RunnerSettings {
        RunnerSettings {
            texts: FailureTexts { limit: self.error_text_limit, redact: self.redact.clone() },
            stages: None,
            claim_batch: self.claim_batch,
            claim_style: self.claim_style,
            low_water_at_once: self.low_water_at_once,
            prefetch_at_once: self.prefetch_at_once,
            events,
            writer,
        }
    }

    /// Returns the connections that a poller takes while it runs.
    pub(crate) fn connections(&self, has_leases: bool, reports: bool) -> ConnectionsNeeded {
        let has_reporter = reports || self.minutes || self.register;
        ConnectionsNeeded { workers: self.workers, has_leases, has_reporter }
    }

    /// Returns how long the database may take to answer a statement of the poller's own.
    pub(crate) fn patience(&self) -> Duration {
        self.lock_timeout + self.network_timeout
    }

    /// Returns for how many stuck handlers another worker is started.
    pub(crate) fn most_stuck(&self) -> usize {
        self.max_stuck_workers.unwrap_or(self.workers)
    }

    /// Checks each setting by itself.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |setting, found: String, expected| Err(Error::Setting { setting, found, expected });
        if self.workers == 0 {
            return wrong("workers", "0".to_owned(), "at least 1");
        }
        if self.poll_interval.is_zero() || self.poll_interval > HORIZON {
            return wrong("poll_interval", format!("{:?}", self.poll_interval), "more than 0 and at most 10 minutes");
        }
        if self.lock_timeout < Duration::from_millis(1) || self.lock_timeout > Duration::from_secs(3600) {
            return wrong("lock_timeout", format!("{:?}", self.lock_timeout), "1 millisecond to 1 hour");
        }
        if self.pool_timeout < Duration::from_millis(1) || self.pool_timeout > Duration::from_secs(3600) {
            return wrong("pool_timeout", format!("{:?}", self.pool_timeout), "1 millisecond to 1 hour");
        }
        if self.network_timeout < Duration::from_millis(1) || self.network_timeout > Duration::from_secs(3600) {
            return wrong("network_timeout", format!("{:?}", self.network_timeout), "1 millisecond to 1 hour");
        }
        // MEDIUMTEXT ends at 16 MiB; nobody reads a megabyte of text per failed row.
        if self.error_text_limit > 1 << 20 {
            return wrong("error_text_limit", self.error_text_limit.to_string(), "at most 1 MiB");
        }
        for (setting, text) in [("application", &self.application), ("environment", &self.environment)] {
            text.as_deref().map_or(Ok(()), |text| check_text(setting, text, LONGEST_BY))?;
        }
        if let Some(rows) = self.claim_batch.filter(|rows| !(1..=1000).contains(rows)) {
            return wrong("claim_batch", rows.to_string(), "1 to 1000");
        }
        Ok(())
    }
}

/// The connections that a poller takes while it runs, and what for.
pub(crate) struct ConnectionsNeeded {
    workers: usize,
    has_leases: bool,
    has_reporter: bool,
}

impl ConnectionsNeeded {
    fn number(&self) -> usize {
        self.workers.saturating_add(1 + usize::from(self.has_leases) + usize::from(self.has_reporter))
    }

    /// Refuses a pool that has too few. `None`: the poller makes its connections itself.
    pub(crate) fn check(&self, pool_size: Option<u32>) -> Result<(), Error> {
        let Some(pool_size) = pool_size else { return Ok(()) };
        if usize::try_from(pool_size).is_ok_and(|size| size < self.number()) {
            let expected = match (self.has_leases, self.has_reporter) {
                (true, true) => {
                    "at least the number of workers and 3: each keeps a connection, the poller keeps one, and so do its leases \
                     and its reports"
                }
                (true, false) => {
                    "at least the number of workers and 2: each keeps a connection, the poller keeps one, and so do its leases"
                }
                (false, true) => {
                    "at least the number of workers and 2: each keeps a connection, the poller keeps one, and so do its reports"
                }
                (false, false) => "more than the number of workers: each keeps a connection, and the poller one more",
            };
            return Err(Error::Setting { setting: "the pool's max_size", found: pool_size.to_string(), expected });
        }
        Ok(())
    }
}

impl fmt::Display for ConnectionsNeeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leases = if self.has_leases { ", 1 extends the leases" } else { "" };
        let reports = if self.has_reporter { ", 1 reports" } else { "" };
        write!(f, "{}: 1 for each worker, 1 looks for due rows{leases}{reports}", self.number())
    }
}
