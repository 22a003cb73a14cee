//! Operates the queues of [queueable](https://docs.rs/queueable) from a terminal: what is due, why nothing runs, which rows have
//! failed and why; retries, pauses and limits; migrations.
//!
//! The console is a program of the application's own, because the entities are its types. It has three lines:
//!
//! ```no_run
//! use diesel::prelude::*;
//! use queueable::Queueable;
//! use queueable_console::Console;
//!
//! diesel::table! { payments (id) { id -> BigInt, company_id -> BigInt, amount_cents -> BigInt, } }
//!
//! #[derive(Queryable, Selectable, Queueable)]
//! struct Payment {
//!     id: i64,
//! }
//!
//! fn main() -> queueable_console::Result {
//!     Console::<SqliteConnection>::new().entity::<Payment>().run()
//! }
//! ```
//!
//! ```text
//! $ console --database-url app.sqlite status
//! $ console top
//! $ console list payments --failed --where "company_id = 3345 and amount_cents > 100000"
//! $ console retry payments --failed --where "company_id = 3345" --by ops@example.org --reason "ticket 812"
//! ```
//!
//! A package that switches on one database may write `Console::new()`: the connection's type follows from the feature.
//!
#![doc = include_str!("../docs/filter.md")]
#![recursion_limit = "256"]

mod change;
mod cli;
mod command;
mod console;
mod database;
mod failure;
mod filter;
mod queue;
#[cfg(feature = "replay")]
mod replay;
#[cfg(not(feature = "replay"))]
#[path = "without_replay.rs"]
mod replay;
mod shown;
#[cfg(feature = "top")]
mod top;
#[cfg(not(feature = "top"))]
#[path = "without_top.rs"]
mod top;

#[cfg(feature = "web")]
mod web;
#[cfg(not(feature = "web"))]
#[path = "without_web.rs"]
mod web;

/// The programs of a page of the documentation.
#[cfg(all(doctest, feature = "web"))]
#[doc = include_str!("../../docs/page.md")]
struct DocumentedPage;

pub use self::console::{Console, Operable};
pub use self::database::{Database, TheDatabase};
pub use self::failure::Result;
#[cfg(feature = "replay")]
pub use self::replay::Replayable;
#[cfg(feature = "web")]
pub use self::web::{Page, Visitor};
