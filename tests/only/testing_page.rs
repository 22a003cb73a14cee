//! A newcomer's first tests: the commands and files of `docs/testing.md` make a project, whose tests pass as the page shows.

#[path = "../project/mod.rs"]
mod project;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use self::project::{Project, manifest};

/// What stands in a comment above a block that is a file.
const FILE: &str = "<!-- file: ";

/// The chapter of the page that a newcomer follows.
fn chapter() -> String {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/testing.md")).unwrap();
    let (_, chapter) = page.split_once("\n## From `cargo new` to five tests\n").expect("the page has the chapter");
    chapter.split_once("\n## ").expect("another chapter follows").0.to_owned()
}

/// The blocks of a chapter, each with the line above it, and its language.
fn blocks(chapter: &str) -> Vec<(String, String, String)> {
    let (mut blocks, mut above, mut lines) = (Vec::new(), "", chapter.lines());
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let block = lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
            blocks.push((above.to_owned(), language.to_owned(), block));
        }
        above = line;
    }
    blocks
}

/// The lines that a run of tests always prints, whatever their order and their time.
fn lasting(said: &str) -> BTreeSet<&str> {
    said.lines().filter_map(|line| line.split("; finished in").next()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_page_leads_from_cargo_new_to_five_tests() {
    let chapter = chapter();
    let blocks = blocks(&chapter);
    let commands = blocks.iter().find(|(_, language, _)| language == "sh").expect("commands make the project");
    let files = blocks.iter().filter_map(|(above, _, text)| {
        Some((above.strip_prefix(FILE)?.strip_suffix(" -->").expect("a comment"), text.as_str()))
    });
    let files: Vec<_> = files.collect();
    assert_eq!(files.len(), 2, "{files:?}");
    let project = Project::new(&manifest(&commands.2), &files);
    let session = blocks.iter().find(|(_, language, _)| language == "console").expect("the page shows a run");
    let (command, shown) =
        session.2.strip_prefix("$ cargo ").and_then(|session| session.split_once('\n')).expect("a command of cargo");
    let said = project.cargo(command, "");
    let (shown, said) = (lasting(shown), lasting(&said));
    assert!(shown.iter().filter(|line| line.ends_with(" ... ok")).count() == 5, "{shown:?}");
    assert!(shown.is_subset(&said), "the page shows {shown:#?}, and the tests say {said:#?}");
}
