//! One run in the world: what exists of it, and how each step is done to it.
//!
//! Two parts that never wait for each other, the sidecar and the sandbox; steps of both go side by side.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use sluice_contract::text::error_chain;
use sluice_contract::{RunKey, Trust, Witness, reader};
use sluice_litellm::client::{Litellm, LitellmError};
use sluice_litellm::secret::ApiKey;
use sluice_state::layout::RunPaths;
use sluice_state::ledger::{self, AuditSource, ParsedAudit, Writer};
use sluice_state::process::Process;
use sluice_state::receipt::{self, RunTotals};
use sluice_state::run::{RunEvent, Step, StepFailure};
use sluice_state::witness::{self, AuditTail};

use crate::blueprint::{self, Limits, Volume};
use crate::engine::Stdio;
use crate::host::Host;
use crate::input::Stdin;
use crate::output::Captured;
use crate::plan::ObservedState;
use crate::virtual_key::KeyMode;
use crate::{removal, rundir, workspace};

mod sandbox;
mod side;

use sandbox::Sandbox;
use side::RunSidecar;

/// What was asked for: all that the way to a running container needs.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "named like the flags")]
pub struct RunSpec {
    pub account: String,
    pub graph_id: String,
    /// The models that may be named; none for any one.
    pub models: Vec<String>,
    pub image: String,
    pub argv: Vec<String>,
    /// Where the program starts.
    pub workdir: &'static str,
    pub env: BTreeMap<String, String>,
    pub volumes: Vec<Volume>,
    pub stdin: Stdin,
    /// Whether the program has our terminal.
    pub tty: bool,
    pub limits: Limits,
    pub timeout: Duration,
    pub seccomp: String,
    /// An OpenAI messages array, for the workspace.
    pub messages: Option<Vec<u8>>,
    pub upstream: String,
    pub upstream_key: ApiKey,
    pub key_mode: KeyMode,
    /// Nano-USD.
    pub max_cost: Option<i64>,
    /// Nano-USD to hold of the account's budget, if it has one, where there is no such cap.
    pub hold: i64,
    /// A list of prices, in place of LiteLLM's.
    pub prices: Option<PathBuf>,
    pub sidecar_flags: Vec<String>,
}

impl RunSpec {
    /// The LiteLLM behind the upstream, to be asked with the operator's key.
    ///
    /// # Errors
    /// When the upstream is no address.
    pub fn litellm(&self) -> Result<Litellm, LitellmError> {
        // A start that waits cannot be cancelled meanwhile.
        const WITHIN: Duration = Duration::from_secs(5);
        Ok(Litellm::new(&self.upstream, self.upstream_key.clone())?.within(WITHIN))
    }
}

/// Where the time of a run went, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Timings {
    /// From its spawn to its answer.
    pub sidecar_ready: Option<f64>,
    /// Beside it.
    pub container_create: Option<f64>,
    /// From attaching to the program's start.
    pub container_start: Option<f64>,
    /// From then to its end.
    pub run: Option<f64>,
    /// From then until nothing was left.
    pub teardown: Option<f64>,
}

/// One run, as far as it exists.
pub struct RunResources<'a> {
    host: &'a Host,
    key: &'a RunKey,
    paths: RunPaths,
    asked: Option<&'a RunSpec>,
    side: RunSidecar<'a>,
    sandbox: Sandbox<'a>,
    /// Whether what lies at the run's paths is this run's.
    is_ours: bool,
    tail: AuditTail,
    witnesses: Vec<Witness>,
    tally: RunTotals,
    reading: Option<ParsedAudit>,
}

/// What is known of a run when all is over.
pub struct RunEnd {
    /// What it cost.
    pub tally: RunTotals,
    /// What it wrote.
    pub written: (Captured, Captured),
    /// Where its time went.
    pub timings: Timings,
    /// What the ledger is to have of it; none if its audit file could not be read.
    pub reading: Option<ParsedAudit>,
    /// What somebody should know of it.
    pub notes: Vec<String>,
}

/// What woke a run that was waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WakeCause {
    /// Something happened.
    By(RunEvent),
    /// Nothing that matters.
    ByNothing,
}

impl<'a> RunResources<'a> {
    /// A run of which nothing exists yet.
    #[must_use]
    pub fn new(host: &'a Host, key: &'a RunKey, asked: &'a RunSpec, output: Stdio, stop_grace: Duration) -> Self {
        Self::of(host, key, Some(asked), output, stop_grace)
    }

