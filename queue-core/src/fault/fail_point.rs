//! Fail points that tests configure by their names, as the crate `fail` describes.

/// Passes a fail point: does nothing, unless a test has configured it.
pub(crate) fn fail_point(name: &'static str) {
    ::fail::fail_point!(name);
}
