//! One run, started and completed by this process.

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_state::budget::{Admission, Admitted, BudgetError, BudgetLog};
use sluice_state::run::{Cancel, Run};
use sluice_state::store::{RunDriver, RunRow, StoreError};
use std::sync::Arc;
use tokio::sync::watch;

use crate::drive::{DriveContext, drive};
use crate::engine::StdioConfig;
use crate::forward::Printer;
use crate::host::Host;
use crate::observer::{Observer, Observers};
use crate::outcome::{CompletedRun, Completion};
use crate::record::{ResultRecord, RunRecorder};
use crate::resources::RunResources;
use crate::sidecar::{self, SidecarError};
use crate::spec::RunSpec;
use crate::stop::StopPolicy;
use crate::verdict::{Contract, LimitValues};
use crate::virtual_key::{self, KeyMode};

/// Request for a run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Run and attempt.
    pub key: RunKey,
    /// Agent; for a program, the agent in whose name it runs.
    pub agent: String,
    /// Meaning of stdout.
    pub contract: Contract,
    /// Specification.
    pub spec: RunSpec,
}

/// An admitted run with everything that it needs. It owns all of it, so that a task can run it.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like their types")]
pub struct OneShot {
    pub host: Arc<Host>,
    pub request: RunRequest,
    pub admitted: Admitted,
    pub output: StdioConfig,
    /// Writes the forwarded output.
    pub printer: Option<Printer>,
    pub stop: StopPolicy,
    /// Writes the record of the run, if it has one.
    pub recorder: Option<RunRecorder>,
    pub observer: Arc<dyn Observer>,
}

/// Lets the sidecar's program check the flags that this controller passes on unread, before a budget is held for the run.
///
/// # Errors
/// [`SidecarError`].
pub async fn check(host: &Host, request: &RunRequest) -> Result<(), SidecarError> {
    let RunSpec { models, prices, sidecar_flags, upstream, account, .. } = &request.spec;
    let mut flags: Vec<String> = models.iter().map(|model| format!("--model={model}")).collect();
    flags.extend(prices.iter().map(|file| format!("--prices={}", file.display())));
    flags.extend_from_slice(sidecar_flags);
    if sidecar::needs_check(&flags) {
        sidecar::check(&host.proxy, &host.layout, &request.key, account, upstream, &flags).await?;
    }
    Ok(())
}

/// Records a run and its hold on the account's budget. Also returns a note on a fault of the budget log.
///
/// # Errors
/// [`BudgetError::Insufficient`]: then the run is not recorded. Also when the record cannot be written.
pub async fn admit(host: &Host, request: &RunRequest) -> Result<(Admitted, Option<String>), BudgetError> {
    let RunRequest { key, agent, spec, .. } = request;
    let log = BudgetLog { layout: &host.layout, keys: &host.keys, store: &host.store };
    let note = log.check_admission(&spec.account).await?;
    let entry = RunRow {
        key: key.clone(),
        account: spec.account.clone(),
        agent: agent.clone(),
        model: spec.models.first().cloned(),
        image: spec.image.clone(),
        owner: host.owner.clone(),
        driver: RunDriver::Once,
    };
    let admitted = host.store.admit(Admission { entry, cap: spec.max_cost, default: spec.hold }).await?;
    Ok((admitted, note.map(|error| error_chain(&error))))
}

/// Runs it, from its admission to its last record.
///
/// # Errors
/// [`StoreError`] when its record cannot be written.
pub async fn run(
    one_shot: OneShot,
    mut cancelled: watch::Receiver<Option<Cancel>>,
) -> Result<CompletedRun, StoreError> {
    let OneShot { host, request, admitted, mut output, printer, stop, recorder, mut observer } = one_shot;
    if let Some(recorder) = &recorder {
        output.record = Some(recorder.output());
        observer = Arc::new(Observers(vec![recorder.log(), observer]));
    }
    let RunRequest { key, contract, mut spec, .. } = request;
    // The sidecar enforces the held amount as the cap.
    spec.max_cost = admitted.cap;
    let spec = Arc::new(spec);
    let kept = u64::try_from(output.max).ok();
    let resources = RunResources::new(&host, &key, Arc::clone(&spec), output, stop);
    let context =
        DriveContext { host: Arc::clone(&host), key: key.clone(), generation: 0, timeout: spec.timeout, observer };
    let driven = drive(Run::new(), resources, &context, &mut cancelled).await?;
    // The sidecar has ended. If this process is killed before the key is deleted, the next run deletes it.
    let revoking = (spec.key_mode != KeyMode::Master).then(|| {
        let (store, litellm, key) = (host.store.clone(), spec.litellm(), key.clone());
        tokio::spawn(async move { virtual_key::revoke_of(&store, &litellm?, &key).await })
    });
    let limits = LimitValues { timeout: Some(spec.timeout), memory: Some(spec.limits.memory), output: kept };
    let completion = Completion { host, key, generation: 0, contract, limits };
    let mut completed = completion.finish(driven, printer).await?;
    if let Some(recorder) = recorder
        && let Err(error) = recorder.finish(&ResultRecord::of(&completed.report, &completed.notes))
    {
        completed.notes.push(format!("the record of the run is not complete: {}", error_chain(&error)));
    }
    Ok(CompletedRun { revoking, ..completed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn require_task<T: Send + 'static>(_: &T) {}

    #[test]
    fn a_task_can_own_a_run() {
        // Compiles only if the future of a run is Send and borrows nothing.
        let _ = |one_shot: OneShot, cancelled: watch::Receiver<Option<Cancel>>| require_task(&run(one_shot, cancelled));
    }
}
