//! What a poller tells its listeners: one event for each thing that has happened.
//!
//! A listener runs in a thread of its own behind a bounded queue, so that it can neither slow nor stop a worker.

mod connectivity;
mod database_clock;
mod event;
mod event_queue;
mod events;
#[cfg(feature = "metrics")]
mod meter;
#[cfg(not(feature = "metrics"))]
#[path = "no_meter.rs"]
mod meter;
mod watch;

pub use self::event::{AttemptEvent, Event};

pub(crate) use self::connectivity::{Connectivity, ThreadConnection};
pub(crate) use self::events::{Events, ListenerThread, Listeners};
#[cfg(feature = "metrics")]
pub(crate) use self::meter::Meter;
pub(crate) use self::watch::{Ending, Watch};
