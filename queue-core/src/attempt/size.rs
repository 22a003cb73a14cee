//! How many rows the next group, claim or transaction holds.

use std::time::{Duration, Instant};

/// How long an entity's messages run one by one after its groups met a conflict. Groups that hold up each other's rows
/// would do so again at once.
const ALONE_AFTER_CONFLICT: Duration = Duration::from_secs(5);

/// After how many rows at most several are tried together again.
const MOST_ALONE: u32 = 512;

/// The number of rows that are processed together. It doubles while they come back full and all goes well, and halves after
/// trouble.
#[derive(Debug)]
pub(crate) struct Size {
    most: u32,
    size: u32,
    /// How long a row has taken lately.
    turn: Option<Duration>,
    /// How many rows have the time to be processed together.
    fits: u32,
    /// How many rows still have to run alone.
    alone: u32,
    /// How many are to, after the next time that one row has kept the others from success. It doubles each time.
    alone_next: u32,
    /// Until when every row runs alone.
    alone_until: Option<Instant>,
}

impl Size {
    /// Begins with this size, which grows up to `most`.
    pub(crate) fn new(size: u32, most: u32) -> Self {
        Size { most: most.max(1), size, turn: None, fits: u32::MAX, alone: 0, alone_next: 1, alone_until: None }
    }

    /// Returns how many rows come next.
    pub(crate) fn next(&mut self, now: Instant) -> u32 {
        self.alone_until = self.alone_until.filter(|until| *until > now);
        match self.alone.checked_sub(1) {
            Some(alone) => {
                self.alone = alone;
                1
            }
            None if self.alone_until.is_some() => 1,
            None => self.size,
        }
    }

    /// Notes that a claim of at most `of` rows has brought this many. A row that ran alone for a reason says nothing about
    /// groups.
    pub(crate) fn note_claim(&mut self, claimed: u32, of: u32) {
        match (of < self.size, claimed) {
            (true, _) => {}
            (false, claimed) if claimed >= of => self.grow(),
            (false, claimed) if claimed > of / 2 => {}
            (false, _) => self.halve(1),
        }
    }

    /// Notes how long a row has taken, or one of several on average. No more rows are processed together than take
    /// `together` at most.
    pub(crate) fn note_turn(&mut self, took: Duration, together: Duration) {
        let turn = self.turn.map_or(took, |turn| (turn * 3 + took) / 4);
        let fits = u32::try_from(together.as_nanos() / turn.as_nanos().max(1)).unwrap_or(u32::MAX);
        // Powers of two: each size is a statement of its own, which every session keeps.
        (self.turn, self.fits) = (Some(turn), 1 << fits.max(1).ilog2());
        self.size = self.size.min(self.fits);
    }

    /// Notes that nothing was due: the next rows are spread over the workers, and none waits for the end of its neighbours.
    pub(crate) fn note_idle(&mut self) {
        (self.size, self.alone) = (1, 0);
    }

    /// Notes that one of at most `of` rows has failed.
    pub(crate) fn note_failure(&mut self, of: u32) {
        if of >= self.size {
            self.halve(1);
        }
    }

    /// Notes that the rows hindered other sessions, or these hindered them.
    pub(crate) fn note_conflict(&mut self, now: Instant) {
        self.halve(1);
        self.alone_until = Some(now + ALONE_AFTER_CONFLICT);
    }

    /// Notes that a transaction with this many rows was undone: each of them runs alone.
    pub(crate) fn note_undone(&mut self, rows: u32) {
        self.halve(1);
        self.alone = rows;
    }

    /// Notes that several rows were committed together.
    pub(crate) fn note_success(&mut self) {
        self.grow();
        self.alone_next = 1;
    }

    /// Notes that one row has kept the others from success. They run alone, and so do some after them.
    pub(crate) fn note_hindered(&mut self) {
        self.halve(2);
        self.alone = self.alone_next;
        self.alone_next = (self.alone_next * 2).min(MOST_ALONE);
    }

    fn grow(&mut self) {
        self.size = self.size.saturating_mul(2).min(self.most.min(self.fits));
    }

