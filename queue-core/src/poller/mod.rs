//! The threads of a poller: workers, the scout, the heartbeat; how they start, wake and stop.
//!
//! They know nothing of SQL: a trait of `attempt` hides what they run for an entity.

#[cfg(feature = "_async")]
mod async_closures;
mod checks;
mod control_watch;
mod gate;
mod handle;
mod health;
mod heartbeat;
mod in_background;
mod listener;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(not(feature = "metrics"))]
mod no_metrics;
mod poller;
mod post;
mod reporter;
mod scout;
mod serve;
mod settings;
mod shared;
mod start;
mod timeouts;
mod upkeep;
pub(crate) mod wake;
mod watchdog;
mod work_board;
mod worker;

pub use self::handle::{PollerHandle, Shutdown};
pub use self::health::{EntityHealth, Health};
pub use self::poller::Poller;
pub use self::serve::{ConnectionFor, HandlerFor};
pub use self::settings::PollerSettings;

#[cfg(feature = "testing")]
pub(crate) use self::gate::window_of;
pub(crate) use self::wake::announce;
