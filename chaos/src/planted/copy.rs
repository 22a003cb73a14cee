//! A copy of the workspace whose core has all bugs in it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use anyhow::{Context, Result, ensure};

use super::bugs::{BUGS, SHORTCUTS};

/// What cargo needs of the workspace.
pub(crate) const NEEDED: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "README.md",
    "chaos",
    "docs",
    "examples",
    "queue-console",
    "queue-core",
    "queue-derive",
    "src",
    "tests",
];

const CORE: &str = "queue-core/src";

/// What the core of the copy has besides: the variable names the bug that is alive.
const PLANTED: &str = r#"
/// Whether this bug is alive.
pub(crate) fn planted(bug: &str) -> bool {
    static ALIVE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ALIVE.get_or_init(|| std::env::var("QUEUEABLE_PLANTED").ok()).as_deref() == Some(bug)
}
"#;

/// Files by their paths in a folder.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Builds this program with the bugs, and returns where it is.
pub(crate) fn build() -> Result<PathBuf> {
    Ok(cargo(&["build", "-p", "chaos"])?.join("debug/chaos"))
}

/// Compiles the core with the bugs, which is how a change of it shows that they still fit.
pub(crate) fn check() -> Result<()> {
    cargo(&["check", "-p", "queueable-core", "--all-features"]).map(drop)
}

/// Brings the copy up to date, runs cargo in it, and returns where that puts what it builds: in a folder of its own, because
/// cargo would take the copied packages for the originals.
fn cargo(arguments: &[&str]) -> Result<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("chaos is in no workspace")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
    let target = target.join("planted");
    let copy = target.join("workspace");
    bring_up_to_date(&copy, &planted_workspace(workspace)?)?;
    let ended = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .args(["--quiet", "--manifest-path"])
        .arg(copy.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .context("no cargo")?;
    ensure!(ended.success(), "the library with the planted bugs cannot be built: {ended}");
    Ok(target)
}

fn planted_workspace(workspace: &Path) -> Result<Files> {
    let mut files = Files::new();
    for part in NEEDED {
        read(workspace, Path::new(part), &mut files).with_context(|| format!("{part} cannot be read"))?;
    }
    for (file, source) in planted_core(&workspace.join(CORE))? {
        files.insert(Path::new(CORE).join(file), source.into_bytes());
    }
    Ok(files)
}

/// The files of the core that the bugs change, with all of them. An error names each bug that does not fit.
pub(crate) fn planted_core(core: &Path) -> Result<BTreeMap<&'static str, String>> {
    let shortcuts = SHORTCUTS.iter().map(|edit| ("a shortcut past the bugs", "true".to_owned(), edit));
    let bugs = BUGS.iter().flat_map(|bug| {
        let condition = format!("crate::planted({:?})", bug.name);
        bug.edits.iter().map(move |edit| (bug.name, condition.clone(), edit))
    });
    let mut sources = BTreeMap::new();
    let mut misfits = Vec::new();
    for (name, condition, edit) in shortcuts.chain(bugs) {
        let source = match sources.entry(edit.file) {
            Entry::Occupied(read) => read.into_mut(),
            Entry::Vacant(unread) => unread.insert(read_source(core, edit.file).context(name)?),
        };
        match edit.apply(source, &condition) {
            Ok(planted) => *source = planted,
            Err(error) => misfits.push(format!("{name}: {error}")),
        }
    }
    ensure!(misfits.is_empty(), "planted bugs no longer fit the core:\n{}", misfits.join("\n"));
    sources.insert("lib.rs", read_source(core, "lib.rs")? + PLANTED);
    Ok(sources)
}

fn read_source(core: &Path, file: &str) -> Result<String> {
    fs::read_to_string(core.join(file)).with_context(|| format!("{file} of the core cannot be read"))
}

/// Reads a file, or all files of a folder.
fn read(workspace: &Path, part: &Path, files: &mut Files) -> io::Result<()> {
    let path = workspace.join(part);
    if !path.is_dir() {
        files.insert(part.to_owned(), fs::read(path)?);
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        read(workspace, &part.join(entry?.file_name()), files)?;
    }
    Ok(())
}

/// Writes the files that are others than last time, and no more, so that cargo builds no more than that anew.
fn bring_up_to_date(copy: &Path, files: &Files) -> Result<()> {
    fs::create_dir_all(copy)?;
    let mut last = Files::new();
    read(copy, Path::new(""), &mut last)?;
    for gone in last.keys().filter(|file| !files.contains_key(*file)) {
        fs::remove_file(copy.join(gone))?;
    }
    for (file, content) in files.iter().filter(|(file, content)| last.get(*file) != Some(content)) {
        let path = copy.join(file);
        fs::create_dir_all(path.parent().unwrap_or(copy))?;
        fs::write(path, content)?;
    }
    Ok(())
}
