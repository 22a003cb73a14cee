//! What users of the facade can name, as it is promised to them: a snapshot of all of it, and that it is documented.
//!
//! It is read from the sources. `cargo public-api` would see more, but it reads rustdoc's JSON, which only nightly writes and
//! whose format changes with each toolchain: the test would pass on one compiler, and would build the workspace once more.

mod crates;
mod describe;
mod examples;
mod expand;
mod one_line;
mod snapshot;
mod surface;

use std::path::Path;
use std::sync::LazyLock;

use self::crates::Crates;
use self::describe::Public;
use self::surface::surface;

/// What the facade offers.
static FACADE: LazyLock<Vec<Public>> = LazyLock::new(|| {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut crates = Crates::default();
    for (name, src) in [("queueable", "src"), ("queue_core", "queue-core/src"), ("queue_derive", "queue-derive/src")] {
        crates.read(name, &workspace.join(src)).unwrap_or_else(|error| panic!("{src}: {error:#}"));
    }
    surface(&crates, "queueable")
});
