//! Kinds of paths that an operator names as a state directory: missing, empty, a state directory, or something else.
//!
//! A directory that Sluice did not make keeps its mode. It is used if it is empty or a state directory, belongs to this
//! user, and is not writable for other users. If other users can enter it, the directories in it and the database must
//! be private.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::daemon_lock::DAEMON_LOCK;
use crate::{file, lock};

/// State of a path that is named as a state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateDirectory {
    /// The path does not exist.
    Missing,
    /// An empty directory.
    Empty,
    /// A state directory.
    InUse,
}

/// Reason that a directory is not used as a state directory.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "their messages say it")]
pub enum StateDirectoryError {
    #[error("cannot use the state directory {0}")]
    Io(PathBuf, #[source] io::Error),
    #[error(
        "{path} is neither empty nor a state directory of sluice: it holds {example}; name a new directory with \
         --state-dir", path = .0.display(), example = .1
    )]
    Foreign(PathBuf, String),
    #[error(
        "the state directory {path} belongs to user {1}, and this is user {2}; name a directory of your own with \
         --state-dir", path = .0.display()
    )]
    Owner(PathBuf, u32, u32),
    #[error(
        "other users can write to the state directory {path} (mode {1:04o}); chmod 700 it, or name another with \
         --state-dir", path = .0.display()
    )]
    Writable(PathBuf, u32),
    #[error("other users can enter {path} (mode {1:04o}), which holds secrets; chmod 700 it", path = .0.display())]
    Open(PathBuf, u32),
    #[error("other users can read {path} (mode {1:04o}), which holds secrets; chmod 600 it", path = .0.display())]
    Readable(PathBuf, u32),
}

/// Directories in a state directory that only their owner may enter.
pub(crate) const PRIVATE: [&str; 7] = ["runs", "audit", "prices", "records", "keys", "kept", GIT];
/// Directory of repositories.
const GIT: &str = "git";
/// Other entries of a state directory. A first start that was killed, or a restore by hand, has made only some of them.
const FILES: [&str; 12] = [
    "instance",
    "instance.new",
    "sluice.db",
    "sluice.db-wal",
    "sluice.db-shm",
    "sluice.db-journal",
    "budgets.log",
    "decisions.log",
    lock::LOGS,
    lock::FILES,
    DAEMON_LOCK,
    "lost+found",
];
/// Files that only a state directory has.
const MARKS: [&str; 2] = ["instance", "sluice.db"];

/// Returns the kind of a path. Reads only.
///
/// # Errors
/// [`StateDirectoryError`]
pub fn inspect(state: &Path) -> Result<StateDirectory, StateDirectoryError> {
    let failed = |error| StateDirectoryError::Io(state.to_owned(), error);
    let meta = match fs::metadata(state) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StateDirectory::Missing),
        meta => meta.map_err(failed)?,
    };
    if !meta.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    let us = nix::unistd::Uid::effective().as_raw();
    if meta.uid() != us {
        return Err(StateDirectoryError::Owner(state.to_owned(), meta.uid(), us));
    }
    let found = content(state)?;
    // No other user may put names into it, such as a link in place of a directory.
    if meta.mode() & 0o022 != 0 {
        return Err(StateDirectoryError::Writable(state.to_owned(), meta.mode() & 0o7777));
    }
    if meta.mode() & 0o077 != 0 {
        check_private(state)?;
    }
    Ok(found)
}

/// Makes a missing state directory, private to this user, and returns its kind afterwards: another process may have made it
/// first.
///
/// # Errors
/// [`StateDirectoryError`]
pub(crate) fn create(state: &Path) -> Result<StateDirectory, StateDirectoryError> {
    let failed = |error| StateDirectoryError::Io(state.to_owned(), error);
    DirBuilder::new().mode(0o700).recursive(true).create(file::parent(state)).map_err(failed)?;
    match DirBuilder::new().mode(0o700).create(state) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    inspect(state)
}

fn content(state: &Path) -> Result<StateDirectory, StateDirectoryError> {
    let failed = |error| StateDirectoryError::Io(state.to_owned(), error);
    if MARKS.iter().any(|mark| state.join(mark).is_file()) {
        return Ok(StateDirectory::InUse);
    }
    let (mut found, mut has_git) = (StateDirectory::Empty, false);
    for entry in fs::read_dir(state).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if !PRIVATE.contains(&name.as_str()) && !FILES.contains(&name.as_str()) {
            return Err(StateDirectoryError::Foreign(state.to_owned(), name));
        }
        match name.as_str() {
            "lost+found" => {}
            GIT => has_git = true,
            _ => found = StateDirectory::InUse,
        }
    }
    // Other programs have directories of this name, too.
    if has_git && found == StateDirectory::Empty {
        return Err(StateDirectoryError::Foreign(state.to_owned(), GIT.to_owned()));
    }
    Ok(found)
}

