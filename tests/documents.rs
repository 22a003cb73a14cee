//! The documentation's claims: every cell of a table of guarantees names tests, every test that is named is there, links lead
//! somewhere, numbers are those that one counts, and the dependencies have the licences that `deny.toml` allows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = include_str!("../docs/choosing-a-mode.md");
const CATALOGUE: &str = include_str!("catalogue.md");

/// How many systems the articles describe.
const SYSTEMS: u32 = 57;

/// The numbers in square brackets, which are escaped: rustdoc would look for links.
fn numbers(text: &str) -> Vec<u32> {
    text.split("\\[").skip(1).filter_map(|rest| rest.split_once("\\]")?.0.parse().ok()).collect()
}

/// The lines `1. file: test, file: test` under the last heading.
fn shown_by() -> BTreeMap<u32, Vec<(String, String)>> {
    let (_, list) = PAGE.split_once("## Shown by").expect("the page ends with the list of tests");
    let entry = |line: &str| {
        let (number, tests) = line.split_once(". ")?;
        let test = |test: &str| {
            let (file, name) = test.trim().split_once(": ").unwrap_or_else(|| panic!("not `file: test`: {test}"));
            (file.trim_matches('`').to_owned(), name.trim_matches('`').to_owned())
        };
        Some((number.parse().ok()?, tests.split(", ").map(test).collect()))
    };
    list.lines().filter_map(entry).collect()
}

#[test]
fn every_guarantee_names_a_test_that_exists() {
    let tests = shown_by();
    for (number, tests) in &tests {
        assert!(!tests.is_empty(), "[{number}] names no test");
        for (file, name) in tests {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
            let source =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("[{number}] {}: {error}", path.display()));
            assert!(source.contains(&format!("#[test]\nfn {name}()")), "[{number}] {file} has no test `{name}`");
        }
    }
    let table = PAGE.split_once("## What each mode guarantees").expect("the page has the table").1;
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let mut named = Vec::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        for cell in &cells[1..] {
            let shown = numbers(cell);
            assert!(!shown.is_empty(), "no test is named for `{}`: {cell}", cells[0]);
            named.extend(shown);
        }
    }
    assert!(named.iter().all(|number| tests.contains_key(number)), "{named:?}");
    assert!(tests.keys().all(|number| named.contains(number)), "a test is listed that no cell names");
}

#[test]
fn every_file_of_the_suite_is_mounted() {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite");
    let mounted = fs::read_to_string(suite.join("mod.rs")).unwrap();
    let files = fs::read_dir(&suite).unwrap().map(|entry| entry.unwrap().path());
    // A folder of snapshots holds no tests.
    let is_module =
        |path: &Path| path.extension().is_some_and(|extension| extension == "rs") || path.join("mod.rs").is_file();
    let tests: Vec<PathBuf> = files.filter(|path| is_module(path)).collect();
    for test in tests {
        let name = test.file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(name == "mod" || mounted.contains(&format!("mod {name};")), "{name}.rs runs on no database");
    }
}

#[test]
fn the_nightly_run_has_each_root_that_the_usual_run_leaves_out() {
    let nightly = read(".ci/nightly");
    let mut found = 0;
    for manifest in ["Cargo.toml", "tests/page/Cargo.toml"] {
        let text = read(manifest);
        for root in text.split("[[test]]").skip(1).filter(|root| root.contains("test = false")) {
            let name = root.split('"').nth(1).expect("a root has a name");
            assert!(nightly.contains(&format!("--test {name}")), "{manifest}: nothing runs {name}");
            found += 1;
        }
    }
    assert!(found > 5, "{found} roots");
}

/// The row's number, or numbers: `S23, S27`.
fn systems(cell: &str) -> Vec<u32> {
    cell.split(',').filter_map(|system| system.trim().strip_prefix('S')?.parse().ok()).collect()
}

