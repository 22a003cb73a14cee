//! How much there is to read: files and lines of the core, and that ARCHITECTURE.md names files that exist.
//!
//! A line of code is one that is not blank, no comment, and not in a module of tests.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sources::rust_files;

/// How many files the core may have, those of tests left out.
const FILES: usize = 259;

/// How many lines of code the core may have.
const LINES: usize = 39_045;

/// How many lines of code a file of the core may have.
const LINES_OF_A_FILE: usize = 320;

/// How many lines of code a function of the core may have.
const LINES_OF_A_FUNCTION: usize = 50;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Counts the lines of code of a file that rustfmt has written: a module of tests ends with a brace in its column.
fn code_lines(text: &str) -> usize {
    let mut lines = text.lines().peekable();
    let mut counted = 0;
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        if code.starts_with("#[cfg(test") || code.starts_with("#[cfg(all(test") {
            while lines.next_if(|line| line.trim_start().starts_with("#[")).is_some() {}
            let is_module =
                |line: &&str| line.trim_start().split(" {").next().is_some_and(|item| item.contains("mod "));
            if let Some(module) = lines.next_if(is_module) {
                let end = format!("{}}}", &line[..line.len() - code.len()]);
                if module.ends_with('{') {
                    lines.by_ref().find(|line| *line == end);
                }
                continue;
            }
        }
        counted += usize::from(!code.is_empty() && !code.starts_with("//"));
    }
    counted
}

/// Returns the functions of a file that rustfmt has written, each with its lines of code: from its first line to the brace in its
/// column.
fn functions<'t>(text: &'t str) -> Vec<(usize, &'t str)> {
    let lines: Vec<_> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let function = |(number, line): (usize, &&'t str)| {
        let name = line.split_once("fn ").filter(|(before, _)| {
            before.split_whitespace().all(|word| {
                ["pub", "const", "async", "unsafe", "extern", "in"]
                    .iter()
                    .any(|known| word.trim_start_matches('(').starts_with(known))
            })
        })?;
        let is_end = |line: &&&str| indent(line) == indent(lines[number]) && line.ends_with(['{', ';', '}']);
        let signature = lines[number..].iter().position(|line| is_end(&line))?;
        let body = match lines[number + signature].ends_with('{') {
            true => lines[number + signature + 1..].iter().position(|line| is_end(&line))? + 2,
            false => 1,
        };
        let code = lines[number..number + signature + body].join("\n");
        Some((code_lines(&code), name.1.split(['(', '<']).next()?))
    };
    lines.iter().enumerate().filter_map(function).collect()
}

/// Returns the core's files with their texts, those of tests left out.
fn core() -> Vec<(String, String)> {
    let files = rust_files(&root().join("queue-core/src")).expect("the core's sources are readable");
    let files = files.iter().filter(|file| !file.ends_with("tests.rs"));
    files.map(|file| (file.display().to_string(), fs::read_to_string(file).expect("a source is readable"))).collect()
}

#[test]
fn no_function_of_the_core_is_long() {
    for (file, text) in core() {
        let long: Vec<_> = functions(&text).into_iter().filter(|(lines, _)| *lines > LINES_OF_A_FUNCTION).collect();
        assert!(long.is_empty(), "{file}: {long:?}");
    }
}

#[test]
fn the_core_does_not_grow() {
    let sizes: Vec<_> = core().into_iter().map(|(file, text)| (code_lines(&text), file)).collect();
    let lines: usize = sizes.iter().map(|(lines, _)| lines).sum();
    assert!(sizes.len() <= FILES && lines <= LINES, "{lines} lines in {} files", sizes.len());
    let long: Vec<_> = sizes.iter().filter(|(lines, _)| *lines > LINES_OF_A_FILE).collect();
    assert!(long.is_empty(), "too long for one file: {long:?}");
}

#[test]
fn the_files_that_the_architecture_names_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page is readable");
    let named = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.ends_with(".rs") && name.contains('/') && !name.contains(' '));
    let folders = ["queue-core/src", "queue-derive/src", ""].map(|folder| root().join(folder));
    let missing: Vec<_> = named.filter(|name| !folders.iter().any(|folder| folder.join(name).is_file())).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names files that are not there: {missing:?}");
}

#[test]
fn comments_and_tests_are_no_lines_of_code() {
    let text = "//! A file.\n\nuse std::fmt;\n\n/// Adds.\nfn add() {\n    // one\n    one()\n}\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    \
                fn f() {\n    }\n}\n\nstruct After;\n#[cfg(test)]\nmod more;\n";
    assert_eq!(code_lines(text), 5);
}

#[test]
fn the_lines_of_functions_are_counted() {
    let text = "pub(crate) fn first<T>(\n    a: T,\n) -> T\nwhere\n    T: Copy,\n{\n    // why\n    match a {\n        a => a,\n    }\n}\n\n\
                trait Verb {\n    fn declared(\n        &self,\n    );\n\n    fn empty(&self) {}\n}\n";
    assert_eq!(functions(text), [(10, "first"), (3, "declared"), (1, "empty")]);
}
