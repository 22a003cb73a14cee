//! States and operators: whatever a handler, an operator or the application's own SQL does to a row is never lost, in
//! any mode.

mod again;
mod exclusive;
mod neighbours;
mod restarted;
mod strict;
