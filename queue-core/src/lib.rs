//! The runtime of [queueable](https://docs.rs/queueable). Use it through that crate.

pub mod backend;
mod column;
mod entity;
mod error;
mod handler;
mod instant;
mod queue;
mod retry;
mod selectable;
mod status;
mod wake;

pub use self::column::{
    ColumnKind, LastAttemptErrorMessage, LastAttemptTime, NextAttemptTime, QueueColumn, QueueState, QueueStateColumns,
    StatusText, TryCount,
};
pub use self::entity::{ColumnNames, Due, QueueTable, Queueable, Settings};
pub use self::error::{Error, Finding};
pub use self::handler::{Failure, Handler, HandlerResult, Message, Outcome, When};
pub use self::instant::{Instant, MAX_DELAY, Now, NowPlus, TimestampUtc};
pub use self::queue::{AllFilters, Queue};
pub use self::retry::{Retry, RetryPolicy};
#[doc(hidden)]
pub use self::selectable::{SelectableEntity, assert_selectable};
pub use self::status::{Status, UnknownStatus};
