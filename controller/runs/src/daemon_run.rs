//! One run that a daemon drives: it outlives its controller, and the next controller continues it.
//!
//! The sidecar does not end with its parent, the container belongs to the engine, and the output is read from the engine's
//! log. So nothing that the agent does depends on this process. A service manager must end only the daemon's own process:
//! the unit needs `KillMode=process`, since sidecars stay in its control group. See docs/design/daemon-runs.md.

use std::sync::Arc;
use std::time::Duration;

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_state::budget::Admitted;
use sluice_state::records::OutputLog;
use sluice_state::run::Cancel;
use sluice_state::store::{OpenRun, StoreError};
use tokio::sync::watch;

use crate::admission::RunRequest;
use crate::adoption::{self, Resumed, Resumption};
use crate::engine::{LogConfig, OutputConfig, log_size};
use crate::execution::{Execution, complete_record};
use crate::host::Host;
use crate::observer::{Observer, Observers};
use crate::outcome::CompletedRun;
use crate::record::RunRecorder;
use crate::run_clock::RunClock;
use crate::run_clone::AdoptedClone;
use crate::stop::StopPolicy;
use crate::sweep::{self, LeftRun, SweepError, TakenDown, take_down_with};
use crate::verdict::{Contract, LimitValues};
use crate::virtual_key::RevokeError;

/// An admitted run of a daemon. Its specification has [`DaemonOptions`](crate::spec::DaemonOptions).
#[derive(Debug)]
#[allow(missing_docs, reason = "named like their types")]
pub struct DaemonRun {
    pub host: Arc<Host>,
    pub request: RunRequest,
    pub admitted: Admitted,
    /// Generation of the attempt's row.
    pub generation: u32,
    pub stop: StopPolicy,
    /// Clock of the run's timeout; it stops during pauses.
    pub clock: Arc<RunClock>,
    /// Writes the record of the run, begun by [`RunRecorder::begin_logged`].
    pub recorder: RunRecorder,
    pub observer: Arc<dyn Observer>,
}

/// Values of an adopted run that the database of runs does not have.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like their types")]
pub struct DaemonResumption {
    pub contract: Contract,
    pub limits: LimitValues,
    /// Maximum size of the output, as in the specification of the run.
    pub output_max: u64,
    pub stop: StopPolicy,
    /// As in [`DaemonRun`].
    pub clock: Arc<RunClock>,
    pub observer: Arc<dyn Observer>,
    /// Clone in its workspace, if it has one.
    pub clone: Option<AdoptedClone>,
}

/// The end of an adopted run.
#[derive(Debug)]
pub enum Adopted {
    /// The run was driven to its own end.
    Completed(Box<CompletedRun>),
    /// The run could not continue: its container had not started, or its sidecar has ended. Its output is kept.
    TakenDown(TakenDown),
}

/// Runs it, from its admission to its last record.
///
/// # Errors
/// [`StoreError`] when its record cannot be written.
///
/// # Panics
/// Without [`DaemonOptions`](crate::spec::DaemonOptions).
pub async fn run(run: DaemonRun, mut cancelled: watch::Receiver<Option<Cancel>>) -> Result<CompletedRun, StoreError> {
    let DaemonRun { host, request, admitted, generation, stop, clock, recorder, observer } = run;
    let options = request.spec.daemon.as_ref().expect("the run of a daemon has its options");
    let (log, notes) = log_config(Some(&recorder), options.output_max).await;
    let execution = Execution {
        host,
        request,
        admitted,
        generation,
        output: OutputConfig::Logged(Box::new(log)),
        printer: None,
        stop,
        clock,
        recorder: Some(recorder),
        observer,
    };
    let mut completed = execution.complete(&mut cancelled).await?;
    completed.notes.extend(notes);
    Ok(completed)
}

/// Adopts a run of a daemon that is gone, and drives it to its end; a run that cannot continue is taken down.
///
/// # Errors
/// [`SweepError`]; a later call continues.
pub async fn resume(
    host: Arc<Host>,
    orphan: OpenRun,
    resumption: DaemonResumption,
    cancelled: watch::Receiver<Option<Cancel>>,
) -> Result<Adopted, SweepError> {
    let DaemonResumption { contract, limits, output_max, stop, clock, observer, clone } = resumption;
    let key = orphan.entry.key.clone();
    let recorder = RunRecorder::resume(&host.layout.records(), &key)?;
    let (log, notes) = log_config(recorder.as_ref(), output_max).await;
    let observer: Arc<dyn Observer> = match &recorder {
        Some(recorder) => Arc::new(Observers(vec![recorder.log(), observer])),
        None => observer,
    };
    let output = OutputConfig::Logged(Box::new(log));
    let resumption = Resumption { contract, output, stop, limits, clock, observer, clone };
    let mut completed = match adoption::resume(Arc::clone(&host), orphan.clone(), resumption, cancelled).await? {
        Resumed::Completed(completed) => completed,
        Resumed::Refused(resumption) => {
            let Resumption { output, observer, clone, .. } = *resumption;
            let left = LeftRun { output: Some(output), clone };
            return Ok(Adopted::TakenDown(take_down_with(&host, &orphan, left, &observer).await?));
        }
    };
    completed.notes.extend(notes);
    completed.revoking = Some(tokio::spawn(revoke(host, key)));
    if let Some(recorder) = recorder {
        complete_record(recorder, &mut completed);
    }
    Ok(Adopted::Completed(completed))
}

/// Returns the configuration of a run's log, and a remark if its output cannot be stored.
async fn log_config(recorder: Option<&RunRecorder>, output_max: u64) -> (LogConfig, Option<String>) {
    let max = usize::try_from(output_max).unwrap_or(usize::MAX);
    let (record, note) = match recorder {
        None => (None, None),
        Some(recorder) => match open_output(recorder, max).await {
            Ok(record) => (Some(record), None),
            Err(error) => (None, Some(format!("the output of the run is not recorded: {}", error_chain(&error)))),
        },
    };
    (LogConfig { max, log_max: log_size(output_max), record }, note)
}

/// Opens the stored output. The reader of a task that was dropped a moment ago may still complete its last write.
async fn open_output(recorder: &RunRecorder, max: usize) -> std::io::Result<OutputLog> {
    const TRIES: usize = 50;
    for _ in 1..TRIES {
        match recorder.output_log(max) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            opened => return opened,
        }
    }
    recorder.output_log(max)
}

/// Deletes the virtual key of an adopted run. A failure is tried again by a sweep.
async fn revoke(host: Arc<Host>, key: RunKey) -> Result<(), RevokeError> {
    for record in host.store.live_keys().await?.iter().filter(|record| record.key == key) {
        sweep::revoke(&host, record).await?;
    }
    Ok(())
}
