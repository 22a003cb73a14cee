//! A project as a reader of the documentation makes it: by commands and files of a page, with the packages as they are here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The `Cargo.toml` that `cargo new` and `cargo add` write, with any version: `Cargo.lock` has the versions.
pub(crate) fn manifest(commands: &str) -> String {
    let new = commands.lines().find_map(|line| line.strip_prefix("cargo new ")).expect("the commands make a project");
    let name = new.split_whitespace().find(|word| !word.starts_with('-')).expect("a project has a name");
    let (mut dependencies, mut of_tests) = (String::new(), String::new());
    for added in commands.lines().filter_map(|line| line.strip_prefix("cargo add ")) {
        let (added, table) = match added.strip_prefix("--dev ") {
            Some(added) => (added, &mut of_tests),
            None => (added, &mut dependencies),
        };
        let (name, features) = added.split_once(" --features ").unwrap_or((added, ""));
        let features: Vec<_> = features.split(',').filter(|feature| !feature.is_empty()).collect();
        *table += &format!("{name} = {{ version = \"*\", features = {features:?} }}\n");
    }
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\n{dependencies}\n\
         [dev-dependencies]\n{of_tests}"
    )
}

/// A new project beside the others that the tests have built, so that it need not build the libraries again.
pub(crate) struct Project {
    folder: tempfile::TempDir,
    /// To cargo, projects of one name are one project, which is built again only if its files are younger than its
    /// program. So there is one project at a time.
    _lock: fs::File,
}

impl Project {
    /// Makes a project of its files, each with its path.
    pub(crate) fn new(manifest: &str, files: &[(&str, &str)]) -> Self {
        fs::create_dir_all(target()).unwrap();
        let lock = fs::File::create(target().join("one_at_a_time")).unwrap();
        lock.lock().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).display();
        // Cargo warns of a patch that a project does not need.
        let console = if manifest.contains("queueable-console") {
            format!("queueable-console = {{ path = \"{root}/queue-console\" }}\n")
        } else {
            String::new()
        };
        // The packages as they are here, with the versions of everything else that the tests have.
        let here = format!(
            "\n[patch.crates-io]\nqueueable = {{ path = \"{root}\" }}\nqueueable-core = {{ path = \"{root}/queue-core\" }}\n\
             queueable-derive = {{ path = \"{root}/queue-derive\" }}\n{console}\n[profile.dev]\ndebug = false\n"
        );
        fs::write(folder.path().join("Cargo.toml"), manifest.to_owned() + &here).unwrap();
        fs::copy(format!("{root}/Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a file has a folder")).unwrap();
            fs::write(path, text).unwrap();
        }
        Project { folder, _lock: lock }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs cargo, and returns what it prints. Nothing but the names of packages may stand in its standard error: the project
    /// builds as it is pasted, and without a warning.
    pub(crate) fn cargo(&self, command: &str, url: &str) -> String {
        let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(command.split_whitespace())
            .arg("--offline")
            .current_dir(self.path())
            .env("CARGO_TARGET_DIR", target())
            .env("DATABASE_URL", url)
            // What cargo has set for the tests is not for this project.
            .env_remove("CARGO_MANIFEST_DIR")
            .env_remove("RUSTFLAGS")
            .env_remove("RUSTC_BOOTSTRAP")
            .env_remove("RUST_TEST_THREADS")
            .output()
            .unwrap();
        let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{out}{error}");
        assert!(!error.contains("warning"), "{error}");
        out
    }
}

/// One of the programs that cargo has built for a project.
#[allow(dead_code, reason = "most projects have one program, which cargo runs")]
pub(crate) fn built(program: &str) -> PathBuf {
    target().join("debug").join(program)
}

/// The target directory of such projects: in that of the tests, which may be in use.
fn target() -> PathBuf {
    let program = env::current_exe().unwrap();
    program.ancestors().nth(3).expect("target/debug/deps/<program>").join("tests/projects")
}
