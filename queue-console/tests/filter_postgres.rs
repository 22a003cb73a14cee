//! The language of `--where` on PostgreSQL.

#[path = "filter/accepted.rs"]
mod accepted;
#[allow(unused, reason = "the suite of the library needs more of it")]
#[path = "../../tests/db/postgres.rs"]
mod db;
#[allow(dead_code, unused_imports, reason = "the commands need more of it")]
#[path = "../src/filter/mod.rs"]
mod filter;
#[path = "filter/injection.rs"]
mod injection;
#[path = "filter/postgres.rs"]
mod only;
#[path = "filter/queue.rs"]
mod queue;
#[path = "filter/rows.rs"]
mod rows;
#[path = "filter/table.rs"]
mod table;
