//! Where the records are, and which of the files there can be trusted.
//!
//! A record can set a row aside, so nobody else may write one. Another user may get to a temporary directory first, and
//! a link may lead to a file that somebody has uploaded. A process therefore trusts only regular files of its own user,
//! and only those that it has opened by their own name.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The largest record that is read, in bytes: a thousand keys of eight kilobytes.
pub(crate) const LARGEST: u64 = 8 << 20;

/// A directory for records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CrashDirectory {
    path: PathBuf,
    place: Place,
}

/// The kind of place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The place that the settings name. Other users may share it, and a link may lead to it.
    Named,
    /// The state directory of the service or the user, which nobody else may change.
    State,
}

impl CrashDirectory {
    /// Returns the directory that the settings name.
    pub(crate) fn named(path: &Path) -> Self {
        CrashDirectory { path: path.to_owned(), place: Place::Named }
    }

    /// Returns the usual places, best first.
    pub(crate) fn usual() -> Vec<Self> {
        usual(|name| env::var_os(name))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory unless it exists, and makes sure that no other user can replace this user's files, and that
    /// it outlives the process.
    ///
    /// # Errors
    ///
    /// If it cannot be created or cannot be trusted; the text says what to do.
    pub(crate) fn create(&self) -> io::Result<()> {
        if self.place == Place::State && by_system::is_of_a_container(&self.path) {
            let what = "belongs to a container, and may be gone when its process ends";
            return Err(io::Error::other(format!("{} {what}", self.path.display())));
        }
        let mut builder = DirBuilder::new();
        match by_system::private_directory(&mut builder).recursive(true).create(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Service managers use a link for a state directory, so a named place may be one. The usual places must not end in a
        // link.
        let found =
            if self.place == Place::Named { fs::metadata(&self.path) } else { fs::symlink_metadata(&self.path) };
        by_system::judge(&found?, &self.path, self.place == Place::Named)
    }
}

fn usual(variable: impl Fn(&str) -> Option<OsString>) -> Vec<CrashDirectory> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let directories =
        |name| variable(name).map(|paths| env::split_paths(&paths).collect::<Vec<_>>()).unwrap_or_default();
    let services = directories("STATE_DIRECTORY").into_iter();
    let home = variable("HOME").map(|home| PathBuf::from(home).join(".local").join("state"));
    let home = home.or(variable("LOCALAPPDATA").map(PathBuf::from));
    let users = variable("XDG_STATE_HOME").map(PathBuf::from).filter(absolute).or(home);
    // If a service runs as root with another user's HOME, that user could redirect it anywhere.
    let users = users.filter(|path| by_system::is_below_ours(path));
    let states = services.chain(users).filter(absolute);
    states.map(|path| CrashDirectory { path: path.join("queueable"), place: Place::State }).collect()
}

/// Creates a file that no other user can read.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    // In append mode one call writes at the end, wherever that is.
    by_system::private(OpenOptions::new().append(true).create_new(true)).open(path)
}

/// Opens a file that this user has written, if it is one. `None`: it is a link, a pipe, another user's, or too large
/// for a record.
pub(crate) fn open_own(path: &Path) -> io::Result<Option<(File, Metadata)>> {
    // The first check comes before `open`, because opening some devices has effects. The file may be replaced in
    // between, so the second check comes after it.
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(None);
    }
    let file = by_system::no_link(OpenOptions::new().read(true).append(true)).open(path)?;
    let metadata = file.metadata()?;
    let is_own = metadata.is_file() && by_system::is_own(&metadata) && metadata.len() <= LARGEST;
    Ok(is_own.then_some((file, metadata)))
}

/// Tells whether the file still has this name.
pub(crate) fn is_there(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(file), Ok(found)) => by_system::is_same(&file, &found),
        _ => false,
    }
}

#[cfg(unix)]
mod by_system {
    use std::fs::{self, DirBuilder, Metadata, OpenOptions};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
    use std::path::Path;

    use rustix::fs::OFlags;
    use rustix::process::geteuid;

    pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
        no_link(options).mode(0o600)
    }

    pub(super) fn no_link(options: &mut OpenOptions) -> &mut OpenOptions {
        // Without waiting: opening a pipe blocks until somebody opens its other end.
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
    }

    pub(super) fn private_directory(builder: &mut DirBuilder) -> &mut DirBuilder {
        builder.mode(0o700)
    }

    /// Only one name: with a second one, somebody may have moved another file of this user's here.
    pub(super) fn is_own(metadata: &Metadata) -> bool {
        metadata.uid() == geteuid().as_raw() && metadata.nlink() == 1
    }

    pub(super) fn is_same(one: &Metadata, other: &Metadata) -> bool {
        (one.dev(), one.ino()) == (other.dev(), other.ino())
    }

    /// Tells whether the nearest existing part of the path belongs to this user.
    pub(super) fn is_below_ours(path: &Path) -> bool {
        let nearest = path.ancestors().find_map(|part| fs::metadata(part).ok());
        nearest.is_some_and(|found| found.uid() == geteuid().as_raw())
    }

    /// Tells whether the nearest existing part of the path is in the layer that a container writes on, which mostly is an
    /// overlay. An orchestrator begins a new one whenever it starts the process again. Volumes are other file systems.
    #[cfg(target_os = "linux")]
    pub(super) fn is_of_a_container(path: &Path) -> bool {
        // From the kernel's `magic.h`.
        const OVERLAYFS: u64 = 0x794c_7630;
        let nearest = path.ancestors().find_map(|part| rustix::fs::statfs(part).ok());
        nearest.is_some_and(|found| found.f_type as u64 == OVERLAYFS)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn is_of_a_container(_: &Path) -> bool {
        false
    }

    pub(super) fn judge(found: &Metadata, path: &Path, named: bool) -> io::Result<()> {
        let path = path.display();
        let refuse = |text: String| Err(io::Error::other(text));
        if !found.is_dir() {
            return refuse(format!("{path} is not a directory"));
        }
        let own = geteuid().as_raw();
        if named {
            return match found.mode() & 0o1002 == 0o002 {
                true => refuse(format!("everybody may replace the files in {path}; to mend it: chmod +t {path}")),
                false => Ok(()),
            };
        }
        if found.uid() != own {
            return refuse(format!("{path} belongs to user {}, and this process is of user {own}", found.uid()));
        }
        if found.mode() & 0o022 != 0 {
            return refuse(format!("others may write in {path}; to mend it: chmod 0700 {path}"));
        }
        Ok(())
    }
}

#[cfg(not(unix))]
mod by_system {
    use std::fs::{DirBuilder, Metadata, OpenOptions};
    use std::io;
    use std::path::Path;

    pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
        options
    }

    pub(super) fn no_link(options: &mut OpenOptions) -> &mut OpenOptions {
        options
    }

    pub(super) fn private_directory(builder: &mut DirBuilder) -> &mut DirBuilder {
        builder
    }

    pub(super) fn is_own(_: &Metadata) -> bool {
        true
    }

    pub(super) fn is_same(_: &Metadata, _: &Metadata) -> bool {
        true
    }

    pub(super) fn is_below_ours(_: &Path) -> bool {
        true
    }

    pub(super) fn is_of_a_container(_: &Path) -> bool {
        false
    }

    pub(super) fn judge(found: &Metadata, path: &Path, _named: bool) -> io::Result<()> {
        match found.is_dir() {
            true => Ok(()),
            false => Err(io::Error::other(format!("{} is not a directory", path.display()))),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;
    use crate::crash::test_directory::TestDirectory;

    /// Another user's id, which only root can give a file to.
    const STRANGER: u32 = 4242;

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    fn own(path: &Path) -> CrashDirectory {
        CrashDirectory { path: path.to_owned(), place: Place::State }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the test's own files");
    }

    #[test]
    fn the_services_state_directory_comes_first_and_then_the_users() {
        let root = TestDirectory::new();
        let home = root.path().join("home");
        let places = |variables: &[(&str, &str)]| {
            let found = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            usual(found).iter().map(|place| place.path().display().to_string()).collect::<Vec<_>>()
        };
        let home = home.display().to_string();
        assert_eq!(places(&[]), [""; 0]);
        let by_home = format!("{home}/.local/state/queueable");
        assert_eq!(places(&[("HOME", &home)]), std::slice::from_ref(&by_home));
        let xdg = format!("{home}/state");
        assert_eq!(places(&[("HOME", &home), ("XDG_STATE_HOME", &xdg)]), [format!("{xdg}/queueable")]);
        assert_eq!(places(&[("LOCALAPPDATA", &home)]), [format!("{home}/queueable")]);
        // Relative paths are ignored.
        assert_eq!(places(&[("HOME", &home), ("XDG_STATE_HOME", "state")]), std::slice::from_ref(&by_home));
        assert_eq!(
            places(&[("HOME", &home), ("STATE_DIRECTORY", "/var/lib/shop:relative:/var/lib/more")]),
            ["/var/lib/shop/queueable".to_owned(), "/var/lib/more/queueable".to_owned(), by_home]
        );
        if is_root() {
            let strangers = root.path().join("stranger");
            fs::create_dir(&strangers).expect("the test's own files");
            chown(&strangers, Some(STRANGER), None).expect("root may give a directory away");
            assert_eq!(places(&[("HOME", &strangers.display().to_string())]), [""; 0]);
        }
    }

    #[test]
    fn a_directory_is_created_for_its_user_alone() {
        let root = TestDirectory::new();
        let directory = own(&root.path().join("state").join("queueable"));
        for _ in 0..2 {
            directory.create().expect("the test's own files");
        }
        let mode = fs::metadata(directory.path()).expect("the test's own files").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_directory_that_others_have_a_hand_in_is_refused_with_the_mend() {
        let root = TestDirectory::new();
        let path = root.path().join("records");
        fs::create_dir(&path).expect("the test's own files");
        set_mode(&path, 0o777);
        for (directory, mend) in [(own(&path), "chmod 0700"), (CrashDirectory::named(&path), "chmod +t")] {
            let refused = directory.create().expect_err("everybody may write there").to_string();
            assert!(refused.contains(mend) && refused.contains("records"), "{refused}");
        }
        set_mode(&path, 0o1777);
        assert!(own(&path).create().is_err());
        // A user who names a directory may share it.
        CrashDirectory::named(&path).create().expect("the test's own files");
        if is_root() {
            set_mode(&path, 0o700);
            chown(&path, Some(STRANGER), None).expect("root may give a directory away");
            let refused = own(&path).create().expect_err("it is a stranger's").to_string();
            assert!(refused.contains("belongs to user 4242"), "{refused}");
        }
        let link = root.path().join("link");
        symlink(root.path(), &link).expect("the test's own files");
        assert!(own(&link).create().expect_err("it is a link").to_string().contains("is not a directory"));
        // As a service manager links to a private directory.
        set_mode(root.path(), 0o700);
        CrashDirectory::named(&link).create().expect("the test's own files");
    }

    #[test]
    fn nothing_is_opened_but_a_regular_file_of_ones_own() {
        let root = TestDirectory::new();
        let at = |name: &str| root.path().join(name);
        let is_opened = |path: &Path| open_own(path).expect("the test's own files").is_some();
        fs::write(at("file"), "mine").expect("the test's own files");
        assert!(is_opened(&at("file")));
        symlink(at("file"), at("link")).expect("the test's own files");
        assert!(!is_opened(&at("link")));
        let flags = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, flags, 0)
            .expect("the test's own files");
        assert!(!is_opened(&at("pipe")), "and nobody waits for its other end");
        let large = File::create(at("large")).expect("the test's own files");
        large.set_len(LARGEST + 1).expect("the test's own files");
        assert!(!is_opened(&at("large")));
        fs::hard_link(at("file"), at("second name")).expect("the test's own files");
        assert!(!is_opened(&at("file")) && !is_opened(&at("second name")));
        if is_root() {
            fs::write(at("strangers"), "theirs").expect("the test's own files");
            chown(at("strangers"), Some(STRANGER), None).expect("root may give a file away");
            assert!(!is_opened(&at("strangers")));
        }
    }
}
