//! Which due row is next, and how it is locked.
//!
//! Along the index, by a key that was read before, or by an update. Also which rows a claim passes over for a while.

mod candidates;
mod claim;
mod due_rows;
mod lane_turns;
mod lanes;
mod low_water;
mod overview;
mod passed_rows;
mod places;
mod prefetch_keys;
mod prefetch_rows;
mod refused_state;
mod survey;
mod way;

pub use self::claim::{claim_one, claim_some};
pub use self::low_water::{LowWater, LowWaterFloor};
pub use self::way::ClaimStyle;

pub(crate) use self::claim::{ClaimTerms, claim, update_then_select};
pub(crate) use self::due_rows::{DueRows, PickedRows, RowInHand};
pub(crate) use self::low_water::PROBE_INTERVAL;
pub(crate) use self::passed_rows::ClaimedAs;
pub(crate) use self::places::{HeldPlaces, Places, Standing};
pub(crate) use self::prefetch_keys::PrefetchedKeys;
pub(crate) use self::prefetch_rows::{PrefetchedRows, ReadRow};
pub(crate) use self::refused_state::Refusal;
pub(crate) use self::way::{LeaseStatements, LeaseWay};
