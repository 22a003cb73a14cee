//! The queue's statements, one file each, and [`ErasedQueue`], which runs them.
//!
//! Every statement is a query node of the queue's own, generic over the backend. It writes identifiers
//! and binds, and never puts text around a value. The SQL for each backend is a snapshot in the tests.

mod ahead;
mod archive;
mod archive_table;
mod backlog;
mod blocks;
mod by_key;
mod change;
mod claim;
mod claims;
mod condition;
mod details;
mod due;
mod erased;
mod error_texts;
mod finish;
mod head;
mod inspect;
mod key_text;
mod lane;
mod lanes;
mod lease_due;
mod leases;
mod limit;
mod literal;
mod newer;
mod next_lanes;
mod on_finish;
mod pauses;
mod prefetch_rows;
mod probe_due;
mod probes;
mod recall;
mod recalls;
mod rows;
mod scope;
mod select;
mod settle;
mod settles;
mod split;
mod statistics;
mod take;
mod undecodable;
mod unknown_stages;
mod walk;
mod writer;

pub use self::ahead::{AheadDue, AheadKey};
pub use self::archive::CopyRows;
pub use self::archive_table::Archive;
pub use self::backlog::{CountByValue, CountPending, CountRow, CountRowType, PendingRow, PendingRowType};
pub use self::blocks::{FinishBlock, PassOn};
pub use self::by_key::{ClaimKey, ClaimKeys, DueKeys};
pub use self::change::{Change, Next};
pub use self::claim::{Claim, ClaimFrom, ClaimId, ClaimSome, Claimed, FromLane, Pick};
pub use self::condition::{And, Condition, IfAny, StateCondition};
pub use self::details::ReadDetails;
pub use self::due::Claimable;
pub use self::erased::{ErasedQueue, QueueOn};
pub use self::error_texts::{ErrorTexts, TextsAfter, WithTexts};
pub use self::finish::{Finish, LockLeased};
pub use self::head::{AnotherIsLeased, Head};
pub use self::inspect::{Inspect, InspectedRow, InspectedRowType, IsArchived, IsSame};
pub use self::lane::{DueLanes, LanesOf, LeasedIn};
pub use self::lease_due::{LeaseDue, LeasedAtOnce};
pub use self::newer::EnqueueIfNewer;
pub use self::next_lanes::NextLanes;
pub use self::pauses::{EndPause, PauseEnd, ReadPauses, SetPause};
pub use self::prefetch_rows::{LockVersion, PrefetchRows, RowVersion};
pub use self::probe_due::{OldestDue, ProbeDue};
pub use self::recall::{Recall, Retake};
pub use self::rows::{
    ClaimedRow, ClaimedRowType, ErrorTextRow, KeyRow, KeyTextRow, LeaseDueRow, Row, SampleRow, TypedLeaseDueRow,
    TypedRow,
};
pub use self::scope::{ClaimFloor, Scope};
pub use self::select::{Count, CountByStatus, Keys, Load, Sample};
pub use self::settle::{ChangeAll, RemoveAll, SetPriority, Settle};
pub use self::statistics::{CountFinished, FinishedRow, FinishedRowType};
pub use self::take::{Present, Take, Taken};
pub use self::undecodable::{KeyTexts, SetAside, UndecodableRow};
pub use self::unknown_stages::UnknownStages;

pub(crate) use self::blocks::PASSED_NOT_ONE;
pub(crate) use self::literal::{literal, time_literal};
pub(crate) use self::rows::{ErrorTextRowType, KeyRowType, LoadedRowType, SampleRowType};
