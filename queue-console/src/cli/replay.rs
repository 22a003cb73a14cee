//! What `replay` takes.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The queue
    #[arg(index = 1)]
    pub(crate) queue: String,

    /// The row's key
    #[arg(index = 2, value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) key: String,

    /// Roll everything back at the end. A replay needs it: an attempt that stays is `retry`
    #[arg(long)]
    pub(crate) rollback: bool,

    /// Make the call of a lease handler, for real: no rollback takes it back
    #[arg(long)]
    pub(crate) call: bool,
}
