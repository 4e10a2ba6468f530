//! The sidecar's part of a run.

use std::process::ExitStatus;
use std::time::Instant;

use sluice_contract::Usd;

use crate::host::Host;
use crate::layout::{RunKey, RunPaths};
use crate::litellm::Litellm;
use crate::plan;
use crate::prices;
use crate::process::Process;
use crate::run::Step;
use crate::sidecar::{Order, Sidecar};
use crate::upstream;

use super::{Asked, chain, lifetime, ms_since};

/// What a sidecar ends with when its log could not be written.
const AUDIT_FAILED: i32 = 74;

pub(super) struct Side<'a> {
    host: &'a Host,
    paths: RunPaths,
    sidecar: Option<Sidecar>,
    ready_ms: Option<f64>,
    exit: Option<ExitStatus>,
    notes: Vec<String>,
}

impl<'a> Side<'a> {
    pub(super) fn new(host: &'a Host, paths: RunPaths) -> Self {
        Self { host, paths, sidecar: None, ready_ms: None, exit: None, notes: Vec::new() }
    }

    pub(super) fn adopt(&mut self, recorded: Option<Process>) {
        self.sidecar = Sidecar::adopt(recorded, &self.host.proxy, &self.paths);
    }

    pub(super) fn seen(&self) -> plan::Sidecar {
        if self.sidecar.is_some() { plan::Sidecar::Alive } else { plan::Sidecar::Absent }
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

    pub(super) async fn perform(&mut self, step: Step, key: &RunKey, asked: Option<&Asked>) -> Result<(), String> {
        match step {
            Step::StartSidecar => self.start(key, asked.expect("only a run that was asked for gets a sidecar")).await,
            Step::DrainSidecar => self.drain().await,
            _ => unreachable!("{step:?} is not a sidecar's"),
        }
    }

    /// The flags of the run's cap in dollars, with what calls cost.
    async fn cap(&mut self, asked: &Asked) -> Result<Vec<String>, String> {
        let mut flags = Vec::new();
        let mut prices = asked.prices.clone();
        if let Some(cap) = asked.max_cost {
            flags.extend(["--max-cost-usd".to_owned(), Usd::from_nanos(cap).to_string()]);
            if prices.is_none() {
                let litellm = Litellm::new(&asked.upstream, asked.upstream_key.clone());
                let litellm = litellm.map_err(|error| chain(&error))?;
                let file = self.host.layout.prices(&asked.upstream);
                let current = prices::current(&litellm, &file).await.map_err(|error| chain(&error))?;
                self.notes.extend(current.note);
                prices = Some(current.file);
            }
        }
        // Without a cap a list still tells what to reserve of each call.
        flags.extend(prices.into_iter().flat_map(|file| ["--prices".to_owned(), file.display().to_string()]));
        Ok(flags)
    }

    async fn start(&mut self, key: &RunKey, asked: &Asked) -> Result<(), String> {
        let flags = [self.cap(asked).await?, asked.sidecar_flags.clone()].concat();
        let order = Order {
            program: &self.host.proxy,
            key,
            paths: &self.paths,
            audit_key: &self.host.keys.signing(),
            account: &asked.account,
            graph_id: &asked.graph_id,
            upstream: &asked.upstream,
            model: asked.model.as_deref(),
            deadline: lifetime(asked),
            flags: &flags,
        };
        let begun = Instant::now();
        let (sidecar, reached) =
            tokio::join!(Sidecar::start(&order, &asked.upstream_key), upstream::reach(&asked.upstream));
        let sidecar = sidecar.map_err(|error| chain(&error))?;
        self.ready_ms = Some(ms_since(begun));
        self.sidecar = Some(sidecar);
        reached.map_err(|error| chain(&error))
    }

    async fn drain(&mut self) -> Result<(), String> {
        if let Some(sidecar) = &mut self.sidecar {
            self.exit = sidecar.drain().await.map_err(|error| chain(&error))?;
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
