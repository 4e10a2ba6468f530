//! The directories and the workspace of a run.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sluice_contract::RunKey;
use sluice_state::layout::RunPaths;
use sluice_state::records::RunRecord;
use sluice_state::run::Cancel;
use tokio::sync::watch;

use crate::exchange::{self, CancelFlag, Collected, RunFiles};
use crate::sandbox_user::SandboxUsers;
use crate::sidecar_user::SidecarUsers;
use crate::spec::RunSpec;
use crate::step_error::StepError;
use crate::{blueprint, removal, rundir, workspace};

/// Minimum time for work on files; a longer time of the program is used instead.
const WORK_MIN: Duration = Duration::from_secs(600);

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

/// Writes the messages into the workspace, and creates the mount points of the volumes in it.
pub(super) fn fill_workspace(paths: &RunPaths, spec: &RunSpec) -> Result<(), StepError> {
    write(paths, spec).map_err(|error| failed(paths, error))
}

/// Waits for work on files. A request to stop, or the end of the run's time, interrupts it.
pub(super) async fn interruptible<T>(
    work: impl Future<Output = T>,
    interrupt: &CancelFlag,
    limit: Duration,
    request: impl Future<Output = ()>,
) -> T {
    let mut work = std::pin::pin!(work);
    tokio::select! {
        result = &mut work => return result,
        () = request => {}
        () = tokio::time::sleep(limit.max(WORK_MIN)) => {}
    }
    interrupt.set();
    work.await
}

/// Waits until the run is cancelled.
pub(super) async fn cancelled(mut cancelled: watch::Receiver<Option<Cancel>>) {
    // If the sender is gone, it cannot be cancelled.
    if cancelled.wait_for(Option::is_some).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Brings files into the workspace, on another thread: a repository can take a while.
pub(super) async fn bring_in(
    paths: &RunPaths,
    spec: Arc<RunSpec>,
    interrupt: CancelFlag,
) -> Result<RunFiles, StepError> {
    let at = paths.clone();
    match tokio::task::spawn_blocking(move || spec.exchange.bring_in(&at, &interrupt)).await {
        Ok(files) => Ok(files?),
        Err(error) => Err(failed(paths, io::Error::other(error))),
    }
}

/// Brings results out of the workspace, on another thread.
pub(super) async fn bring_out(
    paths: &RunPaths,
    spec: Arc<RunSpec>,
    files: RunFiles,
    interrupt: CancelFlag,
) -> Collected {
    let at = paths.clone();
    let collected = tokio::task::spawn_blocking(move || spec.exchange.bring_out(&files, &at, &interrupt)).await;
    collected.unwrap_or_else(|error| Collected { errors: vec![error.to_string()], ..Collected::default() })
}

/// Keeps the artifacts of a run in its record, on another thread. Returns a remark if some are not kept.
pub(super) async fn keep_artifacts(paths: &RunPaths, record: RunRecord) -> Option<String> {
    let (at, interrupt) = (paths.clone(), CancelFlag::default());
    let stop = interrupt.clone();
    let work = tokio::task::spawn_blocking(move || exchange::artifacts::keep(&at, &record, &stop));
    // A run that was cancelled has results, too.
    match interruptible(work, &interrupt, Duration::ZERO, std::future::pending()).await {
        Ok(Ok(remark)) => remark,
        Ok(Err(error)) => Some(format!("the artifacts are not kept: {error}")),
        Err(error) => Some(format!("the artifacts are not kept: {error}")),
    }
}

/// Keeps the transcript of a run in its record, on another thread. Returns a remark if it is not kept.
pub(super) async fn keep_transcript(paths: &RunPaths, record: RunRecord) -> Option<String> {
    let (at, interrupt) = (paths.clone(), CancelFlag::default());
    let stop = interrupt.clone();
    let work = tokio::task::spawn_blocking(move || exchange::transcript::keep(&at, &record, &stop));
    // The transcript of a run that was cancelled is kept, too.
    match interruptible(work, &interrupt, Duration::ZERO, std::future::pending()).await {
        Ok(Ok(remark)) => remark,
        Ok(Err(error)) => Some(format!("the transcript is not kept: {error}")),
        Err(error) => Some(format!("the transcript is not kept: {error}")),
    }
}

/// Keeps the workspace of a run whose results were not exported, and returns its new path.
pub(super) fn rescue(paths: &RunPaths) -> Result<Option<String>, StepError> {
    let kept = exchange::rescue(paths).map_err(|source| StepError::Workspace { path: paths.work.clone(), source })?;
    Ok(kept.map(|path| path.display().to_string()))
}

/// Renames the run's directory; it is deleted later.
pub(super) fn set_aside(paths: &RunPaths) -> Result<(), StepError> {
    removal::set_aside(&paths.root).map_err(|error| failed(paths, error))
}

fn write(paths: &RunPaths, spec: &RunSpec) -> io::Result<()> {
    if let Some(messages) = &spec.messages {
        workspace::write(&paths.work, ".sluice", "messages.json", messages)?;
    }
    if let Some(daemon) = spec.daemon.as_ref().filter(|daemon| daemon.artifacts_max > 0) {
        exchange::artifacts::expect(paths, daemon.artifacts_max)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_or_the_end_of_the_time_interrupts_work() {
        let never = std::future::pending::<()>;
        let ready = || std::future::ready(());
        let work = |interrupt: &CancelFlag| {
            let interrupt = interrupt.clone();
            async move {
                while !interrupt.is_set() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        };
        for limit in [Duration::ZERO, WORK_MIN * 2] {
            let (interrupt, begun) = (CancelFlag::default(), tokio::time::Instant::now());
            interruptible(work(&interrupt), &interrupt, limit, never()).await;
            assert!(begun.elapsed() >= limit.max(WORK_MIN));
        }
        let (interrupt, begun) = (CancelFlag::default(), tokio::time::Instant::now());
        interruptible(work(&interrupt), &interrupt, WORK_MIN, ready()).await;
        assert!(begun.elapsed() < WORK_MIN);
        let untouched = CancelFlag::default();
        assert_eq!(interruptible(async { 7 }, &untouched, WORK_MIN, never()).await, 7);
        assert!(!untouched.is_set());
    }
}
