//! Workspaces that stay after their runs, in `STATE/kept/RUN.ATTEMPT`.

use std::io;
use std::path::{Path, PathBuf};

use sluice_state::layout::RunPaths;

/// Keeps the workspace of a run whose controller was killed before the results were out. Returns its new path.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn rescue(paths: &RunPaths) -> io::Result<Option<PathBuf>> {
    if keep_marker(paths).exists() { keep_workspace(paths) } else { Ok(None) }
}

/// Moves the workspace to a place where no sweep removes it.
pub(super) fn keep_workspace(paths: &RunPaths) -> io::Result<Option<PathBuf>> {
    use std::os::unix::fs::DirBuilderExt;
    let to = kept(paths);
    let parent = to.parent().unwrap_or(Path::new("/"));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    match std::fs::rename(&paths.work, &to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        moved => moved?,
    }
    let _ = std::fs::remove_file(keep_marker(paths));
    Ok(Some(to))
}

pub(super) fn kept(paths: &RunPaths) -> PathBuf {
    let runs = paths.root.parent().unwrap_or(Path::new("/"));
    runs.with_file_name("kept").join(paths.root.file_name().unwrap_or_default())
}

/// Path of the file that says that the workspace holds results which are nowhere else.
pub(super) fn keep_marker(paths: &RunPaths) -> PathBuf {
    paths.conf.join("keep-workspace")
}
