//! The resources of one run: directories, sidecar, container and audit file, and the changes by each step.
//!
//! Sidecar and container never wait for each other: their steps run in parallel.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_contract::{RunKey, Witness};
use sluice_state::layout::RunPaths;
use sluice_state::process::Process;
use sluice_state::run::{Cancel, RunStep, RunUpdate};
use sluice_state::store::StoreError;
use tokio::sync::watch;

use crate::engine::{EngineError, OutputConfig, StdioConfig, log_size};
use crate::exchange::{CancelFlag, Collected, RunFiles};
use crate::host::Host;
use crate::input::Stdin;
use crate::plan::ObservedState;
use crate::run_clone::{AdoptedClone, LiveClone};
use crate::spec::RunSpec;
use crate::step_error::StepError;
use crate::stop::StopPolicy;
use crate::timings::Timings;
use crate::{blueprint, record, rundir};

mod audit;
mod commits;
mod files;
mod sandbox;
mod sidecar;
mod teardown_end;

use audit::RunAudit;
use sandbox::RunContainer;
use sidecar::RunSidecar;
pub use teardown_end::TeardownEnd;

/// The existing resources of one run.
#[derive(Debug)]
pub struct RunResources {
    host: Arc<Host>,
    key: RunKey,
    paths: RunPaths,
    /// `None` for a run that another controller began.
    spec: Option<Arc<RunSpec>>,
    sidecar: RunSidecar,
    sandbox: RunContainer,
    audit: RunAudit,
    ownership: PathOwnership,
    files: RunFiles,
    /// Clone from which the run pushes.
    clone: Option<LiveClone>,
    /// Clone of a run that another controller began, until its commits are collected.
    adopted_clone: Option<AdoptedClone>,
    /// Results, once they are exported.
    collected: Option<Collected>,
    /// Remarks about files that are not kept.
    file_notes: Vec<String>,
    /// Interrupts work on files.
    cancelled: watch::Receiver<Option<Cancel>>,
}

/// Owner of the files at the run's paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathOwnership {
    /// This run.
    ThisRun,
    /// Unknown: an earlier run may have had the same id.
    Unknown,
}

/// One observation of the resources of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSnapshot {
    /// The resources that exist.
    pub state: ObservedState,
    /// Process of the sidecar.
    pub sidecar: Option<Process>,
    /// Witness of the last line of the audit file, if there is a new one. The sidecar cannot reach the database with it.
    pub witness: Option<Witness>,
}

/// A step that was tried.
#[derive(Debug)]
pub struct PerformedStep {
    /// The step.
    pub step: RunStep,
    /// Duration of the step.
    pub took: Duration,
    /// Result of the step.
    pub result: Result<(), StepError>,
}

