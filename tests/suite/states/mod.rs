//! States and operators: what a handler, an operator or the application's own SQL does to a row is never lost, whatever the
//! mode.

mod again;
mod exclusive;
mod neighbours;
mod resumed;
mod strict;