/// The file of a name in backquotes, if it is one of ours.
fn source(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_file = name.ends_with(".rs") || name.ends_with(".md") || name.ends_with('/');
    let elsewhere = ["chaos/", "queue-core/", "docs/"].iter().any(|folder| name.starts_with(folder));
    is_file.then(|| if elsewhere { root.join(name) } else { root.join("tests").join(name) })
}

#[test]
fn every_system_of_the_catalogue_names_what_shows_it() {
    let mut named = Vec::new();
    for row in CATALOGUE.lines().filter(|line| line.starts_with("| S")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        let [system, _, _, shown] = cells[..] else { panic!("not four cells: {row}") };
        named.extend(systems(system));
        assert!(
            shown.contains(".rs`") || shown.contains("example `") || shown.contains(".md`"),
            "{system}: nothing shows it"
        );
        for part in shown.split(';') {
            let files: Vec<_> = part.split('`').skip(1).step_by(2).filter_map(source).collect();
            files.iter().for_each(|file| assert!(file.exists(), "{system}: {} is not there", file.display()));
            let text: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
            let plain = part.split('`').step_by(2).flat_map(|words| words.split([' ', ',']));
            for test in plain.filter(|word| word.matches('_').count() > 1) {
                assert!(text.contains(&format!("fn {test}(")), "{system}: there is no test `{test}` in {files:?}");
            }
        }
    }
    named.sort_unstable();
    assert_eq!(named, (1..=SYSTEMS).collect::<Vec<_>>(), "each system has one row");
}

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file))
        .unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// A page without its blocks of code.
fn prose(page: &Path) -> String {
    let text = fs::read_to_string(page).unwrap();
    let mut is_code = false;
    let is_prose = |line: &&str| {
        is_code ^= line.starts_with("```");
        !is_code
    };
    text.lines().filter(is_prose).map(|line| format!("{line}\n")).collect()
}

/// The pages for readers, with the headings that links may name.
fn pages() -> BTreeMap<PathBuf, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let named = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "tests/catalogue.md",
        "queue-derive/docs/derive.md",
        "queue-console/docs/filter.md",
    ];
    let pages =
        docs.chain(named.map(|page| root.join(page))).filter(|path| path.extension().is_some_and(|end| end == "md"));
    let headings = |path: PathBuf| {
        let prose = prose(&path);
        let heading = |line: &str| {
            let plain = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            plain.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
        };
        (path, prose.lines().filter(|line| line.starts_with('#')).map(heading).collect())
    };
    pages.map(headings).collect()
}

#[test]
fn every_link_to_a_file_of_the_repository_leads_somewhere() {
    let pages = pages();
    let mut checked = 0;
    for page in pages.keys() {
        let text = prose(page);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
        // The reference of the derive also links to pages of rustdoc.
        for link in links.filter(|link| !link.contains("://") && !link.ends_with(".html") && !link.contains(".html#")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let target =
                fs::canonicalize(&target).unwrap_or_else(|error| panic!("{}: {link}: {error}", page.display()));
            let has_heading =
                pages.get(&target).is_none_or(|headings| heading.is_empty() || headings.contains(heading));
            assert!(has_heading, "{}: {link}: no such heading", page.display());
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked} links");
}

#[test]
fn the_readme_is_short_and_its_numbers_are_right() {
    const NUMBERS: [&str; 17] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
        "thirteen", "fourteen", "fifteen", "sixteen",
    ];
    let readme = read("README.md");
    assert!(readme.lines().count() <= 200, "{} lines", readme.lines().count());
    let examples = read("docs/tour.md").lines().filter(|line| line.starts_with("| [`")).count();
    assert!(readme.contains(&format!("{} examples", NUMBERS[examples])), "the tour has {examples} examples");
    let comparison = read("docs/comparison.md");
    let (_, versions) = comparison.split_once("| library | version read |\n|---|---|\n").expect("a table of versions");
    let libraries = versions.lines().take_while(|line| line.starts_with('|')).count();
    assert!(readme.contains(&format!("about {} of them", NUMBERS[libraries])), "{libraries} libraries are compared");
}

