//! River for Rust; the handler ends its job in the transaction in which it writes.

use anyhow::Result;
use peer_river::{Ending, River};

fn main() -> Result<()> {
    contestant::serve(&River(Ending::Transaction))
}
