//! The planted bugs still fit the core. `chaos --planted --check` compiles them too.

use std::path::Path;

use copy::{NEEDED, planted_core};
use edit::{before, instead_of};

#[allow(dead_code, reason = "nothing is hunted here")]
#[path = "../src/planted/bugs.rs"]
mod bugs;
#[allow(dead_code, reason = "nothing is built here")]
#[path = "../src/planted/copy.rs"]
mod copy;
#[path = "../src/planted/edit.rs"]
mod edit;
#[allow(dead_code, reason = "the bugs need two enums of it")]
#[path = "../src/options.rs"]
mod options;

#[test]
fn the_text_of_every_planted_bug_is_in_the_core_exactly_once() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../queue-core/src");
    planted_core(&core).unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
fn every_package_of_the_workspace_is_in_the_copy() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).expect("the workspace has one");
    let members =
        manifest.split("\nmembers = [").nth(1).and_then(|rest| rest.split(']').next()).expect("it has members");
    let members: Vec<_> = members.split('"').skip(1).step_by(2).collect();
    let is_copied = |member: &&&str| NEEDED.iter().any(|part| Path::new(member).starts_with(part));
    let missing: Vec<_> = members.iter().filter(|member| !is_copied(member)).collect();
    assert!(members.contains(&"queue-core") && missing.is_empty(), "{missing:?} of {members:?}");
}

#[test]
fn a_bug_is_alive_under_its_condition_only() {
    let source = "fn f() {\n    a();\n    b()\n}\n";
    let planted = before("f.rs", "a();", "return;").apply(source, "x()").unwrap();
    let planted = instead_of("f.rs", "b()", "c()").apply(&planted, "y()").unwrap();
    assert_eq!(planted, "fn f() {\n    if x() { return; }\na();\n    if y() { c() } else { b() }\n}\n");
}

#[test]
fn a_text_that_is_missing_or_there_twice_is_refused() {
    for (source, times) in [("b();", "0 times"), ("a(); a();", "2 times")] {
        let error = before("f.rs", "a();", "return;").apply(source, "x()").unwrap_err().to_string();
        assert_eq!(error, format!("f.rs has this text {times} instead of once: a();"));
    }
}
