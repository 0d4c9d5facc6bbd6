//! Files and folders that only their owner can open.
//!
//! A database, its copies and token files hold everything that an application knows. They are created with mode 0600, and
//! folders with 0700, whatever the umask allows. Files that exist keep their mode: an operator may have chosen it. One that
//! other users can read or write is reported, and so is a folder in which they can replace files.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Options that create files with mode 0600.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates a file that must not exist.
pub fn create_new(path: &Path) -> io::Result<File> {
    options().write(true).create_new(true).open(path)
}

/// Creates a folder and its missing parents; one that exists stays as it is.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// The mode of a file, if users other than its owner have any right to it.
#[cfg(unix)]
pub fn wider_mode(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    (mode & 0o077 != 0).then_some(mode)
}

/// Other systems have no such modes.
#[cfg(not(unix))]
pub fn wider_mode(_: &Path) -> Option<u32> {
    None
}

/// Reports a file to which users other than its owner have any right, with the command that takes it away.
pub fn report_wider_mode(path: &Path) {
    if let Some(mode) = wider_mode(path) {
        let (path, mode) = (path.display().to_string(), format!("{mode:04o}"));
        let remedy = format!("chmod 600 '{path}'");
        tracing::warn!(path, mode, remedy, "other users of this machine have access to a file");
    }
}

/// The mode of a folder, if users other than its owner can replace files in it: they can write, and no sticky bit keeps them
/// from the files of others.
#[cfg(unix)]
pub fn open_folder_mode(folder: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(folder).ok()?.permissions().mode() & 0o7777;
    (mode & 0o022 != 0 && mode & 0o1000 == 0).then_some(mode)
}

/// Other systems have no such modes.
#[cfg(not(unix))]
pub fn open_folder_mode(_: &Path) -> Option<u32> {
    None
}

/// Reports the folder of a file when other users can replace files in it, with the command that takes it away.
pub fn report_open_folder(file: &Path) {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Some(mode) = open_folder_mode(folder) {
        let (path, mode) = (folder.display().to_string(), format!("{mode:04o}"));
        let remedy = format!("chmod go-w '{path}'");
        tracing::warn!(path, mode, remedy, "other users of this machine can replace files in a folder");
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).map_or(0, |found| found.permissions().mode() & 0o777)
    }

    #[test]
    fn files_and_folders_are_made_for_their_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a/b");
        create_folder(&folder).unwrap();
        assert_eq!((mode(&folder), mode(&home.path().join("a"))), (0o700, 0o700));
        let file = folder.join("secret");
        drop(create_new(&file).unwrap());
        assert_eq!((mode(&file), wider_mode(&file)), (0o600, None));
        assert_eq!(create_new(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_folder_in_which_others_can_replace_files_is_open() {
        let home = tempfile::tempdir().unwrap();
        for (mode, found) in
            [(0o700, None), (0o755, None), (0o1777, None), (0o775, Some(0o775)), (0o702, Some(0o702))]
        {
            std::fs::set_permissions(home.path(), PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(open_folder_mode(home.path()), found);
        }
    }

    #[test]
    fn any_right_of_other_users_is_a_wider_mode() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        drop(create_new(&file).unwrap());
        for wide in [0o640, 0o604, 0o660, 0o666, 0o620, 0o601] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(wide)).unwrap();
            assert_eq!(wider_mode(&file), Some(wide));
        }
        assert_eq!(wider_mode(&home.path().join("none")), None);
    }
}