    fn halve(&mut self, least: u32) {
        self.size = (self.size / 2).max(least).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes rows that come back full, and returns the sizes.
    fn grow(size: &mut Size, turns: usize, now: Instant) -> Vec<u32> {
        let turn = |_| {
            let of = size.next(now);
            size.note_claim(of, of);
            of
        };
        (0..turns).map(turn).collect()
    }

    #[test]
    fn a_group_doubles_while_it_comes_back_full_and_is_one_message_when_nothing_is_due() {
        let (mut size, now) = (Size::new(1, 50), Instant::now());
        assert_eq!(grow(&mut size, 8, now), [1, 2, 4, 8, 16, 32, 50, 50]);
        size.note_claim(40, 50);
        assert_eq!(size.next(now), 50);
        size.note_claim(3, 50);
        assert_eq!(size.next(now), 25);
        size.note_idle();
        assert_eq!(size.next(now), 1);
    }

    #[test]
    fn a_failure_halves_the_group_and_it_grows_again() {
        let (mut size, now) = (Size::new(1, 50), Instant::now());
        grow(&mut size, 7, now);
        size.note_failure(50);
        assert_eq!(grow(&mut size, 3, now), [25, 50, 50]);
        for _ in 0..9 {
            let of = size.next(now);
            size.note_failure(of);
        }
        assert_eq!(size.next(now), 1);
    }

    #[test]
    fn rows_are_as_many_as_have_the_time_to_be_together() {
        let (mut size, now, together) = (Size::new(1, 50), Instant::now(), Duration::from_millis(50));
        size.note_turn(Duration::from_millis(3), together);
        assert_eq!(grow(&mut size, 6, now), [1, 2, 4, 8, 16, 16]);
        // One row is slow, and the average forgets it.
        size.note_turn(Duration::from_millis(80), together);
        assert_eq!(size.next(now), 2);
        (0..20).for_each(|_| size.note_turn(Duration::from_millis(3), together));
        assert_eq!(grow(&mut size, 4, now), [2, 4, 8, 16]);
        (0..20).for_each(|_| size.note_turn(Duration::from_millis(80), together));
        assert_eq!(grow(&mut size, 2, now), [1, 1]);
        size.note_turn(Duration::ZERO, Duration::MAX);
        assert_eq!(grow(&mut size, 7, now), [1, 2, 4, 8, 16, 32, 50]);
    }

    #[test]
    fn the_rows_of_an_undone_group_run_alone_before_the_next_group() {
        let (mut size, now) = (Size::new(1, 50), Instant::now());
        grow(&mut size, 3, now);
        size.note_undone(4);
        assert_eq!(grow(&mut size, 7, now), [1, 1, 1, 1, 4, 8, 16]);
    }

    #[test]
    fn after_a_conflict_every_message_runs_alone_for_a_while() {
        let (mut size, now) = (Size::new(1, 50), Instant::now());
        grow(&mut size, 5, now);
        size.note_conflict(now);
        assert_eq!(grow(&mut size, 100, now + ALONE_AFTER_CONFLICT / 2), [1; 100]);
        assert_eq!(grow(&mut size, 2, now + ALONE_AFTER_CONFLICT), [16, 32]);
    }

    #[test]
    fn an_undone_transaction_halves_the_next_and_some_answers_are_applied_alone_first() {
        let (mut size, now) = (Size::new(64, 64), Instant::now());
        assert_eq!(size.next(now), 64);
        size.note_hindered();
        assert_eq!([size.next(now), size.next(now), size.next(now)], [1, 32, 32]);
        size.note_success();
        assert_eq!(size.next(now), 64);
    }

    #[test]
    fn a_handler_whose_answers_never_go_together_is_hardly_ever_asked_for_two() {
        let (mut size, mut alone, mut undone) = (Size::new(64, 64), 0, 0);
        while alone < 10_000 {
            match size.next(Instant::now()) {
                1 => alone += 1,
                _ => {
                    undone += 1;
                    size.note_hindered();
                }
            }
        }
        assert!(undone < 40, "{undone} of 10,000");
    }
}
