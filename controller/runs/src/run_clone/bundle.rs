//! The bundles of a run's work, which a second container makes: the same image, no network, the workspace read-only.
//!
//! Anything in the run's repository that git executes is executed in the container, not on the host. The bundles are hostile,
//! like a push. Uncommitted changes have any content and size, so they get a second bundle after the branch's.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::path::Path;
use std::time::Duration;

use sluice_contract::text::sanitize;
use sluice_git::{Branch, CommitterIdentity, ObjectId};
use sluice_state::layout::RunPaths;

use super::error::CloneError;
use crate::blueprint::{Blueprint, EXPIRES_LABEL, MountAccess, Volume, WORKSPACE};
use crate::capture::Captured;
use crate::engine::{Engine, EngineError, OutputConfig, StdioConfig};
use crate::input::Stdin;
use crate::rundir;

/// Maximum time of the container that collects.
const WITHIN: Duration = Duration::from_secs(120);
/// Maximum number of bytes that the container may write: objects of the uncommitted changes, and the bundles.
const WRITTEN_MAX: u64 = 4 << 30;
/// Time between two measurements of what it has written.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of kept bytes of that container's output.
const OUTPUT: usize = 4096;
/// Mount point of the directory for the bundle.
const TARGET: &str = "/bundle";
/// Exit code of the script if the image has no git.
const NO_GIT: i64 = 93;

/// File in that directory, once the branch is packed or has no new commits. Later faults concern only uncommitted changes.
const BRANCH_DONE: &str = "branch.done";

/// Packs the branch, and then, in a second bundle, the uncommitted changes. A separate repository borrows the
/// objects of the clone, which is read-only.
const SCRIPT: &str = r#"
set -eu
command -v git >/dev/null 2>&1 || exit 93
ulimit -f 2097152
export HOME=/bundle GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0 LC_ALL=C
clone=/workspace/repo/.git
git init -q --bare /bundle/pack
printf '%s\n' "$clone/objects" > /bundle/pack/objects/info/alternates
[ ! -f "$clone/shallow" ] || cp "$clone/shallow" /bundle/pack/shallow
in_clone() {
  GIT_DIR=$clone GIT_WORK_TREE=/workspace/repo GIT_INDEX_FILE=/bundle/index GIT_OBJECT_DIRECTORY=/bundle/pack/objects \
    GIT_ALTERNATE_OBJECT_DIRECTORIES=$clone/objects git -c safe.directory='*' -c core.fsmonitor=false -c core.hooksPath=/dev/null "$@"
}
head=$(in_clone rev-parse --quiet --verify "refs/heads/$SLUICE_BRANCH^{commit}" || true)
if [ -n "$head" ]; then
  git -C /bundle/pack update-ref "refs/heads/$SLUICE_BRANCH" "$head"
  new=$(git -C /bundle/pack rev-list --max-count=1 "$head" "^$SLUICE_BASE")
  # git makes no bundle of nothing.
  [ -z "$new" ] || git -C /bundle/pack bundle create -q /bundle/branch.bundle "refs/heads/$SLUICE_BRANCH" "^$SLUICE_BASE"
fi
: > /bundle/branch.done
at=$(in_clone rev-parse --quiet --verify 'HEAD^{commit}' || true)
[ -n "$at" ] || exit 0
[ ! -f "$clone/index" ] || cp "$clone/index" /bundle/index
# What cannot be added, such as a repository in it without a commit, is left out.
in_clone add --all --ignore-errors -- /workspace/repo || :
tree=$(in_clone write-tree)
[ "$tree" != "$(in_clone rev-parse "$at^{tree}")" ] || [ "$at" != "${head:-$SLUICE_BASE}" ] || exit 0
wip=$(in_clone commit-tree "$tree" -p "$at" -m "What run $SLUICE_RUN did not commit")
git -C /bundle/pack update-ref "refs/sluice/wip/$SLUICE_RUN" "$wip"
git -C /bundle/pack bundle create -q /bundle/wip.bundle "refs/sluice/wip/$SLUICE_RUN" "^$SLUICE_BASE"
"#;

