//! How many answers one transaction applies.

/// How many answers are applied alone at most before several are tried together again.
const MOST_ALONE: u32 = 512;

/// The number of answers that the next transaction may apply. It halves when one of them keeps the others from being
/// committed, and doubles when all are committed.
#[derive(Debug)]
pub(crate) struct BatchSize {
    most: u32,
    size: u32,
    /// How many answers are still to be applied alone.
    alone: u32,
    /// How many are to be after the next transaction that is undone. It doubles each time.
    alone_next: u32,
}

impl BatchSize {
    /// Starts with the largest size: a transaction takes the answers that wait, and waits for none.
    pub(crate) fn new(most: u32) -> Self {
        BatchSize { most, size: most, alone: 0, alone_next: 1 }
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
        (self.size, self.alone_next) = (self.size.saturating_mul(2).min(self.most), 1);
    }

    /// Notes that a transaction was undone. Its answers are applied alone, and so are some after them.
    pub(crate) fn was_undone(&mut self) {
        self.size = (self.size / 2).max(2).min(self.most);
        self.alone = self.alone_next;
        self.alone_next = (self.alone_next * 2).min(MOST_ALONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undone_transaction_halves_the_next_and_some_answers_are_applied_alone_first() {
        let mut size = BatchSize::new(64);
        assert_eq!(size.next(), 64);
        size.was_undone();
        assert_eq!([size.next(), size.next(), size.next()], [1, 32, 32]);
        size.went_well();
        assert_eq!(size.next(), 64);
    }

    #[test]
    fn a_handler_whose_answers_never_go_together_is_hardly_ever_asked_for_two() {
        let (mut size, mut alone, mut undone) = (BatchSize::new(64), 0, 0);
        while alone < 10_000 {
            match size.next() {
                1 => alone += 1,
                _ => {
                    undone += 1;
                    size.was_undone();
                }
            }
        }
        assert!(undone < 40, "{undone} of 10,000");
    }
}
