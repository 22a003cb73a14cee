//! What the console promises, on each database.

mod asking;
mod changes;
mod connections;
mod control;
mod doctor;
mod edges;
mod replay;
mod reports;
pub(crate) mod served;
mod shown;
