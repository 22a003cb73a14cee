//! Retries, tries, timeout and names.

use super::*;

macro_rules! entity {
    ($name:ident, $(#[$attribute:meta])*) => {
        #[derive(Queryable, Selectable, Queueable)]
        #[diesel(table_name = payments)]
        $(#[$attribute])*
        struct $name {
            #[expect(dead_code)]
            id: i64,
        }
    };
}

const SECOND: Duration = Duration::from_secs(1);

fn delays<Q: Queueable>() -> [Option<Duration>; 4] {
    [1, 2, 3, 1000].map(|tries| Q::retry_policy().delay(tries))
}

fn is<Q: Queueable>(expected: Retry) -> bool {
    // The policy's fields are not visible behind the trait; its debug form shows all of them.
    format!("{:?}", Q::retry_policy()) == format!("{expected:?}")
}

#[test]
fn have_the_librarys_defaults() {
    entity!(Plain,);
    assert_eq!(Plain::SETTINGS, Settings::DEFAULT);
    assert!(is::<Plain>(Retry::DEFAULT));
}

#[test]
fn are_taken_from_the_attributes() {
    entity!(Tuned, #[queue(max_tries = 2147483647, timeout = "1500ms")] #[queue(prefix = "a_")]);
    let expected =
        Settings { max_tries: 2_147_483_647, timeout: Some(Duration::from_millis(1500)), ..Settings::DEFAULT };
    assert_eq!(Tuned::SETTINGS, expected);
    assert!(is::<Tuned>(Retry::DEFAULT));
    assert_eq!(<Tuned as Entity>::Queue::COLUMNS.status, "a_status");
}

#[test]
fn know_a_policy_that_never_retries() {
    entity!(Once, #[queue(retry = none)]);
    assert_eq!(delays::<Once>(), [None; 4]);
}

#[test]
fn know_a_fixed_delay() {
    entity!(Fixed, #[queue(retry = fixed("10s"))]);
    assert_eq!(delays::<Fixed>(), [Some(10 * SECOND); 4]);
    entity!(AtOnce, #[queue(retry = fixed("0s"),)]);
    assert_eq!(delays::<AtOnce>(), [Some(Duration::ZERO); 4]);
}

#[test]
fn know_a_linear_delay() {
    entity!(Linear, #[queue(retry = linear("5m"))]);
    assert_eq!(delays::<Linear>(), [300, 600, 900, 300_000].map(|seconds| Some(seconds * SECOND)));
    entity!(Capped, #[queue(retry = linear("5m", max = "10m",))]);
    assert_eq!(delays::<Capped>(), [300, 600, 600, 600].map(|seconds| Some(seconds * SECOND)));
}

#[test]
fn know_an_exponential_delay() {
    entity!(Doubled, #[queue(retry = exponential("10s"))]);
    assert!(is::<Doubled>(Retry::exponential(10 * SECOND)));
    entity!(Slow, #[queue(retry = exponential("2h", max = "1d", jitter = 0))]);
    assert!(is::<Slow>(Retry::exponential(7200 * SECOND).max(86_400 * SECOND).jitter_percent(0)));
    entity!(Shaken, #[queue(retry = exponential("10ms", jitter = 20))]);
    assert!(is::<Shaken>(Retry::exponential(Duration::from_millis(10)).jitter_percent(20)));
}

#[test]
fn know_a_policy_of_the_users() {
    #[derive(Debug)]
    struct Primes(&'static [u64]);

    impl RetryPolicy for Primes {
        fn delay(&self, tries: u32) -> Option<Duration> {
            self.0.get(tries as usize - 1).map(|seconds| Duration::from_secs(*seconds))
        }
    }

    entity!(Prime, #[queue(retry = custom(Primes(&[2, 3, 5])))]);
    assert_eq!(delays::<Prime>(), [Some(2 * SECOND), Some(3 * SECOND), Some(5 * SECOND), None]);
}
