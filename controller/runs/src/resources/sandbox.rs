//! The container's part of a run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_state::run::{ContainerExit, RunEvent, Step};
use tokio::time::timeout;

use super::{Timings, ms_since};
use crate::blueprint::{self, Blueprint};
use crate::engine::{Attached, Engine, EngineError, Stdio};
use crate::host::Host;
use crate::output::{Capture, Captured};
use crate::plan;
use crate::pressure::Pressure;

/// What a container wrote before its end is read by then, or never.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long the output of a program that is stopped may wait for a reader, beyond the time that the program has.
const LAST_ROOM: Duration = Duration::from_millis(500);
/// How far apart two clocks may be that tell of the same end.
const SAME_TIME: Duration = Duration::from_millis(300);
/// How long the kernel may take to end what cannot refuse.
const KILL: Duration = Duration::from_secs(5);

pub(super) struct Sandbox<'a> {
    engine: &'a Engine,
    name: String,
    /// The labels without which a container of this name is somebody else's.
    identity: BTreeMap<String, String>,
    id: Option<String>,
    seen: plan::ContainerState,
    stop_grace: Duration,
    output: Option<Stdio>,
    attached: Option<Attached>,
    written: Option<(Captured, Captured)>,
    finished: Option<SystemTime>,
    lost_output: bool,
    init: Option<i32>,
    pressure: Pressure,
    timings: Timings,
    /// When the program began, then when it had ended.
    clock: Option<Instant>,
}

impl<'a> Sandbox<'a> {
    pub(super) fn new(host: &'a Host, key: &RunKey, output: Stdio, stop_grace: Duration) -> Self {
        Self {
            engine: &host.engine,
            name: blueprint::container_name(key),
            identity: blueprint::identity(key, &host.instance),
            id: None,
            seen: plan::ContainerState::Absent,
            stop_grace,
            output: Some(output),
            attached: None,
            written: None,
            finished: None,
            lost_output: false,
            init: None,
            pressure: Pressure::default(),
            timings: Timings::default(),
            clock: None,
        }
    }

    pub(super) fn seen(&self) -> plan::ContainerState {
        self.seen
    }

    pub(super) fn timings(&self) -> Timings {
        Timings { teardown: self.clock.map(ms_since), ..self.timings }
    }

    /// Finds out what is there.
    pub(super) async fn look(&mut self) -> Result<(), String> {
        self.find().await.map(drop).map_err(|error| error_chain(&error))
    }

    async fn find(&mut self) -> Result<Option<ContainerExit>, EngineError> {
        let found = self.engine.look(self.target(), &self.identity).await?;
        self.seen = found.as_ref().map_or(plan::ContainerState::Absent, |found| found.state);
        self.finished = found.as_ref().and_then(|found| found.finished);
        self.init = found.as_ref().and_then(|found| found.init);
        let (id, exit) = found.map_or((None, None), |found| (Some(found.id), found.exit));
        self.id = id;
        Ok(exit)
    }

    /// By its id as soon as that is known: the name can be given to another.
    fn target(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.name)
    }

    pub(super) async fn perform(
        &mut self,
        step: Step,
        order: impl FnOnce() -> Option<Blueprint>,
    ) -> Result<(), String> {
        let done = match step {
            Step::CreateContainer => {
                self.create(&order().expect("only a run that was asked for gets a container")).await
            }
            Step::StartContainer => self.start().await,
            Step::StopContainer => self.stop().await,
            Step::RemoveContainer => self.remove().await,
            _ => unreachable!("{step:?} is not a container's"),
        };
        done.map_err(|error| error_chain(&error))
    }

    async fn create(&mut self, blueprint: &Blueprint) -> Result<(), EngineError> {
        let begun = Instant::now();
        let (created, fit) = tokio::join!(self.engine.create(blueprint), self.engine.info());
        self.id = Some(created?);
        self.seen = plan::ContainerState::Created;
        self.timings.container_create = Some(ms_since(begun));
        match fit?.unfit() {
            Some(reason) => Err(EngineError::Refused(reason)),
            None => Ok(()),
        }
    }

    async fn start(&mut self) -> Result<(), EngineError> {
        let begun = Instant::now();
        let output = self.output.take().expect("a container is started once");
        self.attached = Some(self.engine.start(self.target(), output).await?);
        self.seen = plan::ContainerState::Running;
        self.timings.container_start = Some(ms_since(begun));
        self.clock = Some(Instant::now());
        Ok(())
    }

    /// Asks, then kills; each with a deadline, and the second kill without our streams, since a stream that stalls
    /// keeps the engine from everything.
    async fn stop(&mut self) -> Result<(), EngineError> {
        let grace = std::mem::take(&mut self.stop_grace);
        if let Some(attached) = &self.attached {
            attached.stop_waiting(grace + LAST_ROOM);
        }
        for (signal, limit, keep) in [("SIGTERM", grace, true), ("SIGKILL", KILL, true), ("SIGKILL", KILL, false)] {
            if limit.is_zero() {
                continue;
            }
            if !keep {
                self.let_go();
            }
            // A kill that fails is known by its effect.
            let killed = self.engine.kill(self.target(), signal).await;
            self.engine.settled(self.target(), limit).await;
            self.find().await?;
            if self.seen != plan::ContainerState::Running {
                self.over().await;
                return Ok(());
            }
            if !keep {
                killed?;
            }
        }
        Err(EngineError::Late("end the container, not even by SIGKILL"))
    }

    async fn remove(&mut self) -> Result<(), EngineError> {
        if let Some(id) = &self.id {
            self.engine.remove(id).await?;
        }
        self.seen = plan::ContainerState::Absent;
        Ok(())
    }

    /// Waits until the container may have ended. Cancel-safe.
    pub(super) async fn stirred(&mut self) {
        match &mut self.attached {
            Some(attached) => attached.stirred().await,
            None => std::future::pending().await,
        }
    }

    /// What became of it, if it has ended.
    pub(super) async fn end(&mut self) -> Option<RunEvent> {
        let exit = self.find().await.ok()?;
        let event = match (self.seen, exit) {
            (plan::ContainerState::Exited, Some(exit)) => RunEvent::Exited(exit),
            (plan::ContainerState::Absent, _) => RunEvent::Removed,
            _ => {
                self.init.into_iter().for_each(|init| self.pressure.look(init));
                return None;
            }
        };
        self.over().await;
        Some(event)
    }

    /// Whether some of its output never came.
    pub(super) fn lost_output(&self) -> bool {
        self.lost_output
    }

    /// Whether it was short of memory when it was last seen.
    pub(super) fn is_short_of_memory(&self) -> bool {
        self.pressure.is_short()
    }

    async fn over(&mut self) {
        if let Some(begun) = self.clock.replace(Instant::now()) {
            self.timings.run.get_or_insert((begun.elapsed().as_secs_f64() * 1e6).round() / 1e3);
        }
        if let Some(attached) = &mut self.attached {
            let _ = timeout(LAST_WORDS, attached.drained()).await;
            // The init of a container holds its output open to the end. If that came earlier, the engine has cut us off.
            let closed = attached.closed().zip(self.finished);
            self.lost_output = closed.is_some_and(|(closed, end)| closed + SAME_TIME < end);
        }
        self.let_go();
    }

    fn let_go(&mut self) {
        if let Some(attached) = self.attached.take() {
            self.written = Some(attached.finish());
        }
    }

    pub(super) fn finish(mut self) -> (Captured, Captured) {
        self.let_go();
        self.written.unwrap_or_else(|| (Capture::new(0).finish(), Capture::new(0).finish()))
    }
}
