//! The queue's statements, one file each, and [`QueueOn`], which runs them.
//!
//! Every statement is a query node of the queue's own, generic over the entity and the backend. It writes identifiers
//! and binds, and never puts text around a value. The SQL for each backend is a snapshot in the tests.

mod archive;
mod archive_table;
mod backlog;
mod by_key;
mod change;
mod claim;
mod claim_from;
mod claim_on;
mod condition;
mod details;
mod due;
mod error_texts;
mod finish;
mod finish_block;
mod head;
mod inspect;
mod key_text;
mod keys;
mod lane;
mod lane_on;
mod lease_due;
mod lease_on;
mod limit;
mod literal;
mod names;
mod newer;
mod odd_time;
mod on_finish;
mod pass_on;
mod prefetch_rows;
mod priority;
mod probe_due;
mod probe_on;
mod queue_on;
mod recall;
mod recall_on;
mod recall_reservation;
mod remove;
mod retake;
mod rows;
mod sample;
mod scope;
mod select;
mod settle;
mod settle_on;
mod split;
mod statistics;
mod take;
mod turn;
mod undecodable;
mod unknown_stages;
mod walk;

pub use self::archive::{CopyRows, RemoveKeys};
pub use self::archive_table::Archive;
pub use self::backlog::{CountByValue, CountPending, CountRow, CountRowType, PendingRow, PendingRowType};
pub use self::by_key::{ClaimKey, ClaimKeys, DueKeys};
pub use self::change::{Change, Next};
pub use self::claim::{Claim, ClaimSome, Claimed};
pub use self::claim_from::ClaimFrom;
pub use self::claim_on::ClaimOn;
pub use self::condition::{And, Condition, IfAny, StateCondition};
pub use self::details::ReadDetails;
pub use self::error_texts::{ErrorTexts, TextsAfter, WithTexts};
pub use self::finish::{Finish, LockLeased};
pub use self::finish_block::FinishBlock;
pub use self::head::{AnotherIsLeased, Head};
pub use self::inspect::{Inspect, InspectedRow, InspectedRowType, IsArchived, IsSame};
pub use self::keys::{ChangeKeys, CountAmong, Keys};
pub use self::lane::{DueLanes, LanesOf, LeasedIn, NextLane};
pub use self::lane_on::{LaneOn, LaneRows};
pub use self::lease_due::{LeaseDue, LeasedAtOnce};
pub use self::lease_on::LeaseOn;
pub use self::newer::EnqueueIfNewer;
pub use self::pass_on::PassOn;
pub use self::prefetch_rows::{LockVersion, PrefetchRows, RowVersion};
pub use self::priority::SetPriority;
pub use self::probe_due::{ProbeDue, ProbeDueFrom};
pub use self::probe_on::ProbeOn;
pub use self::queue_on::QueueOn;
pub use self::recall::Recall;
pub use self::recall_on::RecallOn;
pub use self::recall_reservation::RecallReservation;
pub use self::remove::{Remove, RemoveAll};
pub use self::retake::Retake;
pub use self::rows::{
    ClaimedRow, ClaimedRowType, ErrorTextRow, KeyRow, KeyTextRow, LeaseDueRow, ReadFrom, SampleRow, ShownFrom,
    VersionedRow,
};
pub use self::sample::Sample;
pub use self::scope::{ClaimFloor, Scope};
pub use self::select::{Count, CountByStatus, Load};
pub use self::settle::{ChangeAll, Settle, SettleMany};
pub use self::settle_on::SettleOn;
pub use self::statistics::{CountFinished, FinishedRow, FinishedRowType};
pub use self::take::{Present, Take, Taken};
pub use self::undecodable::{KeyTexts, SetAside, UndecodableRow};
pub use self::unknown_stages::UnknownStages;

pub(crate) use self::claim::claimed_key;
pub(crate) use self::details::{claimed_within, with_details};
pub(crate) use self::literal::{literal, time_literal};
pub(crate) use self::turn::{due_time_alone_decides, is_plain, locks_what_it_passes};
