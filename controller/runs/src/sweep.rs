//! Leftovers of killed controllers: found by the name of our instance, and removed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_state::control_log::ControlEntry;
use sluice_state::keys::KeyError;
use sluice_state::ledger::{AuditArchive, LedgerError};
use sluice_state::run::RunPhase;
use sluice_state::sandboxes::SandboxError;
use sluice_state::store::{OpenRun, RunDriver, StoreError, now_us};
use sluice_state::virtual_keys::KeyRecord;

use crate::engine::EngineError;
use crate::host::Host;
use crate::observer::Observer;
use crate::outcome::IncompleteRun;
use crate::resources::AdoptError;
use crate::virtual_key::RevokeError;
use crate::{exchange, removal, rundir, virtual_key};

mod orphan;

pub(crate) use orphan::{LeftRun, take_down_with};
pub use orphan::{recover_orphans, take_down};

/// Graph of the preflight probe. Its calls are not calls of a run.
pub const PROBE_GRAPH: &str = "sluice:preflight";

/// A leftover of a killed controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// `run`, `container`, `directory` or `key`.
    pub kind: &'static str,
    /// Name.
    pub name: String,
    /// True if it was removed; null in a dry run.
    pub removed: Option<bool>,
    /// Facts about a run.
    #[serde(flatten)]
    pub taken: TakenDown,
    /// Reason why it was not removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Maximum number of names in the line of the control log, which also has the number of all leftovers.
const RECORDED_NAMES: usize = 100;

/// Returns the line of the control log about leftovers that are about to be removed.
#[must_use]
pub fn swept_entry(leftovers: &[Leftover]) -> ControlEntry {
    let names = leftovers.iter().map(|leftover| format!("{} {}", leftover.kind, leftover.name));
    let names: Vec<_> = names.take(RECORDED_NAMES).collect();
    let after = json!({ "leftovers": names, "count": leftovers.len() });
    ControlEntry { operation: "sweep".to_owned(), after: Some(after), ..ControlEntry::default() }
}

/// Facts about a run that was taken down.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct TakenDown {
    /// Fault of its audit file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<String>,
    /// Path of its kept workspace, if its results were not exported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Number of its commits, which are in its repository on this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits: Option<u64>,
}

impl TakenDown {
    /// Returns the facts for people. `run` is the name of the run in commands.
    #[must_use]
    pub fn remarks(&self, run: &str) -> Vec<String> {
        let workspace = self.workspace.as_ref();
        let workspace = workspace.map(|path| format!("its results were not out; its workspace is kept in {path}"));
        let commits = self.commits.filter(|count| *count > 0);
        let commits = commits.map(|_| format!("its commits are on this host; see them with sluice diff {run}"));
        self.audit.clone().into_iter().chain(workspace).chain(commits).collect()
    }
}

/// Mode of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepMode {
    /// Lists leftovers.
    DryRun,
    /// Removes leftovers.
    Remove,
}

/// Runs that a sweep takes down. Daemon runs have a controller even while no process drives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepScope {
    /// Runs without a daemon.
    OneShot,
    /// Also runs of a daemon. The caller holds the daemon's lock.
    All,
}

impl SweepScope {
    fn has(self, run: &OpenRun) -> bool {
        self == Self::All || run.entry.driver == RunDriver::Once
    }
}

