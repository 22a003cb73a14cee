//! In place of `replay`, if it was not built.

use std::marker::PhantomData;

use crate::cli::Replay;
use crate::command::Context;
use crate::database::Database;
use crate::failure::{Answer, Failure};

/// No handlers.
pub(crate) struct Handlers<C>(PhantomData<fn() -> C>);

impl<C> Default for Handlers<C> {
    fn default() -> Self {
        Handlers(PhantomData)
    }
}

pub(crate) fn run<C: Database>(_: &mut Context<'_, C>, replay: &Replay) -> Answer {
    Err(Failure::Usage(format!(
        "this program was built without `replay`, so it has no handler for {}: the feature `replay` of queueable-console adds it",
        replay.queue
    )))
}
