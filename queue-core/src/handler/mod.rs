//! The handler traits, and what a handler gets: the message, the lease, the group.
//!
//! An async handler is a wrapped one, which runs its future on the connection of the message's session.
//!
//! Also the wrapper for users' values whose `Drop` may panic.

#[cfg_attr(
    not(feature = "testing"),
    allow(dead_code, unreachable_pub, reason = "only the tests of applications set it")
)]
mod around;
#[cfg(feature = "tokio")]
mod async_calls;
#[cfg(feature = "_async")]
mod async_handler;
#[cfg_attr(not(feature = "_async"), allow(dead_code, reason = "async handlers need more of it"))]
mod group;
#[cfg_attr(not(feature = "_async"), allow(dead_code, reason = "async handlers need more of it"))]
mod handler;
mod kept;
mod lease;
#[cfg_attr(not(feature = "_async"), allow(dead_code, reason = "async handlers need more of it"))]
mod panic_safe;

#[cfg(feature = "testing")]
pub use self::around::{AroundHandlers, CallOfHandler, around_handlers};
#[cfg(feature = "tokio")]
pub use self::async_calls::{AsyncCalls, AsyncLeaseHandler, CallFuture};
#[cfg(feature = "_async")]
pub use self::async_handler::{Async, AsyncHandler};
pub use self::group::Group;
pub use self::handler::{Failure, Handler, HandlerResult, Message, Outcome, When};
pub use self::lease::{Lease, LeaseHandler, LeaseLost};

pub(crate) use self::group::{BeforeUse, GroupedMessage};
pub(crate) use self::handler::{Panicked, RetryChoice};
pub(crate) use self::kept::Kept;
pub(crate) use self::lease::{AbortCall, Answer, Answered, Background, BeginCall, Called, LeaseClock, OwnedMessage};
pub(crate) use self::panic_safe::{PanicSafeDrop, StopSignal, drop_safely};
