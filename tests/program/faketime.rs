//! libfaketime, which gives a process a wrong clock.

use std::fs;
use std::path::PathBuf;

/// The reason why there is no library.
pub(crate) const MISSING: &str =
    "libfaketime is missing, which gives a process a wrong clock; Debian's package is libfaketime";

/// The library, where packages install it. A process loads it through `LD_PRELOAD`.
pub(crate) fn library() -> Option<PathBuf> {
    let places = ["/usr/lib", "/usr/local/lib", "/lib"].map(PathBuf::from);
    // Debian has a directory for each architecture in between.
    let nested =
        places.iter().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten().map(|entry| entry.path());
    let mut libraries = places.iter().cloned().chain(nested).map(|place| place.join("faketime/libfaketimeMT.so.1"));
    libraries.find(|library| library.exists())
}
