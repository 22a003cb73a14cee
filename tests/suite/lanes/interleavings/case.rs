//! What happens in one case, drawn from its seed.

use fastrand::Rng;

use super::judge::Rules;

/// After this many tries a row has failed for good.
pub(super) const MAX_TRIES: u32 = 3;

/// What a handler answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Retry,
    Fatal,
}

/// One attempt, as it is planned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) answer: Answer,
    /// How long it takes, in round trips to the journal's database.
    pub(super) round_trips: u8,
    /// Whether its session is ended, the first time.
    pub(super) loses_session: bool,
}

/// One row.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) value: Option<i64>,
    /// The row with the highest rank comes first, where the entity says so.
    pub(super) rank: i64,
    /// Its due time, in seconds of the past.
    pub(super) due: u8,
    /// Whether it is enqueued while others are worked.
    pub(super) comes_later: bool,
    pub(super) steps: Vec<Step>,
}

/// What somebody does meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    Enqueue(i64),
    Skip(i64),
}

/// A case.
#[derive(Debug, Default)]
pub(super) struct Case {
    pub(super) rows: Vec<Row>,
    /// Each happens when the journal has so many entries more than before the case.
    pub(super) deeds: Vec<(usize, Deed)>,
}

impl Case {
    /// Draws the case of a seed. Its rows have the keys from `first` on.
    pub(super) fn draw(seed: u64, first: i64, rules: Rules, sessions_end: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let count = random.i64(6..=20);
        let values = random.i64(1..=4);
        let (may_fail, may_lose) = (random.u8(0..40), sessions_end && random.u8(..10) == 0);
        let slowness = random.u8(1..6);
        let mut dues: Vec<u8> = (0..60).collect();
        random.shuffle(&mut dues);
        let mut ranks: Vec<i64> = (0..60).collect();
        random.shuffle(&mut ranks);
        let rows: Vec<_> = (0..count)
            .zip(dues.into_iter().zip(ranks))
            .map(|(at, (due, rank))| Row {
                id: first + at,
                value: Some(random.i64(0..=values)).filter(|value| *value > 0),
                rank,
                due,
                comes_later: random.u8(..6) == 0,
                steps: steps(&mut random, may_fail, slowness),
            })
            .collect();
        let mut case = Case { rows, deeds: Vec::new() };
        if may_lose {
            let unlucky = random.usize(..case.rows.len());
            case.rows[unlucky].steps[0].loses_session = true;
        }
        let most = case.rows.len() * 2;
        for row in &case.rows {
            if row.comes_later {
                case.deeds.push((random.usize(1..most), Deed::Enqueue(row.id)));
            } else if random.u8(..16) == 0 && !rules.is_by_rank {
                case.deeds.push((random.usize(1..most), Deed::Skip(row.id)));
            }
        }
        case.deeds.sort_by_key(|(after, _)| *after);
        case
    }

    pub(super) fn row(&self, id: i64) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }
}

fn steps(random: &mut Rng, may_fail: u8, slowness: u8) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..MAX_TRIES {
        let answer = match random.u8(..100) {
            fails if fails < may_fail => Answer::Retry,
            97.. => Answer::Fatal,
            _ => Answer::Done,
        };
        steps.push(Step { answer, round_trips: random.u8(..slowness), loses_session: false });
        if answer != Answer::Retry {
            break;
        }
    }
    steps
}

impl Row {
    /// The status in which it ends if nobody skips it.
    pub(super) fn end(&self) -> &'static str {
        match self.steps.last().map(|step| step.answer) {
            Some(Answer::Done) => "SUCCESS",
            _ => "FAILED",
        }
    }

    /// The step of this try.
    pub(super) fn step(&self, try_number: u32) -> Step {
        let at = usize::try_from(try_number).map_or(0, |number| number.saturating_sub(1));
        self.steps[at.min(self.steps.len() - 1)]
    }
}
