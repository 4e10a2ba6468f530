//! The directory of kept workspaces: listing and removal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sluice_contract::RunKey;
use sluice_runs::rundir;
use sluice_state::layout::Layout;
use tokio::task::spawn_blocking;

/// Maximum number of kept workspaces of one owner; workspaces of chats do not count.
pub(crate) const OF_OWNER: usize = 20;
/// Name prefix of a workspace that is being removed.
const REMOVED: &str = ".removed-";

/// Returns the attempts with a kept workspace.
///
/// # Errors
/// Errors of the kernel.
pub(crate) async fn list_kept(layout: &Layout) -> io::Result<Vec<RunKey>> {
    let directory = directory(layout);
    spawn_blocking(move || list(&directory).map(|(keys, _)| keys)).await.map_err(io::Error::other)?
}

/// Removes kept workspaces. A missing one counts as removed; a failure does not stop the rest.
///
/// # Errors
/// Errors of the kernel.
pub(crate) async fn remove_kept(layout: &Layout, keys: Vec<RunKey>) -> io::Result<()> {
    let directory = directory(layout);
    spawn_blocking(move || remove(&directory, &keys)).await.map_err(io::Error::other)?
}

/// Removes the remains of an earlier removal.
///
/// # Errors
/// Errors of the kernel.
pub(crate) async fn remove_leftovers(layout: &Layout) -> io::Result<()> {
    let directory = directory(layout);
    let remove = move || list(&directory)?.1.iter().try_for_each(|path| rundir::remove(path, None));
    spawn_blocking(remove).await.map_err(io::Error::other)?
}

fn directory(layout: &Layout) -> PathBuf {
    layout.state().join("kept")
}

fn remove(directory: &Path, keys: &[RunKey]) -> io::Result<()> {
    let mut removed = Ok(());
    for key in keys {
        let path = directory.join(format!("{REMOVED}{key}"));
        let done = fs::rename(directory.join(key.to_string()), &path).and_then(|()| rundir::remove(&path, None));
        if let Err(error) = done
            && error.kind() != io::ErrorKind::NotFound
        {
            removed = Err(error);
        }
    }
    removed
}

/// Returns the kept workspaces, and the workspaces that an earlier daemon has not completely removed.
fn list(directory: &Path) -> io::Result<(Vec<RunKey>, Vec<PathBuf>)> {
    let (mut keys, mut removed) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((keys, removed)),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        match name.parse() {
            Ok(key) => keys.push(key),
            Err(_) if name.starts_with(REMOVED) => removed.push(entry.path()),
            Err(_) => {}
        }
    }
    Ok((keys, removed))
}
