//! The strict lanes whose first row the database refuses to write, as one process knows them.
//!
//! Nobody may pass such a row, so the process leaves its whole lane alone while the row waits for its next try. Other
//! processes find out for themselves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::refused_state::{Refusal, pause_after};
use crate::row::{Instant as Due, Lane, RowKey};
use crate::sync::Mutex;

/// The shortest time between two looks at a lane whose first row waits: somebody may have skipped the row.
const SHORTEST_LOOK: Duration = Duration::from_secs(3);

/// What each such lane adds to this time, so that many lanes are not looked at more often than a few.
const LOOK: Duration = Duration::from_millis(30);

/// How many lanes are remembered.
const REMEMBERED: usize = 100_000;

/// The strict lanes whose first row is refused, by the names of the lanes.
#[derive(Default)]
pub(super) struct LaneRefusals {
    lanes: Mutex<HashMap<Arc<str>, RefusedFirst>>,
}

/// The first row of a lane.
struct RefusedFirst {
    key: Arc<str>,
    due: Option<Due>,
    times: u32,
    until: Instant,
}

impl RefusedFirst {
    /// Tells whether this row is meant. With another due time, it was enqueued anew.
    fn is<K>(&self, key: &RowKey<K>, due: Option<Due>) -> bool {
        self.key == *key.text() && (self.due.is_none() || due.is_none() || self.due == due)
    }
}

impl LaneRefusals {
    /// Notes that the database has refused to write on the first row of a lane, and has done so at least `times` times
    /// before.
    pub(super) fn refuse<K>(&self, lane: &Lane, key: &RowKey<K>, due: Option<Due>, times: u32) -> Refusal {
        let (lane, mut lanes) = (lane.identity(), self.lanes.lock());
        let before = lanes.get(&lane).filter(|before| before.is(key, due)).map(|before| before.times);
        let is_first = before.is_none();
        if is_first && lanes.len() >= REMEMBERED {
            return Refusal { is_first, is_left_alone: false };
        }
        let times = before.unwrap_or(0).max(times);
        let until = Instant::now() + pause_after(times);
        lanes.insert(lane, RefusedFirst { key: key.text().clone(), due, times: times.saturating_add(1), until });
        Refusal { is_first, is_left_alone: true }
    }

    /// Tells whether the first row of this lane may be one that waits for its next try.
    pub(super) fn may_hold(&self, lane: &Lane) -> bool {
        self.lanes.lock().get(&lane.identity()).is_some_and(|first| first.until > Instant::now())
    }

    /// Returns how long to leave the lane alone whose first row this is, if the row waits for its next try.
    pub(super) fn holds<K>(&self, lane: &Lane, key: &RowKey<K>, due: Option<Due>) -> Option<Duration> {
        let lanes = self.lanes.lock();
        let first = lanes.get(&lane.identity()).filter(|first| first.is(key, due))?;
        let waits = first.until.checked_duration_since(Instant::now())?;
        let look = LOOK.saturating_mul(u32::try_from(lanes.len()).unwrap_or(u32::MAX)).max(SHORTEST_LOOK);
        Some(waits.min(look))
    }

    /// Tells whether this row is the refused first one of the lane, whether or not it waits.
    pub(super) fn contain<K>(&self, lane: &Lane, key: &RowKey<K>, due: Option<Due>) -> bool {
        self.lanes.lock().get(&lane.identity()).is_some_and(|first| first.is(key, due))
    }

    /// Forgets what was refused in a lane whose first row is another one by now.
    pub(super) fn end(&self, lane: &Lane) {
        self.lanes.lock().remove(&lane.identity());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{BoundValue, LaneValue};

    fn lane(company: &str) -> Lane {
        Lane::Value(LaneValue { identity: company.into(), bound: BoundValue::Text(company.to_owned()) })
    }

    #[test]
    fn a_refused_row_holds_its_lane_until_another_one_is_first() {
        let refusals = LaneRefusals::default();
        let (one, two) = (RowKey::new(1, "1"), RowKey::new(2, "2"));
        assert!(refusals.refuse(&lane("7"), &one, None, 0).is_first);
        assert!(refusals.may_hold(&lane("7")) && !refusals.may_hold(&lane("8")));
        assert!(refusals.holds(&lane("7"), &one, None).is_some_and(|look| look <= SHORTEST_LOOK));
        assert!(refusals.contain(&lane("7"), &one, None));
        assert_eq!(refusals.holds(&lane("7"), &two, None), None);
        assert!(!refusals.refuse(&lane("7"), &one, None, 0).is_first);
        refusals.end(&lane("7"));
        assert!(!refusals.may_hold(&lane("7")) && !refusals.contain(&lane("7"), &one, None));
    }

    #[test]
    fn a_row_that_was_enqueued_anew_is_another_one() {
        let refusals = LaneRefusals::default();
        let (lane, key) = (lane("7"), RowKey::new(1, "1"));
        let due = |second| Some(Due::from(chrono::DateTime::from_timestamp(second, 0).unwrap()));
        refusals.refuse(&lane, &key, due(1), 3);
        assert!(refusals.holds(&lane, &key, due(1)).is_some());
        assert_eq!(refusals.holds(&lane, &key, due(2)), None);
    }
}
