//! The execution of an admitted run by this process, from its first directory to its last record.

use std::sync::Arc;

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_state::budget::Admitted;
use sluice_state::run::{Cancel, Run};
use sluice_state::store::StoreError;
use tokio::sync::watch;

use crate::admission::RunRequest;
use crate::blueprint::{container_name, identity};
use crate::drive::{DriveContext, drive};
use crate::engine::OutputConfig;
use crate::forward::Printer;
use crate::host::Host;
use crate::observer::{Observer, Observers};
use crate::outcome::{CompletedRun, Completion, check_closed};
use crate::record::{ResultRecord, RunRecorder};
use crate::resources::RunResources;
use crate::run_clock::RunClock;
use crate::stop::StopPolicy;
use crate::verdict::LimitValues;
use crate::virtual_key::{self, KeyMode};

/// An admitted run, and the source of its output.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) host: Arc<Host>,
    pub(crate) request: RunRequest,
    pub(crate) admitted: Admitted,
    /// Number of times that a controller has taken over the run's row.
    pub(crate) generation: u32,
    pub(crate) output: OutputConfig,
    /// Writes the forwarded output.
    pub(crate) printer: Option<Printer>,
    pub(crate) stop: StopPolicy,
    /// Clock of its timeout; it stops during pauses.
    pub(crate) clock: Arc<RunClock>,
    /// Writes the record of the run, if it has one.
    pub(crate) recorder: Option<RunRecorder>,
    pub(crate) observer: Arc<dyn Observer>,
}

impl Execution {
    /// Runs it to its end.
    pub(crate) async fn complete(
        self,
        cancelled: &mut watch::Receiver<Option<Cancel>>,
    ) -> Result<CompletedRun, StoreError> {
        let Self { host, request, admitted, generation, output, printer, stop, clock, recorder, mut observer } = self;
        if let Some(recorder) = &recorder {
            observer = Arc::new(Observers(vec![recorder.log(), observer]));
        }
        let RunRequest { key, contract, mut spec, .. } = request;
        // The sidecar enforces the held amount as the cap.
        spec.max_cost = admitted.cap;
        let spec = Arc::new(spec);
        let kept = output.max();
        let resources = RunResources::new(&host, &key, Arc::clone(&spec), output, stop);
        let (host_of_run, timeout) = (Arc::clone(&host), spec.timeout);
        let context = DriveContext { host: host_of_run, key: key.clone(), generation, timeout, clock, observer };
        let mut driven = Box::pin(drive(Run::new(), resources, &context, cancelled)).await?;
        if driven.end.is_create_pending && check_closed(&driven.run).is_ok() {
            driven.end.notes.extend(drain_pending_create(&host, &key, &spec.image).await);
        }
        // The sidecar has ended. If this process is killed before the key is deleted, the next run deletes it.
        let revoking = (spec.key_mode != KeyMode::Master).then(|| {
            let (store, litellm, key) = (host.store.clone(), spec.litellm(), key.clone());
            tokio::spawn(async move { virtual_key::revoke_of(&store, &litellm?, &key).await })
        });
        let limits = LimitValues {
            timeout: Some(spec.timeout),
            memory: Some(spec.limits.memory),
            output: u64::try_from(kept).ok(),
        };
        let completion = Completion { host, key, generation, contract, limits };
        let mut completed = completion.finish(driven, printer).await?;
        if let Some(recorder) = recorder {
            complete_record(recorder, &mut completed);
        }
        Ok(CompletedRun { revoking, ..completed })
    }
}

/// Removes the container of a run whose directories are gone, if the engine creates it after all. Returns a remark if that
/// fails.
async fn drain_pending_create(host: &Host, key: &RunKey, image: &str) -> Option<String> {
    let (name, identity) = (container_name(key), identity(key, &host.instance));
    let error = host.engine.drain_pending_create(&name, image, &identity).await.err()?;
    let error = error_chain(&error);
    Some(format!("the engine may still create the container {name}, which sluice sweep removes: {error}"))
}

/// Adds the result to the record of a run. An error is a remark: the run is over.
pub(crate) fn complete_record(recorder: RunRecorder, completed: &mut CompletedRun) {
    if let Err(error) = recorder.finish(&ResultRecord::of(&completed.report, &completed.notes)) {
        completed.notes.push(format!("the record of the run is not complete: {}", error_chain(&error)));
    }
}
