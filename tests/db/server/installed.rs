//! What a server's package has put on this machine: programs and an account.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::{ACCOUNT, PACKAGE, PRODUCT, VARIABLE};

/// Finds a server's program in `PATH`, or else in `places`, where packages put what is not for everybody to call.
///
/// A `*` stands for a version; the highest one that is there is taken.
pub(in crate::db) fn program(name: &str, places: &[&str]) -> PathBuf {
    program_of(PACKAGE, name, places)
}

/// The same for a program of another package.
pub(in crate::db) fn program_of(package: &str, name: &str, places: &[&str]) -> PathBuf {
    let in_path = env::var_os("PATH").into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let elsewhere = places.iter().flat_map(|place| versions(place));
    in_path.chain(elsewhere).map(|directory| directory.join(name)).find(|file| file.is_file()).unwrap_or_else(|| {
        panic!(
            "these tests need {PRODUCT}, and its program `{name}` is neither in PATH nor in {places:?}. Install the \
             Debian package `{package}`, or name a running server in {VARIABLE}.",
        )
    })
}

fn versions(place: &str) -> Vec<PathBuf> {
    let Some((before, after)) = place.split_once("*/") else { return vec![place.into()] };
    let mut found: Vec<(u32, PathBuf)> = fs::read_dir(before)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join(after))))
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, directory)| directory).collect()
}

/// The account that a server started by root runs under, since neither server wants to be root.
pub(super) struct Account {
    pub(super) user: u32,
    pub(super) group: u32,
}

impl Account {
    /// `None` for everybody but root: who made the directory is who runs the tests.
    pub(super) fn needed_in(directory: &Path) -> Option<Self> {
        let maker = fs::metadata(directory).expect("the directory was just made").uid();
        (maker == 0).then(|| Self { user: id("-u"), group: id("-g") })
    }
}

fn id(option: &str) -> u32 {
    let output = Command::new("id").args([option, ACCOUNT]).output().expect("there is an `id` command");
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or_else(|_| {
        panic!(
            "{PRODUCT} does not run as root, and there is no account `{ACCOUNT}` for it; the Debian package \
             `{PACKAGE}` makes one. Or run the tests as another user, or name a running server in {VARIABLE}.",
        )
    })
}