/// Bundles that a container made. Each is complete without the other.
#[derive(Debug)]
pub(super) struct Bundles {
    /// The branch; `None` if it has no commits beyond its base.
    pub(super) branch: Option<File>,
    /// Commit with uncommitted work; none if everything is committed.
    pub(super) uncommitted: Result<Option<File>, CloneError>,
}

/// Returns whether a directory takes more than this number of bytes. Blocks the thread.
pub(crate) type Exceeds = fn(&Path, u64) -> bool;

/// Names in the bundle of a run.
pub(super) struct BundlePlan<'a> {
    pub(super) branch: &'a Branch,
    pub(super) run: &'a str,
    pub(super) base: &'a ObjectId,
    pub(super) identity: &'a CommitterIdentity,
}

/// Removes a container that an earlier controller left: the collector of the run with this container name and these labels.
pub(crate) async fn remove_collector(
    engine: &Engine,
    name: &str,
    labels: &BTreeMap<String, String>,
) -> Result<(), EngineError> {
    let mut labels = of_collector(labels.clone());
    labels.remove(EXPIRES_LABEL);
    match engine.find(&collector_name(name), &labels).await? {
        Some(found) => engine.remove(&found.id).await,
        None => Ok(()),
    }
}

/// Returns the name of the collecting container. It differs from the run's container, so that the two are not confused.
fn collector_name(name: &str) -> String {
    format!("{name}-commits")
}

fn of_collector(mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.insert("sluice.role".to_owned(), "commits".to_owned());
    labels
}

/// Makes the bundles in a container like the run's, and opens them. An error concerns the branch's bundle.
pub(super) async fn make(
    engine: &Engine,
    container: Blueprint,
    paths: &RunPaths,
    plan: &BundlePlan<'_>,
    exceeds: Exceeds,
) -> Result<Bundles, CloneError> {
    let directory = paths.root.join("bundle");
    let file = CloneError::file("make the directory for what the run committed");
    let uid = rundir::sandbox_uid(paths).map_err(&file)?;
    let (name, labels) = (container.name.clone(), container.labels.clone());
    remove_collector(engine, &name, &labels).await?;
    // An earlier controller may have been killed while it collected; then a sandbox has filled the directory.
    let old = directory.clone();
    let removed = tokio::task::spawn_blocking(move || rundir::remove(&old, None)).await;
    removed.map_err(std::io::Error::other).and_then(|removed| removed).map_err(&file)?;
    DirBuilder::new().mode(0o700).create(&directory).map_err(&file)?;
    chown(&directory, Some(uid), Some(uid)).map_err(&file)?;
    let blueprint = collecting(container, paths, &directory, plan);
    let outgrown = outgrown(&directory, WRITTEN_MAX, exceeds);
    let done = run(engine, &blueprint, outgrown).await.and_then(|(code, output)| check(code, &output));
    // Also after a failure, because it would block the next one. A container of this name that is not ours stays.
    let removed = remove_collector(engine, &name, &labels).await;
    let is_branch_done = directory.join(BRANCH_DONE).symlink_metadata().is_ok();
    if !is_branch_done {
        done?;
        return Err(CloneError::Unfinished);
    }
    removed?;
    let branch = open(&directory.join("branch.bundle")).map_err(CloneError::file("open what the run committed"))?;
    let open_rest = || open(&directory.join("wip.bundle")).map_err(CloneError::file("open what was not committed"));
    Ok(Bundles { branch, uncommitted: done.and_then(|()| open_rest()) })
}

/// Returns the error of an exit code.
fn check(code: i64, output: &Captured) -> Result<(), CloneError> {
    match code {
        0 => Ok(()),
        NO_GIT => Err(CloneError::NoGit),
        code => Err(CloneError::Failed { code, message: sanitize(output.text().trim()) }),
    }
}

