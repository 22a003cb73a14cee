//! The number of messages that an entity's next group may hold: it follows the backlog.

use std::time::{Duration, Instant};

/// How long an entity's messages run one by one after its groups met a conflict. Groups that hold up each other's rows
/// would do so again at once.
const AFTER_CONFLICT: Duration = Duration::from_secs(5);

/// The size of an entity's groups. It is one while little is due, so that the messages are spread over the workers and
/// none waits for the end of its neighbours. It doubles while groups come back full.
#[derive(Debug)]
pub(crate) struct GroupSize {
    most: u32,
    size: u32,
    /// How many messages still have to run alone, because a group with them was undone.
    alone: u32,
    /// Until when every message runs alone.
    alone_until: Option<Instant>,
}

/// The result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupResult {
    /// This many rows were claimed and handled, of at most this many.
    Well { claimed: u32, of: u32 },
    /// Nothing was due.
    Idle,
    /// A message failed, of at most this many.
    WithFailure { of: u32 },
    /// The group was undone, and this many messages have to run alone.
    Undone(u32),
    /// There was a conflict with others.
    Conflict,
}

impl GroupSize {
    /// Starts with a size of one, which grows up to `most`.
    pub(crate) fn new(most: u32) -> Self {
        GroupSize { most: most.max(1), size: 1, alone: 0, alone_until: None }
    }

    /// Returns how many messages to claim now.
    pub(crate) fn next(&mut self, now: Instant) -> u32 {
        self.alone_until = self.alone_until.filter(|until| *until > now);
        if self.alone > 0 {
            self.alone -= 1;
            return 1;
        }
        if self.alone_until.is_some() { 1 } else { self.size }
    }

    /// Learns from the result of a turn.
    pub(crate) fn learn(&mut self, result: GroupResult, now: Instant) {
        let halved = (self.size / 2).max(1);
        match result {
            GroupResult::Idle => (self.size, self.alone) = (1, 0),
            // A message that ran alone for a reason says nothing about groups.
            GroupResult::Well { of, .. } | GroupResult::WithFailure { of } if of < self.size => {}
            GroupResult::Well { claimed, of } if claimed >= of => {
                self.size = self.size.saturating_mul(2).min(self.most)
            }
            GroupResult::Well { claimed, of } if claimed > of / 2 => {}
            GroupResult::Well { .. } | GroupResult::WithFailure { .. } => self.size = halved,
            GroupResult::Undone(rows) => (self.size, self.alone) = (halved, rows),
            GroupResult::Conflict => (self.size, self.alone_until) = (halved, Some(now + AFTER_CONFLICT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(of: u32) -> GroupResult {
        GroupResult::Well { claimed: of, of }
    }

    /// Takes turns that come back full, and returns the sizes.
    fn grow(size: &mut GroupSize, turns: usize, now: Instant) -> Vec<u32> {
        let turn = |_| {
            let of = size.next(now);
            size.learn(full(of), now);
            of
        };
        (0..turns).map(turn).collect()
    }

    #[test]
    fn a_group_doubles_while_it_comes_back_full_and_is_one_message_when_nothing_is_due() {
        let (mut size, now) = (GroupSize::new(50), Instant::now());
        assert_eq!(grow(&mut size, 8, now), [1, 2, 4, 8, 16, 32, 50, 50]);
        size.learn(GroupResult::Well { claimed: 40, of: 50 }, now);
        assert_eq!(size.next(now), 50);
        size.learn(GroupResult::Well { claimed: 3, of: 50 }, now);
        assert_eq!(size.next(now), 25);
        size.learn(GroupResult::Idle, now);
        assert_eq!(size.next(now), 1);
    }

    #[test]
    fn a_failure_halves_the_group_and_it_grows_again() {
        let (mut size, now) = (GroupSize::new(50), Instant::now());
        grow(&mut size, 7, now);
        size.learn(GroupResult::WithFailure { of: 50 }, now);
        assert_eq!(grow(&mut size, 3, now), [25, 50, 50]);
        for _ in 0..9 {
            let of = size.next(now);
            size.learn(GroupResult::WithFailure { of }, now);
        }
        assert_eq!(size.next(now), 1);
    }

    #[test]
    fn the_rows_of_an_undone_group_run_alone_before_the_next_group() {
        let (mut size, now) = (GroupSize::new(50), Instant::now());
        grow(&mut size, 3, now);
        size.learn(GroupResult::Undone(4), now);
        assert_eq!(grow(&mut size, 7, now), [1, 1, 1, 1, 4, 8, 16]);
    }

    #[test]
    fn after_a_conflict_every_message_runs_alone_for_a_while() {
        let (mut size, now) = (GroupSize::new(50), Instant::now());
        grow(&mut size, 5, now);
        size.learn(GroupResult::Conflict, now);
        assert_eq!(grow(&mut size, 100, now + AFTER_CONFLICT / 2), [1; 100]);
        assert_eq!(grow(&mut size, 2, now + AFTER_CONFLICT), [16, 32]);
    }
}
