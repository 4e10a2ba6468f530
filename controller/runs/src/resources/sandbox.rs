//! The container of a run: created, attached, started, stopped, removed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use sluice_contract::RunKey;
use sluice_state::run::{ContainerExit, RunStep, RunUpdate};

use crate::blueprint::{self, Blueprint};
use crate::capture::{Capture, Captured};
use crate::engine::{ContainerOutput, Engine, EngineError, LogLoss, OutputConfig, RunningContainer};
use crate::host::Host;
use crate::memory_pressure::MemoryPressure;
use crate::plan::ContainerState;
use crate::stop::StopPolicy;
use crate::timings::{Timings, ms_since};
use crate::verdict::OutputLoss;

/// Time that the output of a stopped program may wait for a reader, beyond the time that the program has.
const LAST_FORWARD: Duration = Duration::from_millis(500);
/// Maximum difference of two clocks that report the same end.
const SAME_TIME: Duration = Duration::from_millis(300);
/// Time within which the kernel ends a process after SIGKILL.
const KILL: Duration = Duration::from_secs(5);

/// The container of one run.
#[derive(Debug)]
pub(super) struct RunContainer {
    engine: Engine,
    name: String,
    /// Labels that distinguish our container from another one of this name.
    identity: BTreeMap<String, String>,
    id: Option<String>,
    state: ContainerState,
    /// True if the engine did not answer the request to create it: it may exist, or come later.
    is_create_pending: bool,
    /// True if its processes were frozen when it was last inspected.
    is_frozen: bool,
    expires: Option<SystemTime>,
    stop: StopPolicy,
    output: Option<OutputConfig>,
    running: Option<RunningContainer>,
    captured: Option<(Captured, Captured)>,
    finished: Option<SystemTime>,
    output_loss: Option<OutputLoss>,
    record_error: Option<String>,
    init: Option<i32>,
    memory: MemoryPressure,
    timings: Timings,
    /// Start of the program, then its end.
    phase_begun: Option<Instant>,
}

/// Streams of a container while it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamsAtKill {
    Keep,
    /// A stream that stalls blocks every other call of the engine.
    Detach,
}

impl RunContainer {
    pub(super) fn new(host: &Host, key: &RunKey, output: OutputConfig, stop: StopPolicy) -> Self {
        Self {
            engine: host.engine.clone(),
            name: blueprint::container_name(key),
            identity: blueprint::identity(key, &host.instance),
            id: None,
            state: ContainerState::Absent,
            is_create_pending: false,
            is_frozen: false,
            expires: None,
            stop,
            output: Some(output),
            running: None,
            captured: None,
            finished: None,
            output_loss: None,
            record_error: None,
            init: None,
            memory: MemoryPressure::default(),
            timings: Timings::default(),
            phase_begun: None,
        }
    }

    pub(super) fn state(&self) -> ContainerState {
        self.state
    }

    /// Returns whether a start of the program was tried. After a start without an answer, the program may have run.
    pub(super) fn was_start_tried(&self) -> bool {
        self.output.is_none()
    }

    /// Returns whether the engine may still create it.
    pub(super) fn is_create_pending(&self) -> bool {
        self.is_create_pending
    }

    /// Returns the policy by which the program is stopped.
    pub(super) fn stop_policy(&self) -> StopPolicy {
        self.stop.clone()
    }

    /// Returns the expiry from the container's label, if the container exists.
    pub(super) fn expires(&self) -> Option<SystemTime> {
        self.expires
    }

    pub(super) fn timings(&self) -> Timings {
        Timings { teardown: self.phase_begun.map(ms_since), ..self.timings }
    }

    /// Inspects the container, and returns how it ended if it has.
    pub(super) async fn find(&mut self) -> Result<Option<ContainerExit>, EngineError> {
        let found = self.engine.find(self.target(), &self.identity).await?;
        self.state = found.as_ref().map_or(ContainerState::Absent, |found| found.state);
        self.is_frozen = found.as_ref().is_some_and(|found| found.is_frozen);
        self.finished = found.as_ref().and_then(|found| found.finished);
        self.init = found.as_ref().and_then(|found| found.init);
        self.expires = found.as_ref().and_then(|found| found.expires);
        let (id, exit) = found.map_or((None, None), |found| (Some(found.id), found.exit));
        self.id = id;
        Ok(exit)
    }

