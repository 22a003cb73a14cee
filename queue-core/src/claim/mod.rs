//! Which due row is next, and how it is locked.
//!
//! Along the index, by a key that was read before, or by an update. Also which rows a claim passes over for a while.

mod by_key;
mod claim_style;
mod due_rows;
mod in_turn;
mod kept_rows;
mod lane_refusals;
mod lane_turns;
mod lanes;
mod low_water;
mod places;
mod prefetch_keys;
mod prefetch_rows;
mod refused_rows;
mod refused_state;
mod row_backoff;
mod rows_in_hand;
mod served_stages;
mod turn_holder;
mod update_then_select;

pub use self::by_key::{claim_one, claim_some};
pub use self::claim_style::ClaimStyle;
pub use self::low_water::{LowWater, LowWaterFloor};

pub(crate) use self::due_rows::{DueRows, PickedRows};
pub(crate) use self::kept_rows::ClaimedAs;
pub(crate) use self::lanes::LaneClaim;
pub(crate) use self::low_water::PROBE_INTERVAL;
pub(crate) use self::places::{HeldPlaces, Places, Standing};
pub(crate) use self::prefetch_keys::PrefetchedKeys;
pub(crate) use self::prefetch_rows::{PrefetchedRows, ReadRow};
pub(crate) use self::refused_state::Refusal;
pub(crate) use self::rows_in_hand::RowInHand;
pub(crate) use self::update_then_select::update_then_select;
