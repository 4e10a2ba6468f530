//! The sidecar's part of a run.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use sluice_contract::text::error_chain;
use sluice_contract::{RunKey, Usd};
use sluice_litellm::prices;
use sluice_litellm::secret::ApiKey;
use sluice_litellm::virtual_key::Grant;
use sluice_state::layout::RunPaths;
use sluice_state::process::Process;
use sluice_state::run::Step;

use super::{RunSpec, lifetime, ms_since};
use crate::host::Host;
use crate::sidecar::{Sidecar, SidecarSpec};
use crate::virtual_key::{self, KeyMode};
use crate::{plan, rundir, upstream};

/// What a sidecar ends with when its log could not be written.
const AUDIT_FAILED: i32 = 74;

pub(super) struct RunSidecar<'a> {
    host: &'a Host,
    paths: RunPaths,
    sidecar: Option<Sidecar>,
    ready_ms: Option<f64>,
    exit: Option<ExitStatus>,
    notes: Vec<String>,
}

impl<'a> RunSidecar<'a> {
    pub(super) fn new(host: &'a Host, paths: RunPaths) -> Self {
        Self { host, paths, sidecar: None, ready_ms: None, exit: None, notes: Vec::new() }
    }

    pub(super) fn adopt(&mut self, recorded: Option<Process>) {
        self.sidecar = Sidecar::adopt(recorded, &self.host.proxy, &self.paths);
    }

    pub(super) fn seen(&self) -> plan::SidecarState {
        if self.sidecar.is_some() { plan::SidecarState::Alive } else { plan::SidecarState::Absent }
    }

    pub(super) fn process(&self) -> Option<&Process> {
        self.sidecar.as_ref().map(Sidecar::process)
    }

    pub(super) fn ready_ms(&self) -> Option<f64> {
        self.ready_ms
    }

    /// Why its log is not whole, by its own account.
    pub(super) fn fault(&self) -> Option<&'static str> {
        (self.exit?.code()? == AUDIT_FAILED).then_some("the sidecar could not write its whole log to the disk")
    }

    /// What somebody should know of its start.
    pub(super) fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    pub(super) async fn perform(&mut self, step: Step, key: &RunKey, asked: Option<&RunSpec>) -> Result<(), String> {
        match step {
            Step::StartSidecar => self.start(key, asked.expect("only a run that was asked for gets a sidecar")).await,
            Step::DrainSidecar => self.drain().await,
            _ => unreachable!("{step:?} is not a sidecar's"),
        }
    }

    /// The flags of the run's cap in dollars, with what calls cost, and a note on that.
    async fn cap(&self, asked: &RunSpec) -> Result<(Vec<String>, Option<String>), String> {
        let (mut flags, mut note) = (Vec::new(), None);
        let mut file = asked.prices.clone();
        if let Some(cap) = asked.max_cost {
            flags.extend(["--max-cost-usd".to_owned(), Usd::from_nanos(cap).to_string()]);
            if file.is_none() {
                let litellm = asked.litellm().map_err(|error| error_chain(&error))?;
                let kept = self.host.layout.prices(&asked.upstream);
                let current = prices::current(&litellm, &kept).await.map_err(|error| error_chain(&error))?;
                (file, note) = (Some(current.file), current.note);
            }
        }
        // Without a cap a list still tells what to reserve of each call.
        flags.extend(file.into_iter().flat_map(|file| ["--prices".to_owned(), file.display().to_string()]));
        Ok((flags, note))
    }

    /// The key that the sidecar gets, and a note if it is not the one that was wished for.
    async fn key(&self, key: &RunKey, asked: &RunSpec) -> Result<(ApiKey, Option<String>), String> {
        if asked.key_mode == KeyMode::Master {
            return Ok((asked.upstream_key.clone(), None));
        }
        // Should nobody come to delete it.
        const MARGIN: Duration = Duration::from_secs(60);
        let grant = Grant {
            key,
            instance: &self.host.instance,
            account: &asked.account,
            graph_id: &asked.graph_id,
            models: &asked.models,
            max_cost: asked.max_cost,
            lifetime: lifetime(asked) + MARGIN,
            upstream: &asked.upstream,
        };
        let litellm = asked.litellm().map_err(|error| error_chain(&error))?;
        match virtual_key::mint(&self.host.store, &litellm, &grant).await {
            Ok(key) => Ok((key, None)),
            Err(error) if asked.key_mode == KeyMode::Auto => {
                let note = format!("the run has the key of key_file, and none of its own: {}", error_chain(&error));
                Ok((asked.upstream_key.clone(), Some(note)))
            }
            Err(error) => Err(error_chain(&error)),
        }
    }

    async fn start(&mut self, key: &RunKey, asked: &RunSpec) -> Result<(), String> {
        // Beside the creation of the container, too.
        let (cap, upstream_key) = tokio::join!(self.cap(asked), self.key(key, asked));
        let ((cap, of_prices), (upstream_key, of_key)) = (cap?, upstream_key?);
        self.notes.extend(of_prices.into_iter().chain(of_key));
        let flags = [cap, asked.sidecar_flags.clone()].concat();
        let user = rundir::sidecar_user(&self.paths).map_err(|error| error.to_string())?;
        self.host.keys.write_run_key(key, &self.paths.audit_key).map_err(|error| error_chain(&error))?;
        let order = SidecarSpec {
            program: &self.host.proxy,
            key,
            paths: &self.paths,
            account: &asked.account,
            graph_id: &asked.graph_id,
            upstream: &asked.upstream,
            models: &asked.models,
            user,
            deadline: lifetime(asked),
            flags: &flags,
        };
        let begun = Instant::now();
        let (sidecar, reached) =
            tokio::join!(Sidecar::start(&order, &upstream_key), upstream::reach(&asked.upstream, user));
        let sidecar = sidecar.map_err(|error| error_chain(&error))?;
        self.ready_ms = Some(ms_since(begun));
        self.sidecar = Some(sidecar);
        reached.map_err(|error| error_chain(&error))
    }

    async fn drain(&mut self) -> Result<(), String> {
        if let Some(sidecar) = &mut self.sidecar {
            self.exit = sidecar.drain().await.map_err(|error| error_chain(&error))?;
        }
        self.sidecar = None;
        Ok(())
    }

    /// Waits until the sidecar is gone. Cancel-safe.
    pub(super) async fn ended(&mut self) {
        match &mut self.sidecar {
            Some(sidecar) => self.exit = sidecar.ended().await,
            None => std::future::pending().await,
        }
        self.sidecar = None;
    }
}
