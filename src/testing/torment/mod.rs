//! Ends the world at every point of an attempt, and compares the effects.
//!
//! `torment.rs` says what is tormented and how often; `run.rs` works the row once, from the same beginning each time; `watch.rs` sees
//! the points that an attempt passes, and ends the world at one of them; `effects.rs` and `tables.rs` read what was done; `story.rs`
//! tells it.

mod effects;
mod run;
mod story;
mod tables;
mod torment;
mod watch;

pub use self::story::{Effect, Story};
pub use self::torment::{Torment, TormentReport, torment};
pub use self::watch::step;
