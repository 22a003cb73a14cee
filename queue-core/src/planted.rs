//! Bugs that are planted to see whether the chaos harness finds them. Only its own build, with `--cfg queueable_planted`,
//! has any, and there the variable `QUEUEABLE_PLANTED` names the one that is alive. In every other build the answer is the
//! constant `false`.

/// Whether this bug is alive.
#[cfg(queueable_planted)]
pub(crate) fn planted(bug: &str) -> bool {
    static ALIVE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ALIVE.get_or_init(|| std::env::var("QUEUEABLE_PLANTED").ok()).as_deref() == Some(bug)
}
#[cfg(not(queueable_planted))]
pub(crate) const fn planted(_bug: &str) -> bool {
    false
}
