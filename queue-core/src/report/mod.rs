//! What a queue reports of itself.

mod counts;
mod fold;

pub use self::counts::StatusCounts;
