//! The points that an attempt passes, and what a test has happen there.

use crate::in_test::{AtPoint, set_at_point};

pub use crate::in_test::Thrown;

/// Has this happen at each point that an attempt on this thread passes, until the returned value is dropped.
pub fn at_points(happens: impl FnMut(&'static str) + 'static) -> AtPoints {
    AtPoints(set_at_point(Some(Box::new(happens))))
}

/// What happened at the points before.
#[must_use = "it ends what happens at the points when it is dropped"]
pub struct AtPoints(Option<AtPoint>);

impl Drop for AtPoints {
    fn drop(&mut self) {
        set_at_point(self.0.take());
    }
}
