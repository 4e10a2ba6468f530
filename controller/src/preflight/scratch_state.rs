//! A state directory for one probe, which leaves the real one as it is.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use sluice_state::layout::{Layout, LayoutError};

/// Beginning of the names of these directories.
const NAME: &str = "sluice-preflight.";

/// A state directory in the directory for temporary files. It is removed when it is dropped; one that a killed process left is
/// removed by the next check.
pub(super) struct ScratchState {
    path: PathBuf,
    layout: Layout,
    /// Held while the directory is in use.
    _lock: Flock<File>,
}

impl ScratchState {
    /// Creates the directory, private to this user.
    pub(super) fn new() -> Result<Self, LayoutError> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        let id = uuid::Uuid::new_v4().simple().to_string();
        let path = parent.join(format!("{NAME}{}", &id[..8]));
        let failed = |error| LayoutError::State(path.clone(), error);
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let lock = lock(&path).map_err(failed)?;
        // The state directory is a subdirectory, because it has locks of its own.
        match Layout::open(&path.join("st")) {
            Ok(layout) => Ok(Self { path, layout, _lock: lock }),
            Err(error) => {
                let _ = fs::remove_dir_all(&path);
                Err(error)
            }
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }
}

impl Drop for ScratchState {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories that killed processes of this user have left.
fn remove_abandoned(parent: &Path) {
    let us = nix::unistd::Uid::effective().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = || fs::symlink_metadata(entry.path()).is_ok_and(|meta| meta.is_dir() && meta.uid() == us);
        if entry.file_name().to_string_lossy().starts_with(NAME) && is_ours() {
            remove_unless_used(entry.path());
        }
    }
}

fn remove_unless_used(path: PathBuf) {
    // An empty one is being made. A directory in use is locked.
    let is_made = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some());
    if is_made && lock(&path).is_ok() {
        let _ = fs::remove_dir_all(path);
    }
}

fn lock(path: &Path) -> io::Result<Flock<File>> {
    Flock::lock(File::open(path)?, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_use_is_not_removed() {
        let used = ScratchState::new().expect("there is room");
        let path = used.path.clone();
        drop(ScratchState::new().expect("there is room"));
        assert!(used.layout().runs_directory().is_dir());
        drop(used);
        assert!(!path.exists());
    }

    #[test]
    fn a_directory_of_a_killed_process_is_removed() {
        let left = std::env::temp_dir().join(format!("{NAME}{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir_all(left.join("runs")).expect("there is room");
        drop(ScratchState::new().expect("there is room"));
        assert!(!left.exists());
    }
}
