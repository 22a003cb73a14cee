//! Whose a file is. Everybody may write into a shared directory for temporary files, so a process believes its own
//! user's records only, and lets nobody else read its keys.

use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::path::Path;

#[cfg(unix)]
mod by_system {
    use std::fs::{DirBuilder, Metadata, OpenOptions, Permissions};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
    use std::path::Path;

    pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
        options.mode(0o600)
    }

    pub(crate) fn same_user(one: &Metadata, other: &Metadata) -> bool {
        one.uid() == other.uid()
    }

    pub(crate) fn create_for_all_users(directory: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(directory)?;
        // Explicitly, because the umask takes bits from what a new directory asks for. Sticky: each removes its own.
        std::fs::set_permissions(directory, Permissions::from_mode(0o1777))
    }
}

#[cfg(not(unix))]
mod by_system {
    use std::fs::{Metadata, OpenOptions};
    use std::io;
    use std::path::Path;

    pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
        options
    }

    pub(crate) fn same_user(_: &Metadata, _: &Metadata) -> bool {
        // The directory for temporary files is the user's own.
        true
    }

    pub(crate) fn create_for_all_users(directory: &Path) -> io::Result<()> {
        std::fs::create_dir(directory)
    }
}

/// Lets only the user read a file that is created with these options.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    by_system::private(options)
}

/// Whether both files belong to one user.
pub(crate) fn same_user(one: &Metadata, other: &Metadata) -> bool {
    by_system::same_user(one, other)
}

/// Creates the directory unless it is there. `shared`: several users may use it.
pub(crate) fn create_directory(directory: &Path, shared: bool) -> io::Result<()> {
    let created = if shared { by_system::create_for_all_users(directory) } else { fs::create_dir_all(directory) };
    match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        created => created,
    }
}
