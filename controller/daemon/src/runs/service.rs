//! Parts that the execution of runs needs in addition to the database.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sluice_contract::RunKey;
use sluice_runs::admission::RunRequest;
use sluice_runs::host::Host;
use sluice_runs::record::RequestRecord;
use sluice_runs::run_clone::CloneCollector;
use sluice_runs::verdict::Contract;
use sluice_state::sandboxes::Sandbox;

use super::watchdog::RunTimes;
use crate::stored_request::StoredRequest;
use crate::variable_values::Variables;

/// A run request that is made from a stored request.
#[derive(Debug)]
pub struct PlannedRun {
    /// The request.
    pub request: RunRequest,
    /// Record of the run.
    pub record: RequestRecord,
}

/// Reason why no run can be made from a stored request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(pub String);

/// Makes run requests from stored requests. It hides the settings of programs, images and sidecars.
pub trait Planner: fmt::Debug + Send + Sync {
    /// Makes the run request of an attempt.
    ///
    /// # Errors
    /// [`PlanError`], for the owner of the run.
    fn plan(&self, run: &Sandbox, stored: &StoredRequest, variables: &Variables) -> Result<PlannedRun, PlanError>;

    /// Returns the meaning of a run's stdout.
    fn contract(&self, stored: &StoredRequest) -> Contract;

    /// Returns the container that packs the commits of a run.
    fn collector(&self, stored: &StoredRequest) -> CloneCollector;
}

/// Parts that the execution of runs needs in addition to the database.
#[derive(Debug, Clone)]
pub struct RunService {
    /// The host.
    pub host: Arc<Host>,
    /// Makes run requests from stored requests.
    pub planner: Arc<dyn Planner>,
    /// Maximum number of stored output bytes of each stream.
    pub output_max: u64,
    /// Time that a program has after SIGTERM.
    pub stop_grace: Duration,
    /// Times after which runs end.
    pub times: RunTimes,
}

/// Returns the name of a run's directory in messages.
pub(super) fn shown(key: &RunKey) -> String {
    format!("run {key}")
}
