//! Retry policies: pure functions from the number of tries to a delay.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::row::MAX_DELAY;

/// Decides how long to wait after a failure.
///
/// Implement it for your own policy and name it with `#[queue(retry = custom(MyPolicy))]`, or hand it to the poller.
/// The delay is counted by the database's clock, from the end of the attempt and not from its start.
///
/// ```
/// use std::time::Duration;
/// use queueable::RetryPolicy;
///
/// /// Five quick tries, then one a day.
/// #[derive(Debug)]
/// struct Patient;
///
/// impl RetryPolicy for Patient {
///     fn delay(&self, tries: u32) -> Option<Duration> {
///         Some(Duration::from_secs(if tries <= 5 { 10 } else { 24 * 60 * 60 }))
///     }
/// }
/// ```
pub trait RetryPolicy: Send + Sync + std::fmt::Debug {
    /// Returns the delay after the attempt with this number (the first is 1), or `None` to give up.
    ///
    /// The queue asks for numbers from 1 to 2^31 - 1, and the policy must answer for each. Delays above [`MAX_DELAY`]
    /// are cut.
    fn delay(&self, tries: u32) -> Option<Duration>;

    /// Returns the share of the delay, from 0 to 1, by which it may be lengthened at random. The default is 0.
    fn jitter(&self) -> f64 {
        0.0
    }
}

/// The policies that come with the library.
///
/// ```
/// use std::time::Duration;
/// use queueable::{Retry, RetryPolicy};
///
/// let retry = Retry::exponential(Duration::from_secs(10)).max(Duration::from_secs(60));
/// assert_eq!(retry.delay(1), Some(Duration::from_secs(10)));
/// assert_eq!(retry.delay(3), Some(Duration::from_secs(40)));
/// assert_eq!(retry.delay(1_000_000), Some(Duration::from_secs(60)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Retry {
    /// Gives up after the first failure.
    None,
    /// Always waits the same time.
    Fixed {
        /// The delay.
        delay: Duration,
    },
    /// Waits `step` times the number of tries.
    Linear {
        /// The delay after the first try, and what each further try adds.
        step: Duration,
        /// The longest delay.
        max: Duration,
    },
    /// Doubles the delay after every try.
    Exponential {
        /// The delay after the first try.
        first: Duration,
        /// The longest delay.
        max: Duration,
        /// The share by which a delay may be lengthened at random, in percent. It keeps messages that failed together
        /// from coming back together.
        jitter_percent: u8,
    },
}

impl Retry {
    /// The policy of an entity that names none: exponential from 10 seconds to an hour, with 10 % jitter.
    pub const DEFAULT: Retry = Retry::exponential(Duration::from_secs(10));

    /// The cap of a growing delay that names none: one hour.
    pub const DEFAULT_MAX: Duration = Duration::from_secs(60 * 60);

    /// Waits `delay` after every failure.
    pub const fn fixed(delay: Duration) -> Self {
        Retry::Fixed { delay }
    }

    /// Waits `step` times the number of tries, up to [`MAX_DELAY`]: with five minutes the delays are 5, 10, 15, ...
    /// minutes.
    pub const fn linear(step: Duration) -> Self {
        Retry::Linear { step, max: MAX_DELAY }
    }

    /// Waits `first`, then twice as long after every further failure, up to [`Retry::DEFAULT_MAX`], with 10 % jitter.
    pub const fn exponential(first: Duration) -> Self {
        Retry::Exponential { first, max: Retry::DEFAULT_MAX, jitter_percent: 10 }
    }

    /// Caps a growing delay. A fixed delay and `None` stay as they are.
    pub const fn max(self, max: Duration) -> Self {
        match self {
            Retry::Linear { step, .. } => Retry::Linear { step, max },
            Retry::Exponential { first, jitter_percent, .. } => Retry::Exponential { first, max, jitter_percent },
            other => other,
        }
    }

    /// Sets the jitter of an exponential delay in percent; values above 100 count as 100.
    pub const fn jitter_percent(self, percent: u8) -> Self {
        match self {
            Retry::Exponential { first, max, .. } => {
                Retry::Exponential { first, max, jitter_percent: if percent > 100 { 100 } else { percent } }
            }
            other => other,
        }
    }
}

impl RetryPolicy for Retry {
    fn delay(&self, tries: u32) -> Option<Duration> {
        let delay = match *self {
            Retry::None => return None,
            Retry::Fixed { delay } => delay,
            Retry::Linear { step, max } => step.saturating_mul(tries).min(max),
            Retry::Exponential { first, max, .. } => {
                let doublings = tries.saturating_sub(1);
                1u32.checked_shl(doublings).map_or(max, |factor| first.saturating_mul(factor)).min(max)
            }
        };
        Some(delay.min(MAX_DELAY))
    }

    fn jitter(&self) -> f64 {
        match *self {
            Retry::Exponential { jitter_percent, .. } => f64::from(jitter_percent.min(100)) / 100.0,
            _ => 0.0,
        }
    }
}

/// Returns the delay with its jitter; `random` is a number from 0 to 1.
pub(crate) fn jittered(delay: Duration, jitter: f64, random: f64) -> Duration {
    let share = (jitter.clamp(0.0, 1.0) * random.clamp(0.0, 1.0)).max(0.0);
    delay.saturating_add(delay.min(MAX_DELAY).mul_f64(share)).min(MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn linear_is_the_articles_five_minutes_times_the_tries() {
        let retry = Retry::linear(300 * SECOND);
        assert_eq!(retry.delay(1), Some(300 * SECOND));
        assert_eq!(retry.delay(2), Some(600 * SECOND));
        assert_eq!(retry.delay(3), Some(900 * SECOND));
    }

    #[test]
    fn jitter_only_lengthens_and_never_leaves_the_range() {
        assert_eq!(jittered(10 * SECOND, 0.1, 0.0), 10 * SECOND);
        assert_eq!(jittered(10 * SECOND, 0.1, 1.0), 11 * SECOND);
        assert_eq!(jittered(Duration::MAX, 1.0, 1.0), MAX_DELAY);
        assert_eq!(jittered(10 * SECOND, f64::NAN, 0.5), 10 * SECOND);
    }
}
