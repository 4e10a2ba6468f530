//! The request for a run, checked and admitted to the budget of its account.

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_state::budget::{AdmissionRequest, Admitted, BudgetError, BudgetLog};
use sluice_state::store::RunRow;

use crate::host::Host;
use crate::sidecar::{self, SidecarError};
use crate::spec::RunSpec;
use crate::verdict::Contract;

/// Request for a run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Run and attempt.
    pub key: RunKey,
    /// Agent; for a program, the agent on behalf of which it runs.
    pub agent: String,
    /// Meaning of stdout.
    pub contract: Contract,
    /// Specification.
    pub spec: RunSpec,
}

/// Lets the sidecar's program check the flags that this controller only passes on, before a budget is held for the run.
///
/// # Errors
/// [`SidecarError`].
pub async fn check(host: &Host, request: &RunRequest) -> Result<(), SidecarError> {
    let RunSpec { models, prices, sidecar_flags, upstream, account, .. } = &request.spec;
    let mut flags: Vec<String> = models.iter().map(|model| format!("--model={model}")).collect();
    flags.extend(prices.iter().map(|file| format!("--prices={}", file.display())));
    flags.extend_from_slice(sidecar_flags);
    if upstream.ca.is_some() || sidecar::needs_check(&flags) {
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
        driver: spec.driver(),
    };
    let admitted = host.store.admit(AdmissionRequest { entry, cap: spec.max_cost, default: spec.hold }).await?;
    Ok((admitted, note.map(|error| error_chain(&error))))
}
