//! Bugs that are planted to see whether the chaos harness finds them. Only its own build, with `--cfg queueable_planted`,
//! has any, and there the variable `QUEUEABLE_PLANTED` names the one that is alive. In every other build the answers are
//! constants, and nothing of it is left in the program.

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

/// Whether a statement of the sentinel's is left out.
pub(crate) fn leaves_out(sql: &str) -> bool {
    planted("no sentinel") && !sql.starts_with("ROLLBACK")
        || planted("failures keep their effects") && sql.starts_with("ROLLBACK TO")
}

/// The claim's lock, or what is left of it.
pub(crate) fn claim_lock(lock: &'static str) -> &'static str {
    if planted("claim without a lock") {
        ""
    } else if planted("no SKIP LOCKED") {
        lock.trim_end_matches(" SKIP LOCKED")
    } else {
        lock
    }
}
