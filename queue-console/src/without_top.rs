//! In place of the live screen, if it was not built.

use std::sync::Arc;

use crate::cli::{Global, Top};
use crate::console::Parts;
use crate::database::Database;
use crate::failure::{Answer, Failure};

pub(crate) fn run<C: Database>(_: Arc<Parts<C>>, _: &Global, _: &Top) -> Answer {
    Err(Failure::Usage(
        "this program was built without the live screen: the feature `top` of queueable-console adds it, and \
         `status --watch` needs no feature"
            .to_owned(),
    ))
}
