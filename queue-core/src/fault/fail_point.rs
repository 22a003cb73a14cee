//! Fail points that tests configure by their names, as the crate `fail` describes.

/// Passes a fail point: nothing, unless a test has configured it.
macro_rules! fail_point {
    ($name:literal) => {
        ::fail::fail_point!($name)
    };
}

pub(crate) use fail_point;
