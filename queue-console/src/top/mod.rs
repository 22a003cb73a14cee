//! `top`: a live screen. The reader asks the database on a thread of its own and sends what it has read; the model holds what is
//! known and changes it by keys and by what arrives; the view draws the model. So no key waits for the database.

mod ask;
mod dialog;
mod input;
mod keys;
mod link;
mod model;
mod news;
mod operate;
mod reader;
mod report;
mod run;
mod signals;
mod terminal;
#[cfg(all(test, feature = "sqlite"))]
mod tests;
mod view;

pub(crate) use self::run::run;
