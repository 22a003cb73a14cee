//! In place of the page, if it was not built.

use std::sync::Arc;

use crate::cli::{Global, Serve};
use crate::console::Parts;
use crate::database::Database;
use crate::failure::{Answer, Failure};

/// The settings of no page.
#[derive(Default)]
pub(crate) struct Page {}

pub(crate) fn run<C: Database>(_: &Arc<Parts<C>>, _: &Global, of: &Serve) -> Answer {
    Err(Failure::Usage(format!(
        "this program was built without the page, and does not listen on {}: the feature `web` of queueable-console adds it",
        of.listen
    )))
}
