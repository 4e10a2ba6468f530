//! Workspaces that stay after their runs, in `STATE/kept/RUN.ATTEMPT`.

use std::io;
use std::path::{Path, PathBuf};

use sluice_state::layout::RunPaths;

/// Notes that from here on the workspace holds results, which no sweep may remove.
pub(super) fn mark(paths: &RunPaths) -> io::Result<()> {
    std::fs::write(keep_marker(paths), b"")
}

/// Notes that the results were exported.
pub(super) fn unmark(paths: &RunPaths) -> io::Result<()> {
    std::fs::remove_file(keep_marker(paths))
}

/// Keeps the workspace of a run whose results were not exported, and returns its new path; otherwise `None`. The directory
/// of the run must not be removed before this has succeeded.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn rescue(paths: &RunPaths) -> io::Result<Option<PathBuf>> {
    let to = kept(paths);
    if !paths.work.try_exists()? && to.try_exists()? {
        // The controller was killed after it had moved the workspace, and before it had reported that.
        let _ = unmark(paths);
        return Ok(Some(to));
    }
    if !keep_marker(paths).try_exists()? {
        return Ok(None);
    }
    match std::fs::rename(&paths.work, &to) {
        // The workspace does not exist, so there is no work to keep.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !paths.work.try_exists()? => return Ok(None),
        moved => moved?,
    }
    let _ = unmark(paths);
    Ok(Some(to))
}

/// Returns whether the workspace has results that were not exported: its program was started, or was about to start.
pub(crate) fn expects_results(paths: &RunPaths) -> bool {
    keep_marker(paths).exists()
}

/// Returns the path of a kept workspace, which may not exist.
#[must_use]
pub fn kept(paths: &RunPaths) -> PathBuf {
    let runs = paths.root.parent().unwrap_or(Path::new("/"));
    runs.with_file_name("kept").join(paths.root.file_name().unwrap_or_default())
}

/// Path of the file that says that the workspace holds results which are nowhere else.
fn keep_marker(paths: &RunPaths) -> PathBuf {
    paths.conf.join("keep-workspace")
}
