//! The queue's statements, and [`ErasedQueue`], which runs them.
//!
//! A statement is a function that writes it (`writer.rs`): identifiers and binds, and never text around a value. It is
//! generic over the backend alone. The SQL for each backend is a snapshot in the tests.

mod ahead;
mod change;
mod claim;
mod claimed;
mod condition;
mod filter_text;
mod finish;
mod inspect;
mod key_text;
mod lane;
mod lease;
mod minutes;
mod operation;
mod own_tables;
mod prefetch;
mod probe;
mod queue;
mod recall;
mod report;
mod settle;
mod statistics;
mod texts;
mod unusable_key;
mod upkeep;
mod walk;
mod writer;

pub use self::ahead::{ahead_due, ahead_key, head};
pub use self::change::{Change, Next};
pub use self::claim::{Claim, ClaimSome, FromLane, Pick, claim_key, claim_keys, due_keys};
pub use self::claimed::{Claimed, read_details};
pub use self::condition::{And, Archive, Condition, IfAny, StateCondition};
pub(crate) use self::condition::{FAILED, PENDING, finished};
pub use self::finish::{finish, finish_block, lock_leased, pass_on};
pub(crate) use self::inspect::ListedRowType;
pub use self::inspect::{InspectedRow, InspectedRowType, ListedRow, inspect, inspect_pending, is_archived, is_same};
pub use self::lane::{due_lanes, lane_of, lane_value, leased_in, next_lanes};
pub use self::lease::{LeasedAtOnce, lease_due, take, taken};
pub(crate) use self::operation::beyond;
pub use self::operation::{
    PageFrom, PageOrder, change_all, copy_rows, count, count_by_status, enqueue_if_newer, load_rows, lock_keys,
    read_keys, read_page, remove_all, sample, set_priority,
};
pub(crate) use self::own_tables::read_present;
pub use self::own_tables::{
    AuditEntry, PauseEnd, PollerEntry, end_limits, end_pause, insert_audit, insert_poller, present, read_audit,
    read_control, read_pollers, remove_poller, set_environment, set_limits, set_pause, update_audit, update_poller,
};
pub use self::prefetch::{RowVersion, lock_version, prefetch_rows};
pub use self::probe::{
    due_among_first, first_pending, longest_text, next_time, oldest_due, poison_among_last, probe_due, unknown_stages,
};
pub use self::queue::{
    ClaimedRow, ClaimedRowType, ErasedQueue, ErrorExampleRow, ErrorTextRow, ErrorTextRowType, KeyRow, KeyTextRow,
    LeaseDueRow, QueueOn, Row, SampleRow, TypedLeaseDueRow, TypedRow,
};
pub use self::recall::{recall, recall_last_attempt, recall_reservation, retake};
pub(crate) use self::report::{CHARACTERS_OF_TEXT, Split, WithBeginning};
pub use self::report::{
    SplitBy, WithTexts, count_by_value, count_pending, error_examples, error_sample, error_texts, sum_by_value,
    texts_after,
};
pub use self::settle::Settle;
pub(crate) use self::settle::{REASON_BYTES, that_it_stays};
pub use self::statistics::{FinishedRow, FinishedRowType, count_finished};
pub use self::texts::{Figure, TextColumn};
pub(crate) use self::texts::{read_figures, read_texts};
pub use self::unusable_key::{UnusableRow, key_texts, keys_found, set_aside};
pub use self::upkeep::{lock_expired, next_rows};
pub use self::walk::{ClaimFloor, Claimable, Scope};

pub(crate) use self::filter_text::filter_text;
pub(crate) use self::key_text::key_of;
pub(crate) use self::lane::read_lane;
pub(crate) use self::minutes::{
    MinuteKey, any_minute, first_minute, insert_minute, lock_minutes, read_minutes, remove_minutes,
    remove_minutes_before, update_minute,
};
pub(crate) use self::own_tables::NO_QUEUE;
pub(crate) use self::queue::{ErrorExampleRowType, KeyRowType, LoadedRowType, SampleRowType};
pub(crate) use self::upkeep::{ErasedKey, NextRows};