/// Runs the container, and returns its exit code and its output. It must have ended before `outgrown`.
async fn run(
    engine: &Engine,
    blueprint: &Blueprint,
    outgrown: impl Future<Output = ()>,
) -> Result<(i64, Captured), CloneError> {
    let id = engine.create(blueprint).await?;
    let output = StdioConfig { stdin: Stdin::Closed, tty: false, max: OUTPUT, live: None, record: None };
    let mut running = engine.start(&id, OutputConfig::Attached(output)).await?;
    tokio::select! {
        () = engine.wait_until_stopped(&id, WITHIN) => {}
        () = outgrown => return Err(CloneError::TooLarge(WRITTEN_MAX)),
    }
    let exit = engine.find(&id, &blueprint.labels).await?.and_then(|found| found.exit);
    let Some(exit) = exit else { return Err(CloneError::Late(WITHIN.as_secs())) };
    running.stop_waiting(Duration::from_secs(1));
    running.drained().await;
    let (_, stderr) = running.finish().captured;
    Ok((exit.code, stderr))
}

/// Waits until a directory takes more than this number of bytes, or cannot be measured.
async fn outgrown(directory: &Path, max: u64, exceeds: Exceeds) {
    loop {
        tokio::time::sleep(MEASURE_EVERY).await;
        let directory = directory.to_owned();
        if tokio::task::spawn_blocking(move || exceeds(&directory, max)).await.unwrap_or(true) {
            return;
        }
    }
}

/// Returns the collecting container: the run's container with another program, and without access to the model.
fn collecting(container: Blueprint, paths: &RunPaths, directory: &Path, plan: &BundlePlan<'_>) -> Blueprint {
    let mount =
        |source: &Path, target: &str, access| Volume { source: source.to_owned(), target: target.to_owned(), access };
    let (name, email) = (plan.identity.name(), plan.identity.email());
    let env = [
        ("GIT_AUTHOR_EMAIL", email),
        ("GIT_AUTHOR_NAME", name),
        ("GIT_COMMITTER_EMAIL", email),
        ("GIT_COMMITTER_NAME", name),
        ("SLUICE_BASE", plan.base.as_str()),
        ("SLUICE_BRANCH", plan.branch.as_str()),
        ("SLUICE_RUN", plan.run),
    ];
    Blueprint {
        name: collector_name(&container.name),
        labels: of_collector(container.labels),
        entrypoint: Some(["/bin/sh", "-c", SCRIPT, "collect"].map(str::to_owned).into()),
        argv: Vec::new(),
        env: env.map(|(name, value)| format!("{name}={value}")).into(),
        workdir: "/".to_owned(),
        mounts: vec![
            mount(&paths.work, WORKSPACE, MountAccess::ReadOnly),
            mount(directory, TARGET, MountAccess::ReadWrite),
        ],
        stdin: Stdin::Closed,
        tty: false,
        log_max: None,
        ..container
    }
}

/// Opens a regular file, through no link. `None` if it does not exist.
fn open(path: &Path) -> std::io::Result<Option<File>> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_large_file(directory: &Path, max: u64) -> bool {
        std::fs::metadata(directory.join("file")).is_ok_and(|file| file.len() > max)
    }

    #[tokio::test(start_paused = true)]
    async fn a_directory_that_grows_is_noticed() {
        let directory = tempfile::tempdir().expect("there is room");
        let outgrown = outgrown(directory.path(), 10, has_large_file);
        let mut outgrown = std::pin::pin!(outgrown);
        let within = tokio::time::timeout(3 * MEASURE_EVERY, &mut outgrown).await;
        within.expect_err("it is empty");
        std::fs::write(directory.path().join("file"), [1_u8; 11]).expect("there is room");
        outgrown.await;
    }
}