/// Checks the directories and the database in a state directory that others can enter.
fn check_private(state: &Path) -> Result<(), StateDirectoryError> {
    for name in PRIVATE.iter().chain(&["sluice.db"]) {
        let path = state.join(name);
        match fs::metadata(&path) {
            Ok(meta) if meta.mode() & 0o077 != 0 => {
                let open = if meta.is_dir() { StateDirectoryError::Open } else { StateDirectoryError::Readable };
                return Err(open(path, meta.mode() & 0o7777));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(StateDirectoryError::Io(path, error)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::layout::Layout;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().expect("there is room")
    }

    fn directory(scratch: &tempfile::TempDir, name: &str, mode: u32) -> PathBuf {
        let path = scratch.path().join(name);
        fs::create_dir(&path).expect("there is room");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
        path
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o7777
    }

    #[test]
    fn a_new_state_directory_is_private() {
        let scratch = scratch();
        let path = scratch.path().join("new");
        assert_eq!(inspect(&path).expect("it may be made"), StateDirectory::Missing);
        assert!(!path.exists(), "to look makes nothing");

        Layout::open(&path).expect("there is room");

        assert_eq!((mode(&path), inspect(&path).expect("it is ours")), (0o700, StateDirectory::InUse));
    }

    #[test]
    fn an_existing_directory_keeps_its_mode() {
        let scratch = scratch();
        for bits in [0o700, 0o750, 0o755] {
            let path = directory(&scratch, &format!("{bits:o}"), bits);
            assert_eq!(inspect(&path).expect("it is empty"), StateDirectory::Empty);
            for _ in 0..2 {
                Layout::open(&path).expect("it is ours");
            }
            assert_eq!(mode(&path), bits);
            for name in ["runs", "audit", "prices"] {
                assert_eq!(mode(&path.join(name)), 0o700, "{name}");
            }
        }
    }

    #[test]
    fn a_directory_with_other_files_is_refused_untouched() {
        let scratch = scratch();
        for bits in [0o700, 0o755, 0o1777] {
            let path = directory(&scratch, &format!("{bits:o}"), bits);
            fs::write(path.join("thesis.txt"), "").expect("it is ours");
            let error = Layout::open(&path).expect_err("it is not a state directory").to_string();
            assert!(error.contains("thesis.txt") && error.contains("--state-dir"), "{error}");
            assert_eq!((mode(&path), fs::read_dir(&path).expect("it is ours").count()), (bits, 1));
        }
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let scratch = scratch();
        for bits in [0o1777, 0o770, 0o702] {
            let path = directory(&scratch, &format!("{bits:o}"), bits);
            let error = Layout::open(&path).expect_err("others can write to it").to_string();
            assert!(error.contains("chmod 700") && error.contains(&format!("{bits:04o}")), "{error}");
            assert_eq!((mode(&path), fs::read_dir(&path).expect("it is ours").count()), (bits, 0));
        }
    }

    #[test]
    fn open_directories_inside_an_open_one_are_refused() {
        for name in PRIVATE {
            let scratch = scratch();
            let path = directory(&scratch, "st", 0o755);
            Layout::open(&path).expect("it is empty");
            DirBuilder::new().recursive(true).create(path.join(name)).expect("it is ours");
            fs::set_permissions(path.join(name), Permissions::from_mode(0o755)).expect("it is ours");
            let error = Layout::open(&path).expect_err("others can read it").to_string();
            assert!(error.contains(&format!("/{name} ")) && error.contains("chmod 700"), "{error}");

            fs::set_permissions(&path, Permissions::from_mode(0o700)).expect("it is ours");
            Layout::open(&path).expect("nobody else can enter");
        }
    }

    #[test]
    fn a_readable_database_inside_an_open_directory_is_refused() {
        let scratch = scratch();
        let path = directory(&scratch, "st", 0o755);
        let layout = Layout::open(&path).expect("it is empty");
        drop(crate::store::Store::open(&layout.database()).expect("it is new"));
        Layout::open(&path).expect("its database is private");
        fs::set_permissions(layout.database(), Permissions::from_mode(0o644)).expect("it is ours");
        let error = Layout::open(&path).expect_err("others can read the ledger").to_string();
        assert!(error.contains("/sluice.db") && error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_directory_that_another_process_makes_first_is_checked() {
        let scratch = scratch();
        // Made after it was found to be missing.
        for (name, bits, is_used) in [("ours", 0o700, true), ("open", 0o777, false)] {
            let path = directory(&scratch, name, bits);
            assert_eq!(create(&path).is_ok(), is_used, "{name}");
        }
        let deep = scratch.path().join("a/b/c");
        assert_eq!(create(&deep).expect("there is room"), StateDirectory::Empty);
        assert_eq!((mode(&deep), mode(&scratch.path().join("a"))), (0o700, 0o700));
    }

    #[test]
    fn parts_of_a_state_directory_are_recognized() {
        let scratch = scratch();
        for (name, parts) in [
            ("restored", &["audit", "keys"][..]),
            ("repositories", &["git", "audit"]),
            ("killed", &["runs"]),
            ("disk", &["lost+found"]),
        ] {
            let path = directory(&scratch, name, 0o700);
            parts.iter().for_each(|part| fs::create_dir(path.join(part)).expect("there is room"));
            let expected = if name == "disk" { StateDirectory::Empty } else { StateDirectory::InUse };
            assert_eq!(inspect(&path).expect("it may be used"), expected, "{name}");
            Layout::open(&path).expect("it may be used");
        }
        // The directory of a git server.
        let path = directory(&scratch, "foreign", 0o700);
        fs::create_dir(path.join("git")).expect("there is room");
        assert!(matches!(inspect(&path), Err(StateDirectoryError::Foreign(_, name)) if name == "git"));
        // A mark makes it a state directory, whatever else an operator keeps there.
        let path = directory(&scratch, "notes", 0o700);
        Layout::open(&path).expect("it is empty");
        fs::write(path.join("notes.txt"), "").expect("it is ours");
        Layout::open(&path).expect("it has its name");
    }

    #[test]
    fn a_file_is_not_a_state_directory() {
        let scratch = scratch();
        let path = scratch.path().join("file");
        fs::write(&path, "").expect("there is room");
        assert!(matches!(inspect(&path), Err(StateDirectoryError::Io(..))));
    }
}
