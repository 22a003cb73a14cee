//! How many answers one transaction applies.

/// The most answers in one transaction. With so many, a commit costs little for each.
const MOST: u32 = 64;

/// How many answers are applied alone at most before several are tried together again.
const MOST_ALONE: u32 = 512;

/// The number of answers that the next transaction may apply. It halves when one of them keeps the others from being
/// committed, and doubles when all are committed.
#[derive(Debug)]
pub(crate) struct BatchSize {
    size: u32,
    /// How many answers are still to be applied alone.
    alone: u32,
    /// How many are to be after the next transaction that is undone. It doubles each time.
    alone_next: u32,
}

impl BatchSize {
    /// Starts with the largest size: a transaction takes the answers that wait, and waits for none.
    pub(crate) fn new() -> Self {
        BatchSize { size: MOST, alone: 0, alone_next: 1 }
    }

    /// Returns how many answers to apply now.
    pub(crate) fn next(&mut self) -> u32 {
        match self.alone.checked_sub(1) {
            None => self.size,
            Some(alone) => {
                self.alone = alone;
                1
            }
        }
    }

    /// Notes that several answers were committed together.
    pub(crate) fn went_well(&mut self) {
        (self.size, self.alone_next) = ((self.size * 2).min(MOST), 1);
    }

    /// Notes that a transaction with this many answers was undone. They are applied alone, and some more after them.
    pub(crate) fn was_undone(&mut self, answers: u32) {
        self.size = (self.size / 2).max(2);
        self.alone = answers + self.alone_next;
        self.alone_next = (self.alone_next * 2).min(MOST_ALONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undone_transaction_halves_the_next_and_its_answers_are_applied_alone_first() {
        let mut size = BatchSize::new();
        assert_eq!(size.next(), MOST);
        size.was_undone(2);
        assert_eq!([size.next(), size.next(), size.next(), size.next()], [1, 1, 1, MOST / 2]);
        size.went_well();
        assert_eq!(size.next(), MOST);
    }

    #[test]
    fn a_handler_whose_answers_never_go_together_is_hardly_ever_asked_for_two() {
        let (mut size, mut alone, mut undone) = (BatchSize::new(), 0, 0);
        while alone < 10_000 {
            match size.next() {
                1 => alone += 1,
                several => {
                    undone += 1;
                    size.was_undone(several);
                }
            }
        }
        assert!(undone < 40, "{undone} of 10,000");
    }
}
