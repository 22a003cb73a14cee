//! The page over HTTP: who may ask, who may change something, and what is shown.

mod changes;
mod guard;
mod reports;
mod served;
mod shown;
mod trouble;
