//! Teardown of runs of killed controllers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sluice_contract::{RunKey, exit};
use sluice_state::records::COMMITS;
use sluice_state::run::RunUpdate;
use sluice_state::store::{OpenRun, RunDriver, StoreError, now_us};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{PROBE_GRAPH, SweepError, SweepScope, TakenDown, catch_up, is_at_our_litellm, revoke};
use crate::blueprint::{container_name, identity};
use crate::drive::{DriveContext, DrivenRun, drive};
use crate::engine::OutputConfig;
use crate::exchange;
use crate::host::Host;
use crate::observer::Observer;
use crate::outcome::check_closed;
use crate::plan::ContainerState;
use crate::record::{self, ResultRecord};
use crate::report::{ReportParts, RunReport};
use crate::resources::{RunResources, TeardownEnd};
use crate::run_clone::{AdoptedClone, CloneReport};
use crate::stop::StopPolicy;
use crate::verdict::{ErrorCode, Judgement};

/// Maximum time that the end of a run waits for the deletion of another run's key.
const REVOKE_WITHIN: Duration = Duration::from_secs(2);

/// Error message of a run of a killed controller.
const INTERRUPTED: &str = "the controller of the run was killed, and another one took the run down";

/// Takes down the runs of killed controllers other than daemons; if this fails for a run, a later call tries again.
/// Returns the faults of their audit files, which are reported once.
pub async fn recover_orphans(host: &Arc<Host>, observer: &Arc<dyn Observer>) -> Vec<String> {
    let open = host.store.open_runs().await.unwrap_or_default();
    let mut faults = Vec::new();
    for orphan in open.iter().filter(|open| open.is_orphaned() && SweepScope::OneShot.has(open)) {
        let Ok(taken) = take_down(host, orphan, observer).await else { continue };
        for remark in taken.remarks(orphan.entry.key.run_id.as_str()) {
            faults.push(format!("run {} of a killed controller was taken down: {remark}", orphan.entry.key));
        }
    }
    // The next run tries again, and sluice ledger rebuild reports the error.
    let _ = catch_up(host).await;
    for key in host.store.orphaned_keys().await.unwrap_or_default() {
        // A user waits for another run meanwhile, so a LiteLLM that fails or is slow is asked only once.
        if !matches!(timeout(REVOKE_WITHIN, revoke(host, &key)).await, Ok(Ok(()))) && is_at_our_litellm(host, &key) {
            break;
        }
    }
    faults
}

/// Adds the result to the record of a run that another controller began.
fn record_end(host: &Host, key: &RunKey, judgement: Judgement, end: &TeardownEnd) -> io::Result<()> {
    record::add_result(&host.layout.records().of(key), || {
        let report = RunReport::new(ReportParts {
            key,
            judgement,
            oom_seen: false,
            short_of_memory: end.is_short_of_memory,
            output: end.output.clone(),
            totals: end.totals.clone(),
            audit_file: host.layout.run(key).audit.display().to_string(),
            timings: end.timings,
            exchange: end.collected.report.clone(),
        });
        // This controller did not see the output.
        ResultRecord { output: None, ..ResultRecord::of(&report, &end.notes) }
    })
}

/// Takes down an orphan.
///
/// # Errors
/// [`SweepError`]; a later call continues.
pub async fn take_down(
    host: &Arc<Host>,
    orphan: &OpenRun,
    observer: &Arc<dyn Observer>,
) -> Result<TakenDown, SweepError> {
    let is_once = orphan.entry.driver == RunDriver::Once;
    let clone = if is_once { AdoptedClone::stored(&host.layout.run(&orphan.entry.key), &host.git) } else { None };
    take_down_with(host, orphan, LeftRun { clone, ..LeftRun::default() }, observer).await
}

/// Parts of an orphan that are kept if possible.
#[derive(Debug, Default)]
pub(crate) struct LeftRun {
    pub(crate) output: Option<OutputConfig>,
    pub(crate) clone: Option<AdoptedClone>,
}