    /// A run that another controller has begun: what exists of it is looked up.
    ///
    /// # Errors
    /// Of the engine.
    pub async fn adopt(host: &'a Host, key: &'a RunKey, sidecar: Option<Process>) -> Result<Self, String> {
        let mut scene =
            Self::of(host, key, None, Stdio { stdin: Stdin::Closed, tty: false, max: 0, live: None }, Duration::ZERO);
        scene.is_ours = true;
        scene.side.adopt(sidecar);
        scene.witnesses = host.store.witnesses(key).await.map_err(|error| error_chain(&error))?;
        scene.sandbox.look().await?;
        Ok(scene)
    }

    fn of(host: &'a Host, key: &'a RunKey, asked: Option<&'a RunSpec>, output: Stdio, stop_grace: Duration) -> Self {
        let paths = host.layout.run(key);
        Self {
            side: RunSidecar::new(host, paths.clone()),
            sandbox: Sandbox::new(host, key, output, stop_grace),
            host,
            key,
            paths,
            asked,
            is_ours: false,
            tail: AuditTail::default(),
            witnesses: Vec::new(),
            tally: RunTotals::default(),
            reading: None,
        }
    }

    /// What is new in the audit file, for the database: its writer cannot reach that.
    pub fn witness(&mut self) -> Option<Witness> {
        if !self.is_ours {
            return None;
        }
        // A file that cannot be read now is judged when the run is over.
        let seen = self.tail.look(&self.paths.audit).ok().flatten()?;
        self.witnesses.push(seen);
        Some(seen)
    }

    /// What exists now.
    #[must_use]
    pub fn seen(&self) -> ObservedState {
        ObservedState {
            directories: self.paths.root.exists(),
            sidecar: self.side.seen(),
            container: self.sandbox.seen(),
        }
    }

    /// Which process the sidecar is.
    #[must_use]
    pub fn sidecar(&self) -> Option<&Process> {
        self.side.process()
    }

    /// Does these steps, side by side, and says what came of each.
    pub async fn perform(&mut self, steps: &[Step]) -> Vec<RunEvent> {
        let mut events: Vec<_> = steps
            .iter()
            .filter_map(|step| Some((*step, self.own(*step)?)))
            .map(|(step, done)| event(step, done))
            .collect();
        let (asked, key) = (self.asked, self.key);
        let of_side = steps.iter().copied().find(|step| matches!(step, Step::StartSidecar | Step::DrainSidecar));
        let of_sandbox = steps.iter().copied().find(|step| {
            matches!(step, Step::CreateContainer | Step::StartContainer | Step::StopContainer | Step::RemoveContainer)
        });
        let (side, sandbox) = tokio::join!(
            async {
                let step = of_side?;
                Some(event(step, self.side.perform(step, key, asked).await))
            },
            async {
                let step = of_sandbox?;
                let order = || asked.map(|asked| order(self.host, key, &self.paths, asked));
                Some(event(step, self.sandbox.perform(step, order).await))
            }
        );
        events.extend(side.into_iter().chain(sandbox));
        events
    }

    /// Waits for the container or the sidecar to end, but not longer than this.
    pub async fn stirred(&mut self, limit: Duration) -> WakeCause {
        // The engine's notice of an end can be missed; a look now and then costs nothing.
        const LOOK_EVERY: Duration = Duration::from_secs(1);
        tokio::select! {
            // All three are cancel-safe: what is not taken here is found by the next look.
            () = self.sandbox.stirred() => {}
            () = self.side.ended() => return WakeCause::By(RunEvent::SidecarEnded),
            () = tokio::time::sleep(limit.min(LOOK_EVERY)) => {}
        }
        self.sandbox.end().await.map_or(WakeCause::ByNothing, WakeCause::By)
    }

    /// Files: quick, and without waiting.
    fn own(&mut self, step: Step) -> Option<Result<(), String>> {
        match step {
            Step::Prepare => Some(self.prepare()),
            Step::Tally => {
                self.tally();
                Some(Ok(()))
            }
            Step::RemoveDirectories => Some(
                removal::set_aside(&self.paths.root).map_err(|error| format!("{}: {error}", self.paths.root.display())),
            ),
            Step::Close => Some(Ok(())),
            _ => None,
        }
    }

