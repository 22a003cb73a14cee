//! Places at which a test can stop, delay or break an attempt. They are compiled in by the feature `failpoints` only.

/// Passes a fail point: nothing, unless the feature `failpoints` is on and a test has configured it by its name, as the
/// crate `fail` describes.
#[cfg(feature = "failpoints")]
macro_rules! fail_point {
    ($name:literal) => {
        ::fail::fail_point!($name)
    };
}
#[cfg(not(feature = "failpoints"))]
macro_rules! fail_point {
    ($name:literal) => {};
}
pub(crate) use fail_point;
