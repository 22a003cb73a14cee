//! What the page promises, on each database.

mod accessible;
mod entities;
mod hostile;
mod served;
mod walk;
mod whole_way;
