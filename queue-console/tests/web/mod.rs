//! The page over HTTP: who may ask, who may change something, and what is shown.

mod changes;
pub(crate) mod guard;
mod reports;
pub(crate) mod served;
mod shown;
mod trouble;