/// Returns whether the program of a run may have started: before that, its clone has no commits, or is incomplete.
fn was_started(host: &Host, key: &RunKey, found: ContainerState) -> bool {
    // The container is removed before the commits are collected.
    matches!(found, ContainerState::Running | ContainerState::Exited)
        || exchange::expects_results(&host.layout.run(key))
        || host.layout.records().of(key).path(COMMITS).exists()
}

/// Records the branch of a run. Without it, the commands that publish the branch record it.
async fn record_commits(host: &Host, key: &RunKey, report: &CloneReport) {
    for step in report.steps() {
        let _ = host.store.record_git_step(&key.run_id, step, now_us()).await;
    }
}

/// Records the result for people. An error must not keep the resources.
async fn record_result(host: &Host, key: &RunKey, generation: u32, end: &TeardownEnd) {
    let (error, code) = match end.totals.fault {
        Some(_) => (ErrorCode::AuditFailed, exit::AUDIT_INCOMPLETE),
        None => (ErrorCode::Internal, exit::NOT_STARTED),
    };
    let _ = host.store.record_result(key, generation, Some(error.as_str()), code.into()).await;
    let message = end.totals.fault.clone().unwrap_or_else(|| INTERRUPTED.to_owned());
    let judgement = Judgement { error: Some((error, message)), exit_code: code.into(), content: String::new() };
    let _ = record_end(host, key, judgement, end);
}

/// Takes down an orphan, reads its output, and collects its commits, if that is possible.
pub(crate) async fn take_down_with(
    host: &Arc<Host>,
    orphan: &OpenRun,
    left: LeftRun,
    observer: &Arc<dyn Observer>,
) -> Result<TakenDown, SweepError> {
    let key = &orphan.entry.key;
    let generation = match host.store.take_over(orphan, &host.owner).await {
        Ok(generation) => generation,
        // Another controller takes it down.
        Err(StoreError::Stale(_)) => return Ok(TakenDown::default()),
        Err(error) => return Err(error.into()),
    };
    let mut resources = RunResources::adopt(host, key, orphan.sidecar.clone()).await?;
    let found = resources.state().container;
    if let Some(clone) = left.clone.filter(|_| was_started(host, key, found)) {
        resources.adopt_clone(clone).await;
    }
    if let Some(output) = left.output.filter(|_| found != ContainerState::Absent) {
        resources.reattach(output, StopPolicy::after(Duration::ZERO)).await?;
    }
    let run = orphan.as_run().apply(RunUpdate::Orphaned).expect("a running run can lose its controller");
    let (_never, mut cancelled) = watch::channel(None);
    let context = DriveContext {
        host: Arc::clone(host),
        key: key.clone(),
        generation,
        timeout: Duration::ZERO,
        clock: Arc::default(),
        observer: Arc::clone(observer),
    };
    let DrivenRun { run, end } = Box::pin(drive(run, resources, &context, &mut cancelled)).await?;
    // The audit log counts although the controller did not see the end of the run.
    let (fault, workspace) = (end.totals.fault.clone(), end.collected.report.workspace.clone());
    let commits = end.collected.report.git.as_ref();
    if let Some(report) = commits.filter(|_| orphan.entry.driver == RunDriver::Once) {
        record_commits(host, key, report).await;
    }
    let commits = commits.map(|report| report.ahead);
    record_result(host, key, generation, &end).await;
    let closed = check_closed(&run);
    if closed.is_ok() && !orphan.entry.image.is_empty() {
        // The controller may have been killed while it waited for the container.
        let (name, identity) = (container_name(key), identity(key, &host.instance));
        host.engine.drain_pending_create(&name, &orphan.entry.image, &identity).await?;
    }
    let is_probe = orphan.entry.agent == PROBE_GRAPH;
    if is_probe && closed.is_ok() {
        // A probe makes no calls of a run: neither its audit log nor its record is kept.
        let _ = std::fs::remove_file(host.layout.run(key).audit);
        host.store.delete_run(key, generation).await?;
    } else if let Some(audit) = end.audit.filter(|_| !is_probe) {
        host.store.ingest(audit).done().await?;
    }
    closed?;
    Ok(TakenDown { audit: fault.filter(|_| !is_probe), workspace, commits })
}
