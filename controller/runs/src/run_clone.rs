//! A clone of a repository in the workspace of a run: made before its container exists, pushed from while the program
//! works, and collected at the end.
//!
//! Git of this host never works in the clone once a sandbox could have written it. The run's commits arrive as packs:
//! by pushes through the sidecar, and by a bundle that a second container makes. See docs/design/run-clones.md.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_git::forge::{RuntimePause, retrying};
use sluice_git::{Branch, CommitterIdentity, Credentials, GitHome, MirrorOptions, RepositoryUrl, RunRepository};
use sluice_state::layout::RunPaths;
use sluice_state::run_tokens::RunTokenValue;
use sluice_state::store::RunDriver;

use crate::blueprint::{Blueprint, PORT};
use crate::engine::Engine;
use crate::rundir;

mod adopted;
mod bundle;
mod error;
mod handover;
mod message;
mod push_limit;
mod push_relay;
mod push_routes;
mod report;

pub(crate) use adopted::remember;
pub use adopted::{AdoptedClone, CloneCollector, recall};
use bundle::Exceeds;
pub(crate) use bundle::remove_collector;
pub use error::CloneError;
pub use push_limit::PushLimit;
pub use push_routes::{PushAnswer, answer_push};
pub use report::{CloneReport, GuardedChange, ReportedCommit};

use push_relay::PushRelay;

/// Name of the clone in the workspace.
const REPOSITORY: &str = "repo";
/// Maximum size of a patch.
const PATCH_MAX: usize = 64 << 20;

/// The clone that a run starts with.
#[derive(Debug, Clone)]
pub struct RunClone {
    /// Repositories of this host.
    pub home: GitHome,
    /// Address of the repository.
    pub url: RepositoryUrl,
    /// Credentials for the address.
    pub credentials: Credentials,
    /// Options of the fetch of the run's base.
    pub options: MirrorOptions,
    /// The only branch that the run may push.
    pub branch: Branch,
    /// Name and address under which it commits.
    pub identity: CommitterIdentity,
}

/// Counts of the pushes so far. Clones of this value share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct PushTally(Arc<Mutex<PushCounts>>);

#[derive(Debug, Default)]
struct PushCounts {
    taken: u32,
    /// Fault of this host that the last failed push met.
    fault: Option<String>,
}

/// The clone of an existing run. Pushes are no longer accepted after this is dropped.
#[derive(Debug)]
pub(crate) struct LiveClone {
    repository: RunRepository,
    /// Address of the repository, without credentials.
    url: String,
    branch: Branch,
    identity: CommitterIdentity,
    _relay: Option<PushRelay>,
    pushes: PushTally,
}

/// Results of the two bundles of a run.
struct CollectedClone {
    branch: Result<(), CloneError>,
    /// Commit with the uncommitted changes.
    uncommitted: Result<Option<String>, CloneError>,
}

impl PushTally {
    fn add(&self, answer: &PushAnswer) {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tally.taken += u32::from(answer.pushed.is_some());
        if let Some(fault) = &answer.fault {
            tally.fault = Some(error_chain(fault));
        }
    }

    fn taken(&self) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).taken
    }

    fn fault(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fault.clone()
    }
}