    /// Returns the id, or the name while the id is not known: another container may get the name later.
    fn target(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.name)
    }

    pub(super) async fn perform(&mut self, step: RunStep, blueprint: Option<&Blueprint>) -> Result<(), EngineError> {
        match step {
            RunStep::CreateContainer => {
                self.create(blueprint.expect("only a run with a specification gets a container")).await
            }
            RunStep::StartContainer => self.start().await,
            RunStep::StopContainer => self.stop().await,
            RunStep::RemoveContainer => self.remove().await,
            _ => unreachable!("{step:?} does not concern the container"),
        }
    }

    async fn create(&mut self, blueprint: &Blueprint) -> Result<(), EngineError> {
        let begun = Instant::now();
        let (created, info) = tokio::join!(self.engine.create(blueprint), self.engine.info());
        self.is_create_pending = created.as_ref().is_err_and(EngineError::is_unanswered);
        self.id = Some(created?);
        self.state = ContainerState::Created;
        self.timings.container_create = Some(ms_since(begun));
        match info?.unfit() {
            Some(reason) => Err(EngineError::Refused(reason)),
            None => Ok(()),
        }
    }

    async fn start(&mut self) -> Result<(), EngineError> {
        let begun = Instant::now();
        let output = self.output.take().expect("a container is started once");
        self.running = Some(self.engine.start(self.target(), output).await?);
        self.state = ContainerState::Running;
        self.timings.container_start = Some(ms_since(begun));
        self.phase_begun = Some(Instant::now());
        Ok(())
    }

    /// Connects to a container that another controller has started. Attached output from before is not captured.
    pub(super) async fn reattach(&mut self, output: OutputConfig, stop: StopPolicy) -> Result<(), EngineError> {
        self.stop = stop;
        self.output = None;
        let is_logged = matches!(output, OutputConfig::Logged(_));
        self.output_loss = (!is_logged).then_some(OutputLoss::BeforeAdoption);
        self.phase_begun = Some(Instant::now());
        // The log exists even after the program has ended.
        if self.state == ContainerState::Running || is_logged {
            self.running = Some(self.engine.reattach(self.target(), output).await?);
        }
        Ok(())
    }

    /// Asks the program to end, then kills it. Each attempt has a deadline.
    async fn stop(&mut self) -> Result<(), EngineError> {
        let grace = std::mem::take(&mut self.stop.grace);
        if matches!(self.running, Some(RunningContainer::Logged(_))) {
            // Only daemon runs can be frozen, and this may have happened after the last inspection.
            self.find().await?;
        }
        if let Some(running) = &self.running {
            running.stop_waiting(grace + LAST_FORWARD);
        }
        let attempts = [
            ("SIGTERM", grace, StreamsAtKill::Keep),
            ("SIGKILL", KILL, StreamsAtKill::Keep),
            ("SIGKILL", KILL, StreamsAtKill::Detach),
        ];
        for (signal, limit, streams) in attempts {
            if limit.is_zero() {
                continue;
            }
            if streams == StreamsAtKill::Detach {
                self.detach();
            }
            if self.is_frozen {
                // Frozen processes take no signal. If this fails, the next attempt tries again.
                let _ = self.engine.thaw(self.target()).await;
            }
            // The container's state shows whether a failed kill had an effect.
            let killed = self.engine.kill(self.target(), signal).await;
            self.wait_until_stopped(signal, limit).await;
            self.find().await?;
            if self.state != ContainerState::Running {
                self.take_last_output().await;
                return Ok(());
            }
            if streams == StreamsAtKill::Detach {
                killed?;
            }
        }
        Err(EngineError::Late("end the container, not even by SIGKILL"))
    }

    /// Waits until the container has ended. After SIGTERM, the wait also ends when the program must be killed at once.
    async fn wait_until_stopped(&mut self, signal: &str, limit: Duration) {
        let mut stop = self.stop.clone();
        tokio::select! {
            () = self.engine.wait_until_stopped(self.target(), limit) => {}
            () = stop.killed(), if signal == "SIGTERM" => {
                self.running.iter().for_each(|running| running.stop_waiting(LAST_FORWARD));
            }
        }
    }

    async fn remove(&mut self) -> Result<(), EngineError> {
        if self.running.is_some() {
            // The program ended under an earlier controller.
            self.take_last_output().await;
        }
        if let Some(id) = &self.id {
            self.engine.remove(id).await?;
        }
        self.state = ContainerState::Absent;
        Ok(())
    }

    /// Waits until the container may have ended. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        match &mut self.running {
            Some(running) => running.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the event of the container's end, if it has ended.
    pub(super) async fn end(&mut self) -> Option<RunUpdate> {
        let exit = self.find().await.ok()?;
        let event = match (self.state, exit) {
            (ContainerState::Exited, Some(exit)) => RunUpdate::Exited(exit),
            (ContainerState::Absent, _) => RunUpdate::Removed,
            _ => {
                self.init.into_iter().for_each(|init| self.memory.look(init));
                return None;
            }
        };
        self.take_last_output().await;
        Some(event)
    }

    /// Returns why a part of the output is missing.
    pub(super) fn output_loss(&self) -> Option<OutputLoss> {
        self.output_loss
    }

    /// Returns true if the container was short of memory at the last observation.
    pub(super) fn is_short_of_memory(&self) -> bool {
        self.memory.is_short()
    }

    async fn take_last_output(&mut self) {
        if let Some(begun) = self.phase_begun.replace(Instant::now()) {
            self.timings.run.get_or_insert(ms_since(begun));
        }
        if let Some(running) = &mut self.running {
            running.drained().await;
            let is_cut = match running.closed() {
                // The init process holds the output open to the end. If the output ended earlier, the engine has cut it off.
                Some(closed) => self.finished.is_some_and(|end| closed + SAME_TIME < end),
                // It was not read to its end in time.
                None => matches!(running, RunningContainer::Attached(_)),
            };
            if is_cut {
                self.output_loss = Some(OutputLoss::CutOff);
            }
        }
        self.detach();
    }

    /// Releases the streams of the container.
    pub(super) fn detach(&mut self) {
        let Some(running) = self.running.take() else { return };
        let ContainerOutput { captured, loss, record_error } = running.finish();
        self.captured = Some(captured);
        self.output_loss = self.output_loss.or(loss.map(|loss| match loss {
            LogLoss::Full => OutputLoss::LogFull,
            LogLoss::Late => OutputLoss::CutOff,
        }));
        self.record_error = record_error;
    }

    /// Returns why output is not in the record.
    pub(super) fn record_error(&self) -> Option<&str> {
        self.record_error.as_deref()
    }

    /// Returns captured stdout and stderr.
    pub(super) fn finish(mut self) -> (Captured, Captured) {
        self.detach();
        self.captured.unwrap_or_else(|| (Capture::new(0).finish(), Capture::new(0).finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::StdioConfig;
    use crate::input::Stdin;
    use crate::test_engine::TestHost;

    #[tokio::test]
    async fn a_start_that_fails_may_have_started_the_program() {
        let test = TestHost::start().await;
        let key = "r.0".parse().expect("a key");
        let output = StdioConfig { stdin: Stdin::Closed, tty: false, max: 0, live: None, record: None };
        let output = OutputConfig::Attached(output);
        let mut sandbox = RunContainer::new(&test.host, &key, output, StopPolicy::after(Duration::ZERO));
        assert!(!sandbox.was_start_tried());

        sandbox.perform(RunStep::StartContainer, None).await.expect_err("the engine does not answer");

        assert!(sandbox.was_start_tried());
    }
}
