//! The clone of a run that another controller began: its commits are collected with the stored data of the run.
//!
//! The repository of the run has its base, its branch and its committer. Only the data for the container that packs the
//! commits is missing; the stored request has it. The result of a collection is in the record of the run, so a later
//! controller neither collects again nor has to guess.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sluice_contract::RunKey;
use sluice_git::{GitError, GitHome, RunRepository};
use sluice_state::layout::RunPaths;
use sluice_state::records::{COMMITS, Records, RunRecord};

use super::report::CloneReport;
use super::{LiveClone, PushTally, RunClone};
use crate::blueprint::{Blueprint, ContainerSpec, EXPIRY_MARGIN, SandboxLimits, WORKSPACE, blueprint};
use crate::bridge::Bridge;
use crate::host::Host;
use crate::input::Stdin;
use crate::rundir;

/// Properties of the container that packs commits, taken from the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneCollector {
    /// Image.
    pub image: String,
    /// Limits.
    pub limits: SandboxLimits,
    /// The seccomp profile, as JSON.
    pub seccomp: String,
}

/// The clone of a run that another controller began.
#[derive(Debug, Clone)]
pub struct AdoptedClone {
    /// Repositories of this host.
    pub home: GitHome,
    /// Address of the repository, without credentials.
    pub url: String,
    /// Properties of the container that packs the commits.
    pub collector: CloneCollector,
    /// True if the workspace is kept even after its commits are collected.
    pub keep_workspace: bool,
}

/// Stored data with which another controller collects the commits of a one-shot run, in the directory of the run. A
/// daemon's run has them in its request.
#[derive(Debug, Serialize, Deserialize)]
struct CollectorRecord {
    url: String,
    collector: CloneCollector,
    keep_workspace: bool,
}

/// Outcome of a collection, as the record of a run keeps it. The commits are in the repository.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct CollectionRecord {
    uncommitted: Option<String>,
    uncommitted_fault: Option<String>,
    uncommitted_reason: Option<String>,
    faults: Vec<String>,
}

impl AdoptedClone {
    /// Stores the data with which another controller collects the commits if this one is killed.
    pub(crate) fn store(
        paths: &RunPaths,
        clone: &RunClone,
        collector: CloneCollector,
        keep_workspace: bool,
    ) -> io::Result<()> {
        let record = CollectorRecord { url: clone.url.to_string(), collector, keep_workspace };
        std::fs::write(collector_file(paths), serde_json::to_vec(&record)?)
    }

    /// Returns the clone of a one-shot run of a killed controller; `None` if the run has none.
    pub(crate) fn stored(paths: &RunPaths, home: &GitHome) -> Option<Self> {
        let record = std::fs::read(collector_file(paths)).ok()?;
        let CollectorRecord { url, collector, keep_workspace } = serde_json::from_slice(&record).ok()?;
        Some(Self { home: home.clone(), url, collector, keep_workspace })
    }

    /// Opens the clone. `None` if the run has none: it ended before its repository was made.
    ///
    /// # Errors
    /// [`GitError`]
    pub(crate) fn open(&self, key: &RunKey) -> Result<Option<LiveClone>, GitError> {
        let Some(repository) = self.home.run_repository(&key.run_id)? else { return Ok(None) };
        let (Some(branch), Some(identity)) = (repository.branch()?, repository.identity()?) else { return Ok(None) };
        let (url, pushes) = (self.url.clone(), PushTally::default());
        Ok(Some(LiveClone { repository, url, branch, identity, _relay: None, pushes }))
    }

    /// Returns the container of the run, with the properties that the packing container shares.
    pub(crate) fn container(&self, host: &Host, key: &RunKey, paths: &RunPaths) -> Blueprint {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let CloneCollector { image, limits, seccomp } = &self.collector;
        blueprint(&ContainerSpec {
            key,
            instance: &host.instance,
            image,
            bridge: &Bridge::OfImage,
            argv: &[],
            workdir: WORKSPACE,
            env: &std::collections::BTreeMap::new(),
            model: None,
            volumes: &[],
            stdin: Stdin::Closed,
            tty: false,
            // If the workspace is missing, the engine refuses the container.
            uid: rundir::sandbox_uid(paths).unwrap_or(rundir::SANDBOX_UID),
            log_max: None,
            limits,
            paths,
            seccomp,
            expires: (now + EXPIRY_MARGIN).as_secs(),
        })
    }
}

fn collector_file(paths: &RunPaths) -> PathBuf {
    paths.conf.join("collector.json")
}

/// Keeps the outcome of a collection in the record of the run. Without a record, no later controller reads it.
pub(crate) fn remember(record: &RunRecord, report: &CloneReport) -> io::Result<()> {
    if !record.exists() {
        return Ok(());
    }
    let CloneReport { uncommitted, uncommitted_fault, uncommitted_reason, faults, .. } = report.clone();
    record.write_json(COMMITS, &CollectionRecord { uncommitted, uncommitted_fault, uncommitted_reason, faults })
}

/// Returns the result of an earlier collection of an attempt, with the commits now in the repository. `None` if the
/// record has no result of a collection.
pub async fn recall(records: &Records, key: &RunKey, repository: &RunRepository, url: &str) -> Option<CloneReport> {
    let kept: CollectionRecord = records.of(key).read_json(COMMITS).ok().flatten()?;
    let branch = repository.branch().ok().flatten()?;
    let mut report = CloneReport::of(repository, url, branch.as_str(), 0).await;
    report.uncommitted = kept.uncommitted;
    report.uncommitted_fault = kept.uncommitted_fault;
    report.uncommitted_reason = kept.uncommitted_reason;
    report.faults.extend(kept.faults);
    Some(report)
}
