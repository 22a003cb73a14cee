//! What a poller tells its listeners: one event for each thing that has happened.
//!
//! A listener runs in a thread of its own behind a bounded queue, so that it can neither slow nor stop a worker.

mod connectivity;
mod counts;
mod event;
mod event_queue;
mod events;
#[cfg(feature = "metrics")]
mod meter;
mod running;
mod trace;

pub use self::event::{AttemptEvent, Event};
pub use self::trace::set_trace_context;

pub(crate) use self::connectivity::{Connectivity, ThreadConnection};
pub(crate) use self::counts::{Collected, Collector, CountedOf, Counts, Times};
pub(crate) use self::event::{Gauge, Measure};
pub(crate) use self::event_queue::ListenerThread;
pub(crate) use self::events::{EndEvent, Events, Listeners, Watch};
#[cfg(feature = "metrics")]
pub(crate) use self::meter::record_for_metrics;
pub(crate) use self::running::RunningAttempts;
pub(crate) use self::trace::{current_context, makes_links};