#[test]
fn every_file_that_the_page_of_internals_names_is_there() {
    let page = read("docs/internals.md");
    let names: BTreeSet<_> = page.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs")).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names.into_iter().filter(|name| !name.contains('*')) {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("queue-core/src").join(name).is_file(), "{name}");
    }
}

#[test]
fn the_page_about_reliability_has_every_bar_and_every_planted_bug() {
    let page = read("docs/reliability.md");
    let bars = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("chaos/src/bars")).unwrap();
    let mut count = 0;
    for bar in bars {
        let source = fs::read_to_string(bar.unwrap().path()).unwrap();
        let Some((_, number)) = source.split_once("    number: ") else { continue };
        let number: u32 = number.split(',').next().unwrap().parse().unwrap();
        assert!(number == 0 || page.contains(&format!("| {number}. ")), "bar {number}");
        count += 1;
    }
    assert!(count > 25, "{count} bars");
    let bugs = read("chaos/src/planted/bugs.rs");
    let names: Vec<_> = bugs.split("name: \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("| {name} |")) || page.contains(&format!("*{name}*")), "{name}");
    }
}

const DENY: &str = include_str!("../deny.toml");

/// Tells whether an expression of SPDX is true if these licences are allowed. A slash is an old `OR`.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.replace('/', " OR ");
    if let Some((before, rest)) = expression.split_once('(') {
        let (inner, after) = rest.split_once(')').expect("a bracket that ends");
        let word = if is_allowed(inner, allowed) { allowed[0] } else { "none" };
        return is_allowed(&format!("{before}{word}{after}"), allowed);
    }
    let all = |part: &str| part.split(" AND ").all(|licence| allowed.contains(&licence.trim()));
    expression.split(" OR ").any(all)
}

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let (_, list) = DENY.split_once("allow = [").expect("a list of licences");
    let (list, _) = list.split_once(']').expect("a list that ends");
    let allowed: Vec<_> = list.split('"').skip(1).step_by(2).collect();
    assert!(
        is_allowed("(MIT OR GPL-3.0) AND Zlib", &allowed) && !is_allowed("MIT AND (GPL-3.0 OR LGPL-3.0)", &allowed)
    );
    // Not offline: it reads the manifests of other platforms' dependencies too, which no build has downloaded.
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--locked", "--all-features", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().expect("a list of packages");
    assert!(packages.len() > 100);
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        assert!(is_allowed(licence, &allowed), "{} has the licence {licence}", package["name"]);
        let source = package["source"].as_str();
        let is_public = source.is_none_or(|source| source == "registry+https://github.com/rust-lang/crates.io-index");
        assert!(is_public, "{} comes from {source:?}", package["name"]);
    }
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_metrics_that_there_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/monitoring");
    let page = fs::read_to_string(folder.join("../observing.md")).unwrap();
    let dashboard = fs::read_to_string(folder.join("grafana-dashboard.json")).unwrap();
    let alerts = fs::read_to_string(folder.join("alerts.yml")).unwrap();
    let panels = serde_json::from_str::<serde_json::Value>(&dashboard).unwrap();
    assert!(panels["panels"].as_array().is_some_and(|panels| panels.len() > 5));
    let rows = alerts.matches("- alert: ").count();
    assert!(rows > 5 && alerts.matches("action: ").count() == rows, "each alert says what to do");
    let names = |text: &str| {
        let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
        let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("queueable_"));
        words.map(|word| word.trim_end_matches("_bucket").to_owned()).collect::<BTreeSet<_>>()
    };
    let documented = names(&page);
    for (file, text) in [("the dashboard", &dashboard), ("the alerts", &alerts)] {
        let asked = names(text);
        assert!(asked.len() >= 5, "{file}: {asked:?}");
        assert!(asked.is_subset(&documented), "{file}: {:?}", asked.difference(&documented));
    }
    let outcomes = alerts.split("outcome=\"").skip(1).filter_map(|rest| rest.split('"').next());
    for outcome in outcomes {
        assert!(page.contains(&format!("`{outcome}`")), "{outcome}");
    }
}
