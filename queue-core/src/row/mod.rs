//! The values on a row: its state, its times, and the optional columns beside the five.
//!
//! Plain values that every other room uses. Nothing here asks the database.

mod details;
mod key;
mod lane;
mod options;
mod status;
mod text;
mod time;

pub use self::details::{
    CountRow, CountRowType, Details, GlanceRow, GlanceRowType, PendingRow, PendingRowType, Stage, SumRow, SumRowType,
    stage_named,
};
pub use self::key::{RowKey, TextForm};
pub use self::lane::{BoundValue, Lane, LaneValue, LaneValues, Lanes, ValueKind};
pub use self::options::{
    ColumnNames, Keep, Missed, OnFinish, Options, Order, OrderColumn, Periodic, RerunOnChange, Stages, Timestamps,
};
pub use self::status::{Fence, QueueState, Status, UnknownStatus};
pub use self::text::ErrorText;
pub use self::text::printable;
pub use self::time::{DueTime, Instant, MAX_DELAY, TimestampUtc};

pub(crate) use self::details::{
    ControlRow, ControlType, DetailsRow, DetailsType, MinutesRow, MinutesType, Pending, PollerRow, PollerType,
};
pub(crate) use self::key::{UUID, bytes_of, idempotency_key, integer_text, literal, queue_name, time_literal};
pub(crate) use self::options::Leaving;
pub(crate) use self::status::Settlement;
pub(crate) use self::text::{
    FailureTexts, LEASE_EXPIRED, PRESUMED, RESERVING, SET_ASIDE, STOPPED, ascii_only, bounded, failure_text,
};
pub(crate) use self::time::{HORIZON, microseconds};
