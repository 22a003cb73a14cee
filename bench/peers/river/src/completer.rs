//! River for Rust; the handler commits by itself, and the completer ends many jobs at a time.

use anyhow::Result;
use peer_river::{Ending, River};

fn main() -> Result<()> {
    contestant::serve(&River(Ending::Completer))
}
