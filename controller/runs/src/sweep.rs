//! What was left behind, by us and by nobody else: found by our instance's name, and taken down like any other run.

use std::time::Duration;

use serde::Serialize;
use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_state::ledger::AuditArchive;
use sluice_state::run::{Phase, Run, RunEvent};
use sluice_state::store::{OpenRun, StoreError};
use sluice_state::virtual_keys::KeyRecord;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::blueprint::{container_name, identity};
use crate::drive::{DriveContext, drive};
use crate::host::Host;
use crate::progress::Progress;
use crate::scene::RunResources;
use crate::verdict::ErrorCode;
use crate::{removal, rundir, virtual_key};

/// The graph of preflight's probe. Its calls are not calls of a run.
pub const PROBE_GRAPH: &str = "sluice:preflight";

/// One thing that nobody owns any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// `run`, `container`, `directory` or `key`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// What is wrong with the audit file of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<String>,
    /// Whether it is gone; null when it was only looked at.
    pub removed: Option<bool>,
    /// Why it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether a sweep removes what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepMode {
    /// It only looks.
    DryRun,
    /// It does.
    Remove,
}

/// How long a run waits at its end for the keys of others.
const PATIENCE: Duration = Duration::from_secs(2);

/// Finds and removes what is left of runs whose controller is gone.
///
/// # Errors
/// When it cannot be looked for.
pub async fn sweep(host: &Host, mode: SweepMode) -> Result<Vec<Leftover>, String> {
    let open = host.store.open_runs().await.map_err(|error| error_chain(&error))?;
    let (orphans, live): (Vec<_>, Vec<_>) = open.into_iter().partition(OpenRun::is_orphaned);
    let mut found = Vec::new();
    for orphan in &orphans {
        let name = orphan.entry.key.to_string();
        found.extend(act(mode, "run", name, take_down(host, orphan)).await);
    }
    if mode == SweepMode::Remove {
        catch_up(host).await?;
    }
    let known = |key: &RunKey| live.iter().chain(&orphans).any(|open| open.entry.key == *key);
    for container in host.engine.containers_of(&host.instance).await.map_err(|error| error_chain(&error))? {
        // A run that is known is driven by its controller, or was taken down above.
        let owned = match &container.key {
            Some(key) => known(key) || is_open(host, key).await,
            None => false,
        };
        if !owned {
            let removed =
                async { host.engine.remove(&container.id).await.map(|()| None).map_err(|error| error_chain(&error)) };
            found.extend(act(mode, "container", container.name.clone(), removed).await);
        }
    }
    for key in host.layout.runs().map_err(|error| error.to_string())? {
        // A run is written down before its directory is made; so one that is unknown belongs to nobody.
        if !known(&key) && !is_open(host, &key).await {
            let removed = async {
                rundir::remove(&host.layout.run(&key).root, None).map(|()| None).map_err(|error| error.to_string())
            };
            found.extend(act(mode, "directory", key.to_string(), removed).await);
        }
    }
    for leftover in set_aside(host, mode).await? {
        // The directory of a run that was taken down above is part of that run, unless it is stuck.
        let told = found.iter().any(|other| other.kind == "run" && other.name == leftover.name);
        found.extend((!told || leftover.removed == Some(false)).then_some(leftover));
    }
    for key in host.store.orphaned_keys().await.map_err(|error| error_chain(&error))? {
        let removed = async { revoke(host, &key).await.map(|()| None) };
        found.extend(act(mode, "key", key.alias.clone(), removed).await);
    }
    Ok(found)
}

/// Removes the directories that were set aside, those of the runs above among them, which are not named again.
async fn set_aside(host: &Host, mode: SweepMode) -> Result<Vec<Leftover>, String> {
    let runs = host.layout.runs_directory();
    let work = move || {
        let found = removal::set_aside_in(&runs).map_err(|error| format!("{}: {error}", runs.display()))?;
        let remaining = if mode == SweepMode::Remove { removal::remove_all(&runs, None, None) } else { Vec::new() };
        Ok::<_, String>((found, remaining))
    };
    let (found, remaining) = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())??;
    let leftover = |name: String| {
        let reason = remaining.iter().find(|one| one.name == name).map(|one| one.reason.clone());
        let removed = (mode == SweepMode::Remove).then_some(reason.is_none());
        Leftover { kind: "directory", name, audit: None, removed, reason }
    };
    Ok(found.into_iter().map(leftover).collect())
}

/// Deletes a virtual key of a run that is over.
async fn revoke(host: &Host, key: &KeyRecord) -> Result<(), String> {
    match &host.litellm {
        Some((_, litellm)) if is_here(host, key) => virtual_key::revoke(&host.store, litellm, key).await,
        _ => virtual_key::abandon(&host.store, key).await,
    }
    .map_err(|error| error_chain(&error))
}

/// Whether it is at the LiteLLM that is asked.
fn is_here(host: &Host, key: &KeyRecord) -> bool {
    host.litellm.as_ref().is_some_and(|(url, _)| *url == key.upstream)
}