    fn prepare(&mut self) -> Result<(), String> {
        let asked = self.asked.expect("only a run that was asked for is prepared");
        let failed = |error: io::Error| format!("{}: {error}", self.paths.root.display());
        self.paths.check().map_err(|error| error.to_string())?;
        if self.paths.audit.exists() {
            let path = self.paths.audit.display();
            return Err(format!("there is an audit file {path} already; a run id is used once"));
        }
        rundir::create(&self.paths, self.key, &self.host.sidecar_users).map_err(failed)?;
        self.is_ours = true;
        if let Some(messages) = &asked.messages {
            workspace::write(&self.paths.work, ".sluice", "messages.json", messages).map_err(failed)?;
        }
        for volume in &asked.volumes {
            // The engine would make them as root.
            let inside = volume.target.strip_prefix(blueprint::WORKSPACE).map(|path| path.trim_matches('/'));
            let Some(name) = inside.filter(|name| !name.is_empty()) else { continue };
            if volume.source.is_file() {
                let (directory, name) = name.rsplit_once('/').unwrap_or(("", name));
                workspace::write(&self.paths.work, directory, name, b"").map_err(failed)?;
            } else {
                workspace::make_directory(&self.paths.work, name).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn tally(&mut self) {
        if !self.is_ours {
            return;
        }
        let evidence = || -> Result<_, String> {
            let keys = self.host.keys.public().map_err(|error| error_chain(&error))?;
            let failed = |error| format!("{}: {error}", self.paths.audit.display());
            Ok((keys, read_audit(&self.paths.audit).map_err(failed)?.map(Arc::from)))
        };
        self.tally = match evidence() {
            Ok((keys, bytes)) => {
                let trust = Trust { keys: &keys, seen: &self.witnesses };
                // A sidecar that could not write its first line has carried nothing, and has said why.
                let began = self.asked.is_none() || self.side.ready_ms().is_some();
                let bytes = bytes.filter(|bytes: &Arc<[u8]>| began || bytes.contains(&b'\n'));
                let gone = bytes.is_none() && self.side.ready_ms().is_some();
                let source = bytes.map_or(AuditSource::Absent, AuditSource::Bytes);
                let mut reading = ledger::read(self.key, source, &trust, Writer::Gone).expect("memory does not fail");
                reading.fault = reading.fault.or(gone.then(|| "the audit file is gone".to_owned()));
                receipt::tally(self.reading.insert(reading))
            }
            Err(reason) => RunTotals {
                fault: Some(format!("the audit file cannot be held against anything: {reason}")),
                ..RunTotals::default()
            },
        };
        if self.tally.fault.is_none() {
            self.tally.fault = self.side.fault().map(str::to_owned);
        }
    }

    /// Whether the engine kept some of the program's output from us.
    #[must_use]
    pub fn lost_output(&self) -> bool {
        self.sandbox.lost_output()
    }

    /// Whether the program was short of memory at the end.
    #[must_use]
    pub fn is_short_of_memory(&self) -> bool {
        self.sandbox.is_short_of_memory()
    }

    /// What the audit file says, once it was read.
    #[must_use]
    pub fn told(&self) -> &RunTotals {
        &self.tally
    }

    /// What is known when all is over.
    #[must_use]
    pub fn finish(mut self) -> RunEnd {
        let notes = self.side.notes();
        let timings = Timings { sidecar_ready: self.side.ready_ms(), ..self.sandbox.timings() };
        RunEnd { tally: self.tally, written: self.sandbox.finish(), timings, reading: self.reading, notes }
    }
}

/// The whole file, if there is one; up to a line that is too long to be a record.
fn read_audit(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match witness::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    reader::read_file(io::BufReader::new(file)).map(Some)
}

fn order<'a>(host: &'a Host, key: &'a RunKey, paths: &'a RunPaths, asked: &'a RunSpec) -> blueprint::Blueprint {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    blueprint::blueprint(&blueprint::ContainerSpec {
        key,
        instance: &host.instance,
        image: &asked.image,
        argv: &asked.argv,
        workdir: asked.workdir,
        env: &asked.env,
        model: asked.models.first().map(String::as_str),
        volumes: &asked.volumes,
        stdin: asked.stdin,
        tty: asked.tty,
        limits: &asked.limits,
        paths,
        seccomp: &asked.seccomp,
        expires: (now + lifetime(asked)).as_secs(),
    })
}

/// How long anything of a run may live, should nobody come to end it.
fn lifetime(asked: &RunSpec) -> Duration {
    asked.timeout + Duration::from_secs(120)
}

fn event(step: Step, done: Result<(), String>) -> RunEvent {
    match done {
        Ok(()) => RunEvent::Done(step),
        Err(message) => RunEvent::Failed(StepFailure { step, message }),
    }
}

fn ms_since(start: Instant) -> f64 {
    // Thousandths are more than the clock is good for.
    (start.elapsed().as_secs_f64() * 1e6).round() / 1e3
}
