//! Finds the migrations that a framework's package has with it, for frameworks that do not run them by themselves: their
//! documentation says to copy the files. For build scripts.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::MetadataCommand;

/// Writes all scripts of a package, in their order, into `migrations.sql` in the directory for what is built.
///
/// # Errors
///
/// When the package, its directory or its scripts are not there.
pub fn collect(package: &str, directory: &str, suffix: &str) -> Result<()> {
    let metadata = MetadataCommand::new().other_options(vec!["--offline".to_owned()]).exec()?;
    let package = metadata.packages.iter().find(|known| known.name.as_str() == package).context("no such package")?;
    let root = package.manifest_path.parent().context("a manifest lies in a directory")?.join(directory);
    let mut scripts = Vec::new();
    find(root.as_std_path(), suffix, &mut scripts)?;
    scripts.sort();
    let texts = scripts.iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
    let out = env::var_os("OUT_DIR").context("a build script has a directory")?;
    fs::write(Path::new(&out).join("migrations.sql"), texts.join("\n;\n"))?;
    println!("cargo::rerun-if-changed=build.rs");
    Ok(())
}

fn find(directory: &Path, suffix: &str, found: &mut Vec<std::path::PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, suffix, found)?;
        } else if path.to_str().is_some_and(|path| path.ends_with(suffix)) {
            found.push(path);
        }
    }
    Ok(())
}
