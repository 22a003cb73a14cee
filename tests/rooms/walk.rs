//! The files through which a message walks, as ARCHITECTURE.md lists them. `walk.py` traces them in a running program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::sources::Sources;

/// Through how many files one message may walk.
const FILES: usize = 20;

/// Files of the walk that no other file of it imports: a worker and a runner know each other as traits, and backends implement
/// traits.
const ENTRANCES: [&str; 4] =
    ["attempt/transaction_runner.rs", "poller/worker.rs", "poller/gate.rs", "backend/postgres/finish.rs"];

/// The files in the lists of the page, by the headings above them.
fn lists(page: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut lists: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut heading = "";
    for line in page.lines() {
        if let Some(found) = line.strip_prefix("### ") {
            heading = found;
        } else if let Some((file, _)) = line.strip_prefix("- `").and_then(|item| item.split_once("`: ")) {
            lists.entry(heading).or_default().push(file);
        }
    }
    lists
}

#[test]
fn a_message_walks_through_few_files_and_each_leads_to_the_next() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the page is readable");
    let lists = lists(&page);
    let walk = &lists["One message in transaction mode"];
    assert!(walk.len() <= FILES, "{} files are too many for one message", walk.len());
    assert!(walk.contains(&"attempt/attempt.rs"), "this is not the walk: {walk:?}");
    for (heading, files) in &lists {
        let once: BTreeSet<_> = files.iter().collect();
        assert_eq!(once.len(), files.len(), "{heading}: a file is there twice");
        let missing: Vec<_> = files.iter().filter(|file| !root.join("queue-core/src").join(file).is_file()).collect();
        assert!(missing.is_empty(), "{heading}: {missing:?}");
    }
    let sources = Sources::read(&root.join("queue-core/src")).expect("the core's sources are readable");
    let imports = sources.between_files();
    let is_reached = |file: &&str| {
        let from_walk = |(from, to): &(String, String)| to == file && walk.contains(&from.as_str());
        ENTRANCES.contains(file) || imports.keys().any(from_walk)
    };
    let strangers: Vec<_> = walk.iter().filter(|file| !is_reached(file)).collect();
    assert!(strangers.is_empty(), "no file of the walk imports {strangers:?}");
}

#[test]
fn a_list_belongs_to_the_heading_above_it() {
    let page = "- `zero.rs`: no\n### One\n\n- `one.rs`: yes\n- two.rs\n\n### Two\n- `three.rs`: `four.rs`\n";
    let found = lists(page);
    assert_eq!((&found["One"], &found["Two"]), (&vec!["one.rs"], &vec!["three.rs"]));
}
