//! The clone of a run, and its commits.

use sluice_contract::Hash;
use sluice_contract::text::error_chain;
use sluice_state::layout::RunPaths;
use sluice_state::store::RunDriver;

use super::{RunResources, container_blueprint, files};
use crate::blueprint::{container_name, identity};
use crate::exchange::disk_usage::exceeds;
use crate::exchange::{Collected, ExchangeReport, FileExchange, OutputFile, PatchReport};
use crate::run_clone::{
    AdoptedClone, CloneCollector, CloneError, CloneReport, LiveClone, recall, remember, remove_collector,
};
use crate::spec::RunSpec;
use crate::step_error::StepError;

impl RunResources {
    /// Makes the clone that the run begins with, if it has one.
    pub(super) async fn make_clone(&mut self, spec: &RunSpec) -> Result<(), StepError> {
        let Some(clone) = spec.clone.clone() else { return Ok(()) };
        let driver = spec.driver();
        self.clone = tokio::select! {
            made = clone.begin(&self.paths, &self.key, driver) => Some(made?),
            // The processes of git end with the future.
            () = files::cancelled(self.cancelled.clone()) => None,
        };
        if driver == RunDriver::Once {
            let RunSpec { image, limits, seccomp, exchange, .. } = spec;
            // Other results are only in the workspace.
            let keeps_workspace = exchange.keep || exchange.out.is_some() || exchange.patch.is_some();
            let collector = CloneCollector { image: image.clone(), limits: limits.clone(), seccomp: seccomp.clone() };
            if let Err(error) = AdoptedClone::store(&self.paths, &clone, collector, keeps_workspace) {
                self.file_notes.push(format!("if sluice is killed, the run's commits stay in its workspace: {error}"));
            }
        }
        Ok(())
    }

    /// Takes over the clone of a run that another controller began. Commits that the other controller has collected are
    /// not collected again.
    pub(crate) async fn adopt_clone(&mut self, clone: AdoptedClone) {
        let recalled = match clone.home.run_repository(&self.key.run_id) {
            Ok(Some(repository)) => recall(&self.host.layout.records(), &self.key, &repository, &clone.url).await,
            Ok(None) | Err(_) => None,
        };
        match recalled {
            Some(report) => self.take_adopted(report, &clone),
            None => self.adopted_clone = Some(clone),
        }
    }

    /// Adds the run's commits.
    pub(super) async fn with_commits(&mut self, mut collected: Collected, spec: &RunSpec) -> Collected {
        let Some(live) = self.clone.take().filter(|_| spec.clone.is_some()) else { return collected };
        let container = container_blueprint(&self.host, &self.key, &self.paths, spec);
        let report = live.collect(&self.host.engine, container, &self.paths, exceeds).await;
        self.note_commits(&live).await;
        self.remember_commits(&report);
        collected.errors.extend(report.faults.iter().cloned());
        if let Some(patch) = &spec.exchange.patch {
            match write_patch(&live, patch, &self.paths, &report).await {
                Ok(written) => collected.report.patch = Some(written),
                Err(error) => collected.errors.push(error_chain(&error)),
            }
        }
        collected.report.git = Some(report);
        spec.exchange.release(&self.paths, &collected);
        collected
    }

    /// Collects the commits of a run that another controller began.
    pub(super) async fn collect_adopted(&mut self) {
        if let Some(clone) = self.adopted_clone.take() {
            match clone.open(&self.key) {
                Ok(Some(live)) => {
                    let container = clone.container(&self.host, &self.key, &self.paths);
                    let report = live.collect(&self.host.engine, container, &self.paths, exceeds).await;
                    self.note_commits(&live).await;
                    self.remember_commits(&report);
                    self.take_adopted(report, &clone);
                }
                Ok(None) => {}
                Err(error) => self.collected.get_or_insert_default().errors.push(error_chain(&error)),
            }
        } else if self.spec.is_none() {
            // The earlier controller may have been killed while it collected.
            let labels = identity(&self.key, &self.host.instance);
            if let Err(error) = remove_collector(&self.host.engine, &container_name(&self.key), &labels).await {
                self.file_notes.push(format!("the container that packs commits is left: {}", error_chain(&error)));
            }
        }
    }

    /// Takes the commits of a run that another controller began. The workspace was kept only for these commits, unless
    /// the request of the run says more.
    fn take_adopted(&mut self, report: CloneReport, clone: &AdoptedClone) {
        let collected = of_report(report);
        let keep = clone.keep_workspace;
        let exchange = FileExchange { keep, has_clone: true, ..FileExchange::default() };
        exchange.release(&self.paths, &collected);
        self.collected = Some(collected);
    }

    /// Adds notes to the commits. A failure is only a remark: the commits are collected anyway.
    async fn note_commits(&mut self, live: &LiveClone) {
        let head = self.audit.head().map(|head| head.to_string());
        if let Err(error) = live.note_commits(&self.key, head.as_deref()).await {
            self.file_notes.push(format!("the run's commits have no notes: {}", error_chain(&error)));
        }
    }

    fn remember_commits(&mut self, report: &CloneReport) {
        if let Err(error) = remember(&self.host.layout.records().of(&self.key), report) {
            self.file_notes.push(format!("what came out of the clone is not in the record: {error}"));
        }
    }
}

/// Writes what the run has committed into a file, as a patch.
async fn write_patch(
    live: &LiveClone,
    file: &OutputFile,
    paths: &RunPaths,
    report: &CloneReport,
) -> Result<PatchReport, CloneError> {
    let text = live.patch().await?;
    file.write(&text, paths).map_err(CloneError::file("write the file of --patch"))?;
    Ok(PatchReport {
        path: file.path(),
        files: report.files,
        insertions: report.insertions,
        deletions: report.deletions,
        bytes: text.len() as u64,
        sha256: Hash::of(&text).to_string(),
        sensitive: report.guarded.iter().map(|change| change.path.clone()).collect(),
        left_out: Vec::new(),
    })
}

/// Returns the results of a run for which only its commits are known.
fn of_report(report: CloneReport) -> Collected {
    let errors = report.faults.clone();
    Collected { report: ExchangeReport { git: Some(report), ..ExchangeReport::default() }, errors }
}
