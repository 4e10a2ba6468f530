//! The directories and the workspace of a run.

use std::io;
use std::sync::Arc;

use sluice_contract::RunKey;
use sluice_state::layout::RunPaths;

use crate::exchange::{self, Collected, RunFiles};
use crate::sandbox_user::SandboxUsers;
use crate::sidecar_user::SidecarUsers;
use crate::spec::RunSpec;
use crate::step_error::StepError;
use crate::{blueprint, removal, rundir, workspace};

/// Creates the directories of a run whose id was never used.
pub(super) fn create(
    paths: &RunPaths,
    key: &RunKey,
    users: &SidecarUsers,
    sandbox_users: Option<&SandboxUsers>,
) -> Result<(), StepError> {
    paths.check()?;
    if paths.audit.exists() {
        return Err(StepError::IdUsed(paths.audit.clone()));
    }
    rundir::create(paths, key, users, sandbox_users).map_err(|error| failed(paths, error))
}

/// Writes the messages into the workspace, and the mount points of the volumes in it.
pub(super) fn fill_workspace(paths: &RunPaths, spec: &RunSpec) -> Result<(), StepError> {
    write(paths, spec).map_err(|error| failed(paths, error))
}

/// Brings files into the workspace, on another thread: a repository can take a while.
pub(super) async fn bring_in(paths: &RunPaths, spec: Arc<RunSpec>) -> Result<RunFiles, StepError> {
    let at = paths.clone();
    match tokio::task::spawn_blocking(move || spec.exchange.bring_in(&at)).await {
        Ok(files) => Ok(files?),
        Err(error) => Err(failed(paths, io::Error::other(error))),
    }
}

/// Brings results out of the workspace, on another thread.
pub(super) async fn bring_out(paths: &RunPaths, spec: Arc<RunSpec>, files: RunFiles) -> Collected {
    let at = paths.clone();
    let collected = tokio::task::spawn_blocking(move || spec.exchange.bring_out(&files, &at)).await;
    collected.unwrap_or_else(|error| Collected { errors: vec![error.to_string()], ..Collected::default() })
}

/// Keeps the workspace of a run whose results are not out.
pub(super) fn rescue(paths: &RunPaths) -> Result<Collected, StepError> {
    let mut collected = Collected::default();
    let kept = exchange::rescue(paths).map_err(|error| failed(paths, error))?;
    collected.report.workspace = kept.map(|path| path.display().to_string());
    Ok(collected)
}

/// Renames the run's directory; it is deleted later.
pub(super) fn set_aside(paths: &RunPaths) -> Result<(), StepError> {
    removal::set_aside(&paths.root).map_err(|error| failed(paths, error))
}

fn write(paths: &RunPaths, spec: &RunSpec) -> io::Result<()> {
    if let Some(messages) = &spec.messages {
        workspace::write(&paths.work, ".sluice", "messages.json", messages)?;
    }
    for volume in &spec.volumes {
        // The engine would create them with root as owner.
        let inside = volume.target.strip_prefix(blueprint::WORKSPACE).map(|path| path.trim_matches('/'));
        let Some(name) = inside.filter(|name| !name.is_empty()) else { continue };
        if volume.source.is_file() {
            let (directory, name) = name.rsplit_once('/').unwrap_or(("", name));
            workspace::write(&paths.work, directory, name, b"")?;
        } else {
            workspace::make_directory(&paths.work, name)?;
        }
    }
    Ok(())
}

fn failed(paths: &RunPaths, source: io::Error) -> StepError {
    StepError::Directory { path: paths.root.clone(), source }
}
