//! The page: the queues in a browser. It has the reports and operations of the commands, and no SQL of its own.
//!
//! A request passes the guard, reads through the cache, and becomes HTML. What changes rows runs in a thread of its own.

mod at;
mod audit;
mod backlog;
mod cache;
mod cells;
mod change;
mod charts;
mod common;
mod control;
mod control_view;
mod doctor;
mod errors;
mod export;
mod export_csv;
mod form;
mod glance;
mod guard;
mod layout;
mod operation;
mod overview;
mod own;
mod pollers;
mod pool;
mod queue;
mod router;
mod row;
mod run;
mod schedules;
mod search;
mod serve;
mod settings;
mod site;
mod split;
mod stages;
mod svg;
mod trouble;

pub(crate) use self::serve::run;
pub use self::settings::{Page, Visitor};
