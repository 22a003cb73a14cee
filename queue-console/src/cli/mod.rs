//! The command line.

mod changes;
mod control;
mod line;
mod replay;
mod reports;
mod times;

pub(crate) use self::changes::{Change, When};
pub(crate) use self::control::{Audit, Author, Environment, Limits, Migrate, Pause, Scope};
pub(crate) use self::line::{Command, Global, Line};
pub(crate) use self::replay::Replay;
pub(crate) use self::reports::{
    Doctor, Errors, Interval, Keys, List, OfRows, Order, Report, Serve, States, Statistics, Status, Top,
};
