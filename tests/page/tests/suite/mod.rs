//! What the page promises, on each database.

mod accessible;
pub(crate) mod entities;
mod gate;
mod hostile;
mod operation;
pub(crate) mod served;
#[path = "../../../suite/thorough.rs"]
mod thorough;
mod walk;
mod whole_way;
mod wide;
mod without;
