//! Which of the due rows a worker claims, and what decides which one is next: the due time alone, an order, or the head
//! of an exclusive queue.

use crate::backend::QueueBackend;
use crate::row::{Instant, Options, RowKey};

/// Where a claim begins, and the receiver of its results.
pub trait ClaimFloor: std::fmt::Debug {
    /// Returns the earliest due time that the claim takes.
    fn floor(&self) -> Option<Instant>;

    /// Tells whether claims begin at a mark, even if this one begins below it.
    fn keeps_to_mark(&self) -> bool;

    /// Notes that the database has answered the claim.
    fn is_answered(&self);

    /// Notes that rows were claimed, with the due times of the earliest and the latest.
    fn has_claimed(&self, first: Option<Instant>, last: Option<Instant>);
}

/// Which of the due rows a worker claims: none with these keys, or only those with these, only those in these stages,
/// and none below the low-water mark.
#[derive(Debug)]
pub struct Scope<'a, K> {
    /// The keys of rows that the claim leaves alone.
    pub except: &'a [RowKey<K>],
    /// The keys of the only rows to claim, if they are known.
    pub only: Option<&'a [RowKey<K>]>,
    /// The texts of the stages, if not all of the entity's.
    pub stages: Option<&'a [&'static str]>,
    /// Where the claim begins, and the receiver of its results.
    pub claim_floor: Option<&'a dyn ClaimFloor>,
}

impl<K> Scope<'_, K> {
    /// All rows.
    pub const ALL: Self = Scope { except: &[], only: None, stages: None, claim_floor: None };

    /// Returns the earliest due time that is claimed.
    pub(crate) fn floor(&self) -> Option<Instant> {
        self.claim_floor.and_then(|claim_floor| claim_floor.floor())
    }

    /// Tells whether claims begin at the mark, even if this one begins below it.
    pub(crate) fn keeps_to_mark(&self) -> bool {
        self.claim_floor.is_some_and(|claim_floor| claim_floor.keeps_to_mark())
    }

    /// Tells whether the one statement that is prepared once and for all always finds the next row.
    pub(crate) fn is_plain<DB: QueueBackend>(&self, options: &Options) -> bool {
        let Options { order, exclusive, .. } = *options;
        !exclusive
            && !options.is_scheduled()
            && order.is_none_or(|order| order.age.is_none())
            && !self.locks_what_it_passes::<DB>(options)
    }

    /// Tells whether the due time alone decides which row is next.
    pub(crate) fn due_time_alone_decides(&self, options: &Options) -> bool {
        let Options { order, conditional, exclusive, .. } = *options;
        let is_plain = order.is_none() && !conditional && !exclusive && !options.is_scheduled();
        is_plain && self.stages.is_none() && self.only.is_none()
    }

    /// Tells whether a claim may pass rows that it does not take, and would keep their locks.
    pub(crate) fn locks_what_it_passes<DB: QueueBackend>(&self, options: &Options) -> bool {
        let Options { order, conditional, .. } = *options;
        let may_pass = conditional || order.is_some() || self.stages.is_some();
        DB::LOCKS_WHAT_IT_PASSES && may_pass
    }
}

impl<K> Clone for Scope<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Scope<'_, K> {}