impl RunClone {
    /// Makes the clone. The container does not exist yet. A one-shot run also gets the socket for its pushes; a daemon has a
    /// socket for all reports of its runs.
    pub(crate) async fn begin(
        &self,
        paths: &RunPaths,
        key: &RunKey,
        driver: RunDriver,
    ) -> Result<LiveClone, CloneError> {
        let mirror = || self.home.mirror(&self.url, &self.credentials, &self.options);
        let mirror = retrying(&RuntimePause, mirror).await?;
        let repository = mirror.run_repository(&key.run_id).await?;
        let directory = paths.work.join(REPOSITORY);
        let origin = format!("http://localhost:{PORT}/git/{}.git", key.run_id);
        repository.clone_into(&directory, &self.branch, &origin, &self.identity).await?;
        let file = CloneError::file("give the clone to the sandbox");
        let uid = rundir::sandbox_uid(paths).map_err(CloneError::file("find the user of the sandbox"))?;
        let given = tokio::task::spawn_blocking(move || handover::give(&directory, uid));
        given.await.map_err(std::io::Error::other).and_then(|given| given).map_err(file)?;
        let pushes = PushTally::default();
        let relay = if driver == RunDriver::Once {
            let token = RunTokenValue::create()?;
            rundir::write_relay_token(paths, &token).map_err(CloneError::file("write the token of the run"))?;
            let started = PushRelay::start(paths, repository.clone(), &token, pushes.clone());
            Some(started.map_err(CloneError::file("open the socket for pushes"))?)
        } else {
            None
        };
        let (url, branch, identity) = (self.url.to_string(), self.branch.clone(), self.identity.clone());
        Ok(LiveClone { repository, url, branch, identity, _relay: relay, pushes })
    }
}

impl LiveClone {
    /// Collects the work of the run. No process of the run is left. A fault is a part of the report: the run is over.
    pub(crate) async fn collect(
        &self,
        engine: &Engine,
        container: Blueprint,
        paths: &RunPaths,
        exceeds: Exceeds,
    ) -> CloneReport {
        let collected = self.take_bundles(engine, container, paths, exceeds).await;
        let mut report = CloneReport::of(&self.repository, &self.url, self.branch.as_str(), self.pushes.taken()).await;
        match collected {
            Ok(collected) => {
                report.faults.extend(collected.branch.err().map(|error| error_chain(&error)));
                match collected.uncommitted {
                    Ok(commit) => report.uncommitted = commit,
                    Err(error) => {
                        report.uncommitted_fault = Some(error_chain(&error));
                        report.uncommitted_reason = Some(error.public_text());
                    }
                }
            }
            Err(error) => report.faults.push(error_chain(&error)),
        }
        report.faults.extend(self.pushes.fault().map(|fault| format!("a push failed: {fault}")));
        report
    }

    /// Writes into notes which attempt made the commits, and the hash of its audit log.
    pub(crate) async fn note_commits(&self, key: &RunKey, audit_head: Option<&str>) -> Result<(), CloneError> {
        Ok(self.repository.note_commits(key, audit_head).await?)
    }

    /// Returns the difference between base and head, as the text of a patch.
    pub(crate) async fn patch(&self) -> Result<Vec<u8>, CloneError> {
        self.repository.diff(PATCH_MAX).await?.ok_or(CloneError::LargePatch(PATCH_MAX))
    }

    /// Makes bundles of the work in a second container, and imports each into the repository, even if the other one fails.
    async fn take_bundles(
        &self,
        engine: &Engine,
        container: Blueprint,
        paths: &RunPaths,
        exceeds: Exceeds,
    ) -> Result<CollectedClone, CloneError> {
        if !is_directory(&paths.work.join(REPOSITORY)) {
            return Err(CloneError::Gone);
        }
        let plan = bundle::BundlePlan {
            branch: &self.branch,
            run: &self.repository.run().to_string(),
            base: self.repository.base(),
            identity: &self.identity,
        };
        let bundles = bundle::make(engine, container, paths, &plan, exceeds).await?;
        let branch = self.import(bundles.branch).await.map(drop);
        let uncommitted = match bundles.uncommitted {
            Ok(bundle) => self.import(bundle).await,
            Err(error) => Err(error),
        };
        Ok(CollectedClone { branch, uncommitted })
    }

    /// Imports a bundle into the repository. Returns the commit with the uncommitted changes, if the bundle has one.
    async fn import(&self, bundle: Option<File>) -> Result<Option<String>, CloneError> {
        let Some(bundle) = bundle else { return Ok(None) };
        let imported = self.repository.import_bundle(bundle).await?;
        Ok(imported.uncommitted.map(|id| id.to_string()))
    }
}

/// Returns true for a directory; a link is not one.
fn is_directory(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}
