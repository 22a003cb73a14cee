//! Where tests break an attempt.
//!
//! A fail point is a place at which a test can stop, delay or break an attempt; the feature `failpoints` compiles it in.

#[cfg(feature = "failpoints")]
mod fail_point;
#[cfg(not(feature = "failpoints"))]
#[path = "no_fail_point.rs"]
mod fail_point;

pub(crate) use self::fail_point::fail_point;
