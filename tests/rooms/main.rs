//! The rooms of the sources stand on floors: no circle of imports among rooms, and none among the files of a room.
//!
//! A room is a top-level module: a folder of `src`, or a file beside `lib.rs`. An arrow goes from a file to each file that it
//! imports something from, also through a `use` of another file. `mod` and `pub use` lines of a `mod.rs` are its door, and no
//! arrows; neither is what `lib.rs` or `main.rs` imports, which is the roof. Comments, strings and `#[cfg(test)]` modules do
//! not count. A method is called without an import, so these tests do not see it: methods that several files of a room call
//! lie with their struct.
//!
//! [`public_api`] lists what users can name, [`sizes`] holds how much there is to read, and [`walk`]
//! through which files a message walks.

mod circle;
mod public_api;
mod sizes;
mod sources;
mod walk;

use std::path::Path;

use self::circle::circles;
use self::sources::Sources;

/// Fails with the arrows that offend, each with the lines that draw it.
fn expect_floors(crate_folder: &str) {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join(crate_folder).join("src");
    let sources = Sources::read(&src).unwrap_or_else(|error| panic!("{}: {error:#}", src.display()));
    assert!(sources.files() > 5, "{} has hardly any files", src.display());
    let found = circles(&sources);
    assert!(found.is_empty(), "{crate_folder}/src has circles:\n{}", found.join("\n"));
}

#[test]
fn the_core_has_no_circle() {
    expect_floors("queue-core");
}

/// The floors of the core, from the ground up, as ARCHITECTURE.md draws them.
const FLOORS: [&[&str]; 14] = [
    &["sync"],
    &["log"],
    &["error", "ill"],
    &["event", "row"],
    &["backend", "crash"],
    &["entity", "handler"],
    &["statement"],
    &["claim", "control"],
    &["attempt", "audit"],
    &["batch"],
    &["doctor", "gauges", "group", "lease", "minutes"],
    &["poller"],
    &["queue", "testing"],
    &["queueable"],
];

#[test]
fn every_room_of_the_core_imports_from_lower_floors_only() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("queue-core/src");
    let sources = Sources::read(&src).unwrap_or_else(|error| panic!("{}: {error:#}", src.display()));
    let floor = |room: &str| FLOORS.iter().position(|rooms| rooms.contains(&room));
    let homeless: Vec<_> = sources.rooms().into_iter().filter(|room| floor(room).is_none()).collect();
    assert!(homeless.is_empty(), "on which floor are the rooms {homeless:?}? Say it here and in ARCHITECTURE.md");
    let upward: Vec<_> = sources
        .between_rooms()
        .into_iter()
        .filter(|((from, to), _)| floor(from) <= floor(to))
        .flat_map(|(_, imports)| imports)
        .map(|import| format!("{}:{}: crate::{}", import.file, import.line, import.path.join("::")))
        .collect();
    assert!(upward.is_empty(), "imports that do not point down:\n{}", upward.join("\n"));
}

#[test]
fn the_derive_has_no_circle() {
    expect_floors("queue-derive");
}

#[test]
fn the_chaos_harness_has_no_circle() {
    expect_floors("chaos");
}

/// The circles of a made-up crate.
fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for (file, text) in files {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder for a file");
        std::fs::write(path, text).expect("a file in a temporary directory");
    }
    circles(&Sources::read(folder.path()).expect("the made-up crate is readable"))
}

#[test]
fn two_rooms_that_import_each_other_are_a_circle_and_the_lines_are_named() {
    let found = circles_of(&[
        ("lib.rs", "mod cellar;\nmod attic;"),
        ("cellar.rs", "\nuse crate::attic::Roof;\npub struct Floor;"),
        ("attic.rs", "use crate::cellar::Floor;\nuse crate::cellar::Stairs;\npub struct Roof;"),
    ]);
    assert_eq!(
        found,
        ["the rooms attic, cellar import each other in a circle; taking out what follows opens it:\n  \
          cellar -> attic\n    cellar.rs:2: crate::attic::Roof"]
    );
}

#[test]
fn two_files_of_a_room_that_import_each_other_are_a_circle() {
    let found = circles_of(&[
        ("lib.rs", "mod room;"),
        ("room/mod.rs", "mod one;\nmod two;\npub(crate) use self::one::One;"),
        ("room/one.rs", "use super::two::Two;\npub struct One;"),
        ("room/two.rs", "pub struct Two(super::One);"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("in the room room, the files one.rs, two.rs import each other in a circle"),
        "{found:?}"
    );
}

#[test]
fn an_import_through_the_roof_or_a_macro_or_a_nested_list_is_an_arrow() {
    let one = ("one.rs", "pub struct One;\nuse crate::Two;");
    let roof = ("lib.rs", "mod one;\nmod two;\npub use self::two::Two;");
    for two in [
        "pub struct Two; fn f() { g!(crate::one::One) }",
        "pub struct Two; use {std::fmt, crate::{one::{self as first, One}}};",
        "pub struct Two; macro_rules! g { () => { $crate::one::One } }",
        "pub struct Two; mod inner { fn f() { use super::super::one::One; } }",
        "pub struct Two; use crate::one::*;",
        "pub struct Two { one: crate::one::One }",
        "pub struct Two; fn f<T: crate::one::One>() {}",
    ] {
        assert_eq!(circles_of(&[roof, one, ("two.rs", two)]).len(), 1, "{two}");
    }
}

#[test]
fn a_call_into_a_module_of_ones_own_is_an_arrow() {
    let found = circles_of(&[
        ("lib.rs", "mod room;"),
        ("room.rs", "mod child;\npub struct Room;\nfn f() { child::call() }"),
        ("room/child.rs", "use super::Room;\npub fn call() {}"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn what_the_roof_imports_for_the_rooms_is_their_import() {
    let found = circles_of(&[
        ("lib.rs", "mod one;\nmod two;\nuse self::one::One;"),
        ("one.rs", "pub struct One;\nuse crate::two::Two;"),
        ("two.rs", "pub struct Two(super::One);"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn comments_strings_tests_doors_and_the_roof_draw_no_arrow() {
    let found = circles_of(&[
        ("lib.rs", "mod one;\nmod room;\nuse crate::one::One;\nfn f() { room::file::File }"),
        ("one.rs", "pub struct One;\nuse crate::room::File;"),
        ("room/mod.rs", "mod file;\npub use self::file::File;\npub use crate::one::One;"),
        (
            "room/file.rs",
            "// crate::one::One\n/// [`One`](crate::one::One)\npub struct File;\nconst TEXT: &str = \"crate::one::One\";\n\
             #[cfg(test)]\nmod tests { use crate::one::One; }",
        ),
    ]);
    assert!(found.is_empty(), "{found:?}");
}
