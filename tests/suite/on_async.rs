//! The part of the suite that runs on diesel-async's connections too.

pub(crate) mod attempt;
pub(crate) mod bank;
pub(crate) mod events;
pub(crate) mod group;
pub(crate) mod lease;
mod migration;
mod misconduct;
pub(crate) mod modes;
mod session_settings;
pub(crate) mod stages;
pub(crate) mod warnings;
