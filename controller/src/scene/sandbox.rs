//! The container's part of a run.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::blueprint::Blueprint;
use crate::engine::{Attached, Engine, EngineError, Output};
use crate::output::{Capture, Captured};
use crate::plan;
use crate::preflight;
use crate::run::{Event, Step};

use super::{Timings, chain, ms_since};

/// What a container wrote before its end is read by then, or never.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long the kernel may take to end what cannot refuse.
const KILL: Duration = Duration::from_secs(5);

pub(super) struct Sandbox<'a> {
    engine: &'a Engine,
    name: String,
    seen: plan::Container,
    stop_grace: Duration,
    output: Option<Output>,
    attached: Option<Attached>,
    written: Option<(Captured, Captured)>,
    timings: Timings,
    /// When the program began, then when it had ended.
    clock: Option<Instant>,
}

impl<'a> Sandbox<'a> {
    pub(super) fn new(engine: &'a Engine, name: String, output: Output, stop_grace: Duration) -> Self {
        Self {
            engine,
            name,
            seen: plan::Container::Absent,
            stop_grace,
            output: Some(output),
            attached: None,
            written: None,
            timings: Timings::default(),
            clock: None,
        }
    }

    pub(super) fn seen(&self) -> plan::Container {
        self.seen
    }

    pub(super) fn timings(&self) -> Timings {
        Timings { teardown: self.clock.map(ms_since), ..self.timings }
    }

    /// Finds out what is there.
    pub(super) async fn look(&mut self) -> Result<(), String> {
        self.seen = self.engine.look(&self.name).await.map_err(|error| chain(&error))?.0;
        Ok(())
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
        done.map_err(|error| chain(&error))
    }

    async fn create(&mut self, blueprint: &Blueprint) -> Result<(), EngineError> {
        let begun = Instant::now();
        let (created, fit) = tokio::join!(self.engine.create(blueprint), self.engine.facts());
        created?;
        self.seen = plan::Container::Created;
        self.timings.container_create = Some(ms_since(begun));
        match preflight::unfit(&fit?) {
            Some(reason) => Err(EngineError::Refused(reason)),
            None => Ok(()),
        }
    }

    async fn start(&mut self) -> Result<(), EngineError> {
        let begun = Instant::now();
        let output = self.output.take().expect("a container is started once");
        self.attached = Some(self.engine.start(&self.name, output).await?);
        self.seen = plan::Container::Running;
        self.timings.container_start = Some(ms_since(begun));
        self.clock = Some(Instant::now());
        Ok(())
    }

    /// Asks, then kills; each with a deadline, and the second kill without our streams, since a stream that stalls
    /// keeps the engine from everything.
    async fn stop(&mut self) -> Result<(), EngineError> {
        let grace = std::mem::take(&mut self.stop_grace);
        for (signal, limit, keep) in [("SIGTERM", grace, true), ("SIGKILL", KILL, true), ("SIGKILL", KILL, false)] {
            if limit.is_zero() {
                continue;
            }
            if !keep {
                self.let_go();
            }
            // A kill that fails is known by its effect.
            let killed = self.engine.kill(&self.name, signal).await;
            if self.engine.ended(&self.name, limit).await {
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
        self.engine.remove(&self.name).await?;
        self.seen = plan::Container::Absent;
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
    pub(super) async fn end(&mut self) -> Option<Event> {
        let (seen, exit) = self.engine.look(&self.name).await.ok()?;
        let event = match (seen, exit) {
            (plan::Container::Exited, Some(exit)) => Event::Exited(exit),
            (plan::Container::Absent, _) => Event::Removed,
            _ => return None,
        };
        self.over().await;
        self.seen = seen;
        Some(event)
    }

    async fn over(&mut self) {
        self.seen = plan::Container::Exited;
        if let Some(begun) = self.clock.replace(Instant::now()) {
            self.timings.run.get_or_insert((begun.elapsed().as_secs_f64() * 1e6).round() / 1e3);
        }
        if let Some(attached) = &mut self.attached {
            let _ = timeout(LAST_WORDS, attached.drained()).await;
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
