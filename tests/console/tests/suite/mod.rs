//! What the console promises, on each database.

mod changes;
mod connections;
mod control;
mod reports;
pub(crate) mod served;
