//! The clone of a run, and what is committed in it.

use std::sync::Arc;

use sluice_contract::text::error_chain;
use sluice_state::store::RunDriver;

use super::{RunResources, container_blueprint, files};
use crate::exchange::Collected;
use crate::run_clone::RunClone;
use crate::spec::RunSpec;
use crate::step_error::StepError;

impl RunResources {
    /// Makes the clone that the run begins with, if it has one.
    pub(super) async fn make_clone(
        &mut self,
        clone: Option<Arc<RunClone>>,
        driver: RunDriver,
    ) -> Result<(), StepError> {
        let Some(clone) = clone else { return Ok(()) };
        self.clone = tokio::select! {
            made = clone.begin(&self.paths, &self.key, driver) => Some(made?),
            // The processes of git end with the future.
            () = files::cancelled(self.cancelled.clone()) => None,
        };
        Ok(())
    }

    /// Adds what the run has committed.
    pub(super) async fn with_commits(&mut self, mut collected: Collected, spec: &RunSpec) -> Collected {
        let (Some(live), Some(clone)) = (self.clone.take(), &spec.clone) else { return collected };
        let container = container_blueprint(&self.host, &self.key, &self.paths, spec);
        let report = live.collect(&self.host.engine, container, &self.paths, clone).await;
        collected.errors.extend(report.faults.iter().cloned());
        if let Some(patch) = &spec.exchange.patch {
            match live.write_patch(patch, &self.paths, &report).await {
                Ok(written) => collected.report.patch = Some(written),
                Err(error) => collected.errors.push(error_chain(&error)),
            }
        }
        collected.report.git = Some(report);
        spec.exchange.release(&self.paths, &collected);
        collected
    }
}