/// Reason why a sweep, or one removal of a sweep, failed.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The database did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The Docker Engine did not do its part.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The keys that verify audit files cannot be read.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The end of a daemon's run cannot be recorded.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// Receipts cannot be posted.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A virtual key was not deleted.
    #[error(transparent)]
    Revoke(#[from] RevokeError),
    /// A run was not taken down completely.
    #[error(transparent)]
    Incomplete(#[from] IncompleteRun),
    /// A directory cannot be removed.
    #[error(transparent)]
    Remove(#[from] io::Error),
    /// The directory of all runs cannot be read.
    #[error("{}", path.display())]
    Runs {
        /// The directory.
        path: PathBuf,
        /// Reason.
        #[source]
        source: io::Error,
    },
}

impl From<AdoptError> for SweepError {
    fn from(error: AdoptError) -> Self {
        match error {
            AdoptError::Store(error) => Self::Store(error),
            AdoptError::Engine(error) => Self::Engine(error),
        }
    }
}

/// Finds and removes the resources of runs without a controller.
///
/// # Errors
/// [`SweepError`] when leftovers cannot be listed. A failed removal is a part of the result.
pub async fn sweep(
    host: &Arc<Host>,
    mode: SweepMode,
    scope: SweepScope,
    observer: &Arc<dyn Observer>,
) -> Result<Vec<Leftover>, SweepError> {
    let open = host.store.open_runs().await?;
    let is_leftover = |run: &OpenRun| run.is_orphaned() && scope.has(run);
    let (orphans, live): (Vec<_>, Vec<_>) = open.into_iter().partition(is_leftover);
    let mut leftovers = Vec::new();
    for orphan in &orphans {
        let name = orphan.entry.key.to_string();
        leftovers.push(leftover(mode, "run", name, take_down(host, orphan, observer)).await);
    }
    if mode == SweepMode::Remove {
        catch_up(host).await?;
        if scope == SweepScope::All {
            end_sandboxes(host).await?;
        }
    }
    let known = |key: &RunKey| live.iter().chain(&orphans).any(|open| open.entry.key == *key);
    for container in host.engine.containers_of(&host.instance).await? {
        // The controller of a known run drives it, or the run was taken down above.
        let is_owned = match &container.key {
            Some(key) => known(key) || is_open(host, key).await,
            None => false,
        };
        if !is_owned {
            let removal = async { Ok(host.engine.remove(&container.id).await.map(|()| TakenDown::default())?) };
            leftovers.push(leftover(mode, "container", container.name.clone(), removal).await);
        }
    }
    for key in host.layout.runs()? {
        // A run is recorded before its directory is created, so the directory of an unknown run has no owner.
        if !known(&key) && !is_open(host, &key).await {
            let paths = host.layout.run(&key);
            let removal = async {
                let workspace = exchange::rescue(&paths)?.map(|path| path.display().to_string());
                rundir::remove(&paths.root, None)?;
                Ok(TakenDown { workspace, ..TakenDown::default() })
            };
            leftovers.push(leftover(mode, "directory", key.to_string(), removal).await);
        }
    }
    for directory in remove_renamed(host, mode).await? {
        // The directory of a run from above is part of that run, unless it cannot be removed.
        let is_listed = leftovers.iter().any(|other| other.kind == "run" && other.name == directory.name);
        leftovers.extend((!is_listed || directory.removed == Some(false)).then_some(directory));
    }
    for key in host.store.orphaned_keys().await? {
        let removal = async { Ok(revoke(host, &key).await.map(|()| TakenDown::default())?) };
        leftovers.push(leftover(mode, "key", key.alias.clone(), removal).await);
    }
    Ok(leftovers)
}

/// Ends the daemon's runs that were taken down: the next daemon must neither claim them nor retry them.
async fn end_sandboxes(host: &Host) -> Result<(), SweepError> {
    for sandbox in host.store.live_sandboxes().await? {
        host.store.end_swept(&sandbox.key.run_id, now_us()).await?;
    }
    Ok(())
}

/// Removes renamed run directories, including those of the runs that were just taken down.
async fn remove_renamed(host: &Host, mode: SweepMode) -> Result<Vec<Leftover>, SweepError> {
    let runs = host.layout.runs_directory();
    let work = move || {
        let found = removal::set_aside_in(&runs).map_err(|source| SweepError::Runs { path: runs.clone(), source })?;
        let remaining = if mode == SweepMode::Remove { removal::remove_all(&runs, None, None) } else { Vec::new() };
        Ok::<_, SweepError>((found, remaining))
    };
    let (found, remaining) = tokio::task::spawn_blocking(work).await.map_err(io::Error::other)??;
    let leftover = |name: String| {
        let reason = remaining.iter().find(|one| one.name == name).map(|one| one.reason.clone());
        let removed = (mode == SweepMode::Remove).then_some(reason.is_none());
        Leftover { kind: "directory", name, taken: TakenDown::default(), removed, reason }
    };
    Ok(found.into_iter().map(leftover).collect())
}

/// Deletes a virtual key of a run that is over.
pub(crate) async fn revoke(host: &Host, key: &KeyRecord) -> Result<(), RevokeError> {
    match &host.litellm {
        Some((_, litellm)) if is_at_our_litellm(host, key) => virtual_key::revoke(&host.store, litellm, key).await,
        _ => virtual_key::abandon(&host.store, key).await,
    }
}

fn is_at_our_litellm(host: &Host, key: &KeyRecord) -> bool {
    host.litellm.as_ref().is_some_and(|(url, _)| *url == key.upstream)
}

/// Returns true if a run is open now. It may have begun after the list was read.
async fn is_open(host: &Host, key: &RunKey) -> bool {
    match host.store.phase(key).await {
        Ok(phase) => phase.is_some_and(|phase| phase != RunPhase::Closed.as_str()),
        // A run of unknown state must not be removed.
        Err(_) => true,
    }
}

/// Posts the receipts of runs that ended just before their controller was killed.
async fn catch_up(host: &Host) -> Result<(), SweepError> {
    let keys = host.keys.public()?;
    let archive = AuditArchive { layout: &host.layout, store: &host.store, keys: &keys };
    Ok(archive.catch_up().await?)
}

/// Removes a leftover, unless the sweep is a dry run.
async fn leftover(
    mode: SweepMode,
    kind: &'static str,
    name: String,
    removal: impl Future<Output = Result<TakenDown, SweepError>>,
) -> Leftover {
    if mode == SweepMode::DryRun {
        return Leftover { kind, name, taken: TakenDown::default(), removed: None, reason: None };
    }
    let (taken, reason) = match removal.await {
        Ok(taken_down) => (taken_down, None),
        Err(error) => (TakenDown::default(), Some(error_chain(&error))),
    };
    Leftover { kind, name, taken, removed: Some(reason.is_none()), reason }
}