/// Whether a run is open now, though it was not when we looked first.
async fn is_open(host: &Host, key: &RunKey) -> bool {
    match host.store.phase(key).await {
        Ok(phase) => phase.is_some_and(|phase| phase != Phase::Closed.as_str()),
        // Not known is not ours to remove.
        Err(_) => true,
    }
}

/// Takes down the runs whose controller was killed; what cannot be is left to the next one. Returns what is wrong with
/// their audit files, for somebody to look at: it is told once.
pub async fn recover_orphans(host: &Host) -> Vec<String> {
    let open = host.store.open_runs().await.unwrap_or_default();
    let mut faults = Vec::new();
    for orphan in open.iter().filter(|open| open.is_orphaned()) {
        if let Ok(Some(fault)) = take_down(host, orphan).await {
            faults.push(format!("run {} of a killed controller was taken down: {fault}", orphan.entry.key));
        }
    }
    // What fails is tried again by the next one, and told by sluice ledger rebuild.
    let _ = catch_up(host).await;
    for key in host.store.orphaned_keys().await.unwrap_or_default() {
        // Somebody waits for a run beside this: a LiteLLM that fails or is slow is asked once.
        if !matches!(timeout(PATIENCE, revoke(host, &key)).await, Ok(Ok(()))) && is_here(host, &key) {
            break;
        }
    }
    faults
}

/// Posts the receipts of runs whose controller was killed between their end and their receipts.
async fn catch_up(host: &Host) -> Result<(), String> {
    let keys = host.keys.public().map_err(|error| error_chain(&error))?;
    let shelf = AuditArchive { layout: &host.layout, store: &host.store, keys: &keys };
    shelf.catch_up().await.map_err(|error| error_chain(&error))
}

/// Brings an orphan home; returns what is wrong with its audit file, if anything.
async fn take_down(host: &Host, orphan: &OpenRun) -> Result<Option<String>, String> {
    let key = &orphan.entry.key;
    let generation = match host.store.take_over(orphan, &host.owner).await {
        Ok(generation) => generation,
        // Another controller is at it.
        Err(StoreError::Stale(_)) => return Ok(None),
        Err(error) => return Err(error_chain(&error)),
    };
    let mut scene = RunResources::adopt(host, key, orphan.sidecar.clone()).await?;
    let run = orphan.as_run().apply(RunEvent::Orphaned).map_err(|illegal| illegal.to_string())?;
    let (_never, mut cancelled) = watch::channel(None);
    let reins = DriveContext { host, key, generation, timeout: Duration::ZERO, progress: &Progress::silent() };
    let run = drive(run, &mut scene, reins, &mut cancelled).await.map_err(|error| error_chain(&error))?;
    // What its log is worth counts for a run that nobody saw to its end, too.
    let fault = scene.told().fault.clone();
    let (error, code) = match fault {
        Some(_) => (ErrorCode::AuditFailed, 120),
        None => (ErrorCode::Internal, 125),
    };
    let _ = host.store.record_result(key, generation, Some(error.as_str()), code).await;
    if check_complete(&run).is_ok() && !orphan.entry.image.is_empty() {
        // Its controller may have been killed while it waited for the container.
        let (name, identity) = (container_name(key), identity(key, &host.instance));
        host.engine
            .drain_pending_create(&name, &orphan.entry.image, &identity)
            .await
            .map_err(|error| error_chain(&error))?;
    }
    let is_probe = orphan.entry.agent == PROBE_GRAPH;
    if is_probe && check_complete(&run).is_ok() {
        // No call of a run: neither its log nor its record is worth keeping.
        let _ = std::fs::remove_file(host.layout.run(key).audit);
        host.store.delete_run(key, generation).await.map_err(|error| error_chain(&error))?;
    } else if let Some(reading) = scene.finish().reading.filter(|_| !is_probe) {
        host.store.ingest(reading).done().await.map_err(|error| error_chain(&error))?;
    }
    check_complete(&run).map(|()| fault.filter(|_| !is_probe))
}

/// What a run says that could not be taken down, if it is not over.
///
/// # Errors
/// Just that.
pub fn check_complete(run: &Run) -> Result<(), String> {
    match (run.phase, run.teardown_failures.last()) {
        (Phase::Closed, _) => Ok(()),
        (_, Some(failure)) => Err(format!("cannot {}: {}", failure.step.as_str(), failure.message)),
        (_, None) => Err("the run did not come to its end".to_owned()),
    }
}

async fn act(
    mode: SweepMode,
    kind: &'static str,
    name: String,
    remove: impl Future<Output = Result<Option<String>, String>>,
) -> Option<Leftover> {
    if mode == SweepMode::DryRun {
        return Some(Leftover { kind, name, audit: None, removed: None, reason: None });
    }
    let (audit, reason) = match remove.await {
        Ok(audit) => (audit, None),
        Err(reason) => (None, Some(reason)),
    };
    Some(Leftover { kind, name, audit, removed: Some(reason.is_none()), reason })
}
