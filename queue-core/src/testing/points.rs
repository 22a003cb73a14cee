//! The points that an attempt passes, and what a test has happen there; the ways in which a test has an attempt end; and a second
//! call of a leased row while the first one runs.

use std::time::Duration;

use diesel::result::Error as DieselError;

use crate::handler::{Lease, LeaseLost};
use crate::sync::in_test::{
    AtPoint, FailedCommit, make_second_call, set_at_point, set_failed_commit, set_late, set_wants_second_call,
};

pub use crate::sync::in_test::Thrown;

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

/// Has the next commit of an attempt on this thread fail. `is_committed`: it is committed, and the answer is lost.
pub fn fail_commit(error: DieselError, is_committed: bool) {
    set_failed_commit(Some(FailedCommit { error, is_committed }));
}

/// Has the handler that runs on this thread be past its timeout.
pub fn time_out() {
    set_late(true);
}

/// Forgets what [`fail_commit`] and [`time_out`] have set.
pub fn fail_no_more() {
    set_failed_commit(None);
    set_late(false);
}

/// Ends a lease, as the heartbeat, the clock or a shutdown does.
pub fn end_lease(lease: &Lease, why: LeaseLost) {
    lease.clock.end(why);
}

/// Has the calls of leased rows on this thread offer a second one, until the returned value is dropped.
pub fn offer_second_calls() -> OfferedCalls {
    set_wants_second_call(true);
    OfferedCalls
}

/// Ends the offers when it is dropped.
#[must_use = "it ends the offers when it is dropped"]
pub struct OfferedCalls;

impl Drop for OfferedCalls {
    fn drop(&mut self) {
        set_wants_second_call(false);
    }
}

/// Has another worker call the handler of the row that is being called on this thread, from the beginning to the end. Returns
/// whether it came to the end in this time.
pub fn second_call(at_most: Duration) -> bool {
    make_second_call(at_most)
}
