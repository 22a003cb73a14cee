//! The handler traits, and what a handler gets: the message, the lease, the group.
//!
//! An async handler is a wrapped one, which runs its future on the connection of the message's session.
//!
//! Also the wrapper for users' values whose `Drop` may panic.

#[cfg(feature = "tokio")]
mod async_calls;
#[cfg(feature = "_async")]
mod async_handler;
#[cfg(feature = "tokio")]
mod async_lease_handler;
mod background;
#[cfg_attr(not(feature = "_async"), allow(dead_code, reason = "async handlers need more of it"))]
mod group_connection;
#[cfg_attr(not(feature = "_async"), allow(dead_code, reason = "async handlers need more of it"))]
mod handler;
mod lease;
mod lease_clock;
mod lease_handler;
mod panic_safe;
mod shared_handler;
mod stop_signal;

#[cfg(feature = "tokio")]
pub use self::async_calls::AsyncCalls;
#[cfg(feature = "_async")]
pub use self::async_handler::{Async, AsyncHandler};
#[cfg(feature = "tokio")]
pub use self::async_lease_handler::{AsyncLeaseHandler, CallFuture};
pub use self::handler::{Failure, Group, Handler, HandlerResult, Message, Outcome, When};
pub use self::lease::{Lease, LeaseLost};
pub use self::lease_handler::LeaseHandler;

pub(crate) use self::background::{AbortCall, Answered, Background, BeginCall, Called, OwnedMessage};
pub(crate) use self::group_connection::BeforeUse;
pub(crate) use self::handler::{GroupedMessage, Panicked, RetryChoice};
pub(crate) use self::lease_clock::{LeaseClock, LeaseEnd};
pub(crate) use self::panic_safe::{PanicSafeDrop, drop_safely};
pub(crate) use self::stop_signal::StopSignal;
