//! The language of `--where`, as far as it is the same on every database.

#[path = "filter/any_text.rs"]
mod any_text;
#[path = "filter/documented.rs"]
mod documented;
#[allow(dead_code, unused_imports, reason = "these tests ask no database")]
#[path = "../src/filter/mod.rs"]
mod filter;
#[path = "filter/refused.rs"]
mod refused;
#[allow(dead_code, reason = "the other roots need more of it")]
#[path = "filter/table.rs"]
mod table;