/// Reason why the resources of another controller's run cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The database does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine does not answer.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl RunResources {
    /// Returns the resources of a run that has none yet.
    #[must_use]
    pub fn new(host: &Arc<Host>, key: &RunKey, spec: Arc<RunSpec>, output: OutputConfig, stop: StopPolicy) -> Self {
        Self::with_spec(host, key, Some(spec), output, stop)
    }

    /// Looks up the resources of a run that another controller began.
    ///
    /// # Errors
    /// [`AdoptError`].
    pub async fn adopt(host: &Arc<Host>, key: &RunKey, sidecar: Option<Process>) -> Result<Self, AdoptError> {
        let output = StdioConfig { stdin: Stdin::Closed, tty: false, max: 0, live: None, record: None };
        let output = OutputConfig::Attached(output);
        let mut resources = Self::with_spec(host, key, None, output, StopPolicy::after(Duration::ZERO));
        resources.ownership = PathOwnership::ThisRun;
        resources.sidecar.adopt(sidecar);
        resources.audit = RunAudit::with_witnesses(host.store.witnesses(key).await?);
        resources.sandbox.find().await?;
        Ok(resources)
    }

    fn with_spec(
        host: &Arc<Host>,
        key: &RunKey,
        spec: Option<Arc<RunSpec>>,
        output: OutputConfig,
        stop: StopPolicy,
    ) -> Self {
        let paths = host.layout.run(key);
        Self {
            sidecar: RunSidecar::new(Arc::clone(host), paths.clone()),
            sandbox: RunContainer::new(host, key, output, stop),
            host: Arc::clone(host),
            key: key.clone(),
            paths,
            spec,
            audit: RunAudit::default(),
            ownership: PathOwnership::Unknown,
            files: RunFiles::default(),
            clone: None,
            adopted_clone: None,
            collected: None,
            file_notes: Vec::new(),
            cancelled: watch::channel(None).1,
        }
    }

    /// Lets a cancellation interrupt work on files, too.
    pub fn interrupt_by(&mut self, cancelled: &watch::Receiver<Option<Cancel>>) {
        self.cancelled = cancelled.clone();
    }

    /// Connects to the container of an adopted run: its output is captured, and it is stopped by these rules.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn reattach(&mut self, output: OutputConfig, stop: StopPolicy) -> Result<(), EngineError> {
        self.sandbox.reattach(output, stop).await
    }

    /// Returns the time at which the container expires; `None` without a container of this run.
    #[must_use]
    pub fn expires(&self) -> Option<std::time::SystemTime> {
        self.sandbox.expires()
    }

    /// Inspects all existing resources, and continues reading the audit file.
    pub fn snapshot(&mut self) -> RunSnapshot {
        let witness = match self.ownership {
            PathOwnership::ThisRun => self.audit.read_on(&self.paths.audit),
            PathOwnership::Unknown => None,
        };
        RunSnapshot { state: self.state(), sidecar: self.sidecar.process().cloned(), witness }
    }

    /// Returns which resources exist.
    #[must_use]
    pub fn state(&self) -> ObservedState {
        ObservedState {
            directories: self.paths.root.exists(),
            sidecar: self.sidecar.state(),
            container: self.sandbox.state(),
        }
    }

    /// Performs these steps side by side, and returns the result of each.
    pub async fn perform(&mut self, steps: &[RunStep]) -> Vec<PerformedStep> {
        let mut performed = Vec::new();
        for step in steps {
            performed.extend(self.perform_on_files(*step).await);
        }
        let sidecar_step =
            steps.iter().copied().find(|step| matches!(step, RunStep::StartSidecar | RunStep::DrainSidecar));
        let sandbox_step = steps.iter().copied().find(|step| {
            matches!(
                step,
                RunStep::CreateContainer | RunStep::StartContainer | RunStep::StopContainer | RunStep::RemoveContainer
            )
        });
        let (key, spec) = (&self.key, self.spec.as_deref());
        let blueprint = spec
            .filter(|_| sandbox_step == Some(RunStep::CreateContainer))
            .map(|spec| container_blueprint(&self.host, key, &self.paths, spec));
        let (sidecar, sandbox) = tokio::join!(
            async {
                let step = sidecar_step?;
                Some(timed(step, self.sidecar.perform(step, key, spec)).await)
            },
            async {
                let step = sandbox_step?;
                let result = async {
                    if let Some(spec) = spec.filter(|_| step == RunStep::StartContainer) {
                        spec.exchange.expect_results(&self.paths)?;
                    }
                    Ok(self.sandbox.perform(step, blueprint.as_ref()).await?)
                };
                Some(timed(step, result).await)
            }
        );
        performed.extend(sidecar.into_iter().chain(sandbox));
        performed
    }

    /// Waits until the container or the sidecar has ended, but no longer than this. Cancel-safe.
    pub async fn wait(&mut self, limit: Duration) -> Option<RunUpdate> {
        // The engine's notice of an end can be missed; an occasional check is cheap.
        const LOOK_EVERY: Duration = Duration::from_secs(1);
        tokio::select! {
            // All three are cancel-safe: the next observation finds changes that are not taken here.
            () = self.sandbox.changed() => {}
            () = self.sidecar.ended() => return Some(RunUpdate::SidecarEnded),
            () = tokio::time::sleep(limit.min(LOOK_EVERY)) => {}
        }
        self.sandbox.end().await
    }

    /// Performs a step that only concerns files.
    async fn perform_on_files(&mut self, step: RunStep) -> Option<PerformedStep> {
        let begun = Instant::now();
        let result = match step {
            RunStep::Prepare => self.prepare().await,
            RunStep::Tally => {
                self.tally();
                Ok(())
            }
            RunStep::RemoveDirectories => self.remove_directories().await,
            RunStep::Close => Ok(()),
            RunStep::StartSidecar
            | RunStep::CreateContainer
            | RunStep::StartContainer
            | RunStep::StopContainer
            | RunStep::DrainSidecar
            | RunStep::RemoveContainer => return None,
        };
        Some(PerformedStep { step, took: begun.elapsed(), result })
    }

    async fn prepare(&mut self) -> Result<(), StepError> {
        let spec = Arc::clone(self.spec.as_ref().expect("only a run with a specification is prepared"));
        let sandbox_users = spec.daemon.as_ref().map(|daemon| &daemon.sandbox_users);
        files::create(&self.paths, &self.key, &self.host.sidecar_users, sandbox_users)?;
        self.ownership = PathOwnership::ThisRun;
        files::fill_workspace(&self.paths, &spec)?;
        let (interrupt, limit) = (CancelFlag::default(), spec.timeout);
        let work = files::bring_in(&self.paths, Arc::clone(&spec), interrupt.clone());
        self.files = files::interruptible(work, &interrupt, limit, files::cancelled(self.cancelled.clone())).await?;
        self.make_clone(&spec).await
    }

    /// Exports the results of the run from its workspace, and renames its directory. The directory stays while it holds
    /// results that are nowhere else.
    async fn remove_directories(&mut self) -> Result<(), StepError> {
        if self.ownership == PathOwnership::ThisRun {
            let started = self.spec.clone().filter(|_| self.collected.is_none() && self.sandbox.was_start_tried());
            if let Some(spec) = started {
                let collected = self.bring_out(Arc::clone(&spec)).await;
                self.collected = Some(self.with_commits(collected, &spec).await);
            }
            self.collect_adopted().await;
            let record = self.host.layout.records().of(&self.key);
            self.file_notes.extend(files::keep_transcript(&self.paths, record.clone()).await);
            self.file_notes.extend(files::keep_artifacts(&self.paths, record).await);
            if let Some(workspace) = files::rescue(&self.paths)? {
                self.collected.get_or_insert_default().report.workspace = Some(workspace);
            }
        }
        self.keep_sidecar_log();
        files::set_aside(&self.paths)
    }

    /// Exports the results. A second signal interrupts this; the first one does too, unless it ended the run.
    async fn bring_out(&mut self, spec: Arc<RunSpec>) -> Collected {
        let (interrupt, limit, mut stop) = (CancelFlag::default(), spec.timeout, self.sandbox.stop_policy());
        let cancelled = self.cancelled.clone();
        let was_cancelled = cancelled.borrow().is_some();
        let request = async {
            tokio::select! {
                () = files::cancelled(cancelled), if !was_cancelled => {}
                () = stop.killed() => {}
            }
        };
        let work = files::bring_out(&self.paths, spec, std::mem::take(&mut self.files), interrupt.clone());
        files::interruptible(work, &interrupt, limit, request).await
    }

    /// Copies the sidecar's log into the record, for people. An error must not keep the directories.
    fn keep_sidecar_log(&self) {
        let layout = &self.host.layout;
        let _ = record::keep_sidecar_log(&layout.records().of(&self.key), &layout.sidecar_log(&self.key));
    }

    fn tally(&mut self) {
        if self.ownership == PathOwnership::Unknown {
            return;
        }
        let history = self.sidecar.history(self.spec.as_deref());
        self.audit.tally(&self.key, &self.paths.audit, &self.host.keys, history);
        self.audit.add_fault(self.sidecar.fault());
    }

    /// Returns the results, and releases the streams of the container.
    #[must_use]
    pub fn finish(mut self) -> TeardownEnd {
        let mut notes = self.sidecar.take_notes();
        self.sandbox.detach();
        let unrecorded =
            self.sandbox.record_error().map(|error| format!("a part of the output is not recorded: {error}"));
        notes.extend(self.file_notes.into_iter().chain(unrecorded));
        let timings = Timings { sidecar_ready: self.sidecar.ready_ms(), ..self.sandbox.timings() };
        let (totals, audit) = self.audit.finish();
        TeardownEnd {
            totals,
            output_loss: self.sandbox.output_loss(),
            is_short_of_memory: self.sandbox.is_short_of_memory(),
            is_create_pending: self.sandbox.is_create_pending(),
            output: self.sandbox.finish(),
            timings,
            audit,
            collected: self.collected.unwrap_or_default(),
            notes,
        }
    }
}

async fn timed(step: RunStep, result: impl Future<Output = Result<(), StepError>>) -> PerformedStep {
    let begun = Instant::now();
    let result = result.await;
    PerformedStep { step, took: begun.elapsed(), result }
}

fn container_blueprint(host: &Host, key: &RunKey, paths: &RunPaths, spec: &RunSpec) -> blueprint::Blueprint {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    blueprint::blueprint(&blueprint::ContainerSpec {
        key,
        instance: &host.instance,
        image: &spec.image,
        bridge: &spec.bridge,
        argv: &spec.argv,
        workdir: &spec.workdir,
        // If the workspace is missing, the engine refuses the container.
        uid: rundir::sandbox_uid(paths).unwrap_or(rundir::SANDBOX_UID),
        log_max: spec.daemon.as_ref().map(|daemon| log_size(daemon.output_max)),
        env: &spec.env,
        model: spec.models.first().map(String::as_str),
        volumes: &spec.volumes,
        stdin: spec.stdin,
        tty: spec.tty,
        limits: &spec.limits,
        paths,
        seccomp: &spec.seccomp,
        expires: (now + spec.lifetime()).as_secs(),
    })
}
