//! What operators ask of running queues, in the optional control table: pauses.
//!
//! Pollers that take part read the table once a second, and no claim does. Here are the values, and their reading and
//! writing; what a pause does is in `poller`.

mod pause;
mod paused;

pub use self::pause::Pause;
pub use self::paused::{Paused, pauses};

pub(crate) use self::pause::{name_of, pause, unpause};
pub(crate) use self::paused::{Nonsense, StandingPause, check_control, pauses_of, standing_pauses};
