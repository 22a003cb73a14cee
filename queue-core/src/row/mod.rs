//! The values on a row: its state, its times, and the optional columns beside the five.
//!
//! Plain values that every other room uses. Nothing here asks the database.

mod details;
mod failure_text;
mod fence;
mod idempotency_key;
mod instant;
mod lanes;
mod options;
mod pause_row;
mod reserved_text;
mod row_key;
mod settlement;
mod stage;
mod state;
mod status;

pub use self::details::Details;
pub use self::failure_text::ErrorText;
pub use self::fence::Fence;
pub use self::instant::{DueTime, Instant, MAX_DELAY, TimestampUtc};
pub use self::lanes::{BoundValue, Lane, LaneValue, LaneValues, Lanes, ValueKind};
pub use self::options::{
    ColumnNames, Missed, OnFinish, Options, Order, OrderColumn, Periodic, RerunOnChange, Stages, Timestamps,
};
pub use self::row_key::{RowKey, TextForm};
pub use self::stage::{Stage, stage_named};
pub use self::state::QueueState;
pub use self::status::{Status, UnknownStatus};

pub(crate) use self::details::{DetailsRow, DetailsType};
pub(crate) use self::failure_text::{FailureTexts, ascii_only, failure_text};
pub(crate) use self::idempotency_key::{idempotency_key, queue_name};
pub(crate) use self::instant::{HORIZON, microseconds};
pub(crate) use self::pause_row::{PauseRow, PauseType};
pub(crate) use self::reserved_text::{CRASHED, LEASE_EXPIRED, PRESUMED, RESERVING, STOPPED};
pub(crate) use self::row_key::bytes_of;
pub(crate) use self::settlement::Settlement;
