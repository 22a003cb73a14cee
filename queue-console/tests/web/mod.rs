//! The page over HTTP: who may ask, who may change something, and what is shown.

mod changes;
mod control;
mod export;
pub(crate) mod guard;
mod hidden;
mod keys;
mod reports;
pub(crate) mod served;
mod shown;
mod trouble;
