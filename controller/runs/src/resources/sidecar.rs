//! The sidecar of a run: its flags, its key, its process.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Instant;

use sluice_contract::exit::SidecarExit;
use sluice_contract::text::error_chain;
use sluice_contract::{RunKey, Usd};
use sluice_litellm::prices;
use sluice_litellm::secret::ApiKey;
use sluice_litellm::virtual_key::Grant;
use sluice_state::layout::RunPaths;
use sluice_state::process::Process;
use sluice_state::run::RunStep;

use super::audit::SidecarHistory;
use crate::host::Host;
use crate::plan::SidecarPhase;
use crate::sidecar::{RelayMode, Sidecar, SidecarSpec};
use crate::spec::RunSpec;
use crate::step_error::StepError;
use crate::timings::ms_since;
use crate::virtual_key::{self, AFTER_RUN, KeyMode};
use crate::{rundir, upstream};

/// The sidecar of one run.
#[derive(Debug)]
pub(super) struct RunSidecar {
    host: Arc<Host>,
    paths: RunPaths,
    sidecar: Option<Sidecar>,
    ready_ms: Option<f64>,
    exit: Option<ExitStatus>,
    notes: Vec<String>,
}

impl RunSidecar {
    pub(super) fn new(host: Arc<Host>, paths: RunPaths) -> Self {
        Self { host, paths, sidecar: None, ready_ms: None, exit: None, notes: Vec::new() }
    }

    pub(super) fn adopt(&mut self, recorded: Option<Process>) {
        self.sidecar = Sidecar::adopt(recorded, &self.host.proxy, &self.paths);
    }

    pub(super) fn state(&self) -> SidecarPhase {
        if self.sidecar.is_some() { SidecarPhase::Alive } else { SidecarPhase::Absent }
    }

    pub(super) fn process(&self) -> Option<&Process> {
        self.sidecar.as_ref().map(Sidecar::process)
    }

    pub(super) fn ready_ms(&self) -> Option<f64> {
        self.ready_ms
    }

    pub(super) fn history(&self, spec: Option<&RunSpec>) -> SidecarHistory {
        match (self.ready_ms, spec) {
            (Some(_), _) => SidecarHistory::Ready,
            (None, Some(_)) => SidecarHistory::NeverReady,
            (None, None) => SidecarHistory::Unknown,
        }
    }

    /// Returns why the audit log is incomplete, by the sidecar's exit code.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let is_incomplete = SidecarExit::is_audit_failure(self.exit?.code()?);
        is_incomplete.then_some("the sidecar could not write its whole log to the disk")
    }

    /// Returns the remarks about the start of the sidecar.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    pub(super) async fn perform(
        &mut self,
        step: RunStep,
        key: &RunKey,
        spec: Option<&RunSpec>,
    ) -> Result<(), StepError> {
        match step {
            RunStep::StartSidecar => {
                self.start(key, spec.expect("only a run with a specification gets a sidecar")).await
            }
            RunStep::DrainSidecar => self.drain().await,
            _ => unreachable!("{step:?} does not concern the sidecar"),
        }
    }

    /// Returns the flags of the cap in dollars and of the price list, and a note on the prices.
    async fn price_flags(&self, spec: &RunSpec) -> Result<(Vec<String>, Option<String>), StepError> {
        let (mut flags, mut note) = (Vec::new(), None);
        let mut file = spec.prices.clone();
        if let Some(cap) = spec.max_cost {
            flags.extend(["--max-cost-usd".to_owned(), Usd::from_nanos(cap).to_string()]);
            if file.is_none() {
                let kept = self.host.layout.prices(&spec.upstream.url);
                let current = prices::current(&spec.litellm()?, &kept).await?;
                (file, note) = (Some(current.file), current.note);
            }
        }
        // Even without a cap, prices decide how much to reserve for each call.
        flags.extend(file.into_iter().flat_map(|file| ["--prices".to_owned(), file.display().to_string()]));
        Ok((flags, note))
    }

    /// Returns the key that the sidecar gets, and a note if it is not the preferred one.
    async fn upstream_key(&self, key: &RunKey, spec: &RunSpec) -> Result<(ApiKey, Option<String>), StepError> {
        if spec.key_mode == KeyMode::Master {
            return Ok((spec.upstream_key.clone(), None));
        }
        let grant = Grant {
            key,
            instance: &self.host.instance,
            account: &spec.account,
            graph_id: &spec.graph_id,
            models: &spec.models,
            max_cost: spec.max_cost,
            lifetime: spec.timeout + AFTER_RUN,
            upstream: &spec.upstream.url,
        };
        match virtual_key::mint(&self.host.store, &spec.litellm()?, &grant).await {
            Ok(key) => Ok((key, None)),
            Err(error) if spec.key_mode == KeyMode::Auto => {
                let note = format!("the run has the key of key_file, and none of its own: {}", error_chain(&error));
                Ok((spec.upstream_key.clone(), Some(note)))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn start(&mut self, key: &RunKey, spec: &RunSpec) -> Result<(), StepError> {
        let (prices, upstream_key) = tokio::join!(self.price_flags(spec), self.upstream_key(key, spec));
        let ((price_flags, price_note), (upstream_key, key_note)) = (prices?, upstream_key?);
        self.notes.extend(price_note.into_iter().chain(key_note));
        let flags = [price_flags, self.with_metadata_file(&spec.sidecar_flags)?].concat();
        let user = rundir::sidecar_user(&self.paths).map_err(StepError::SidecarUser)?;
        self.host.keys.write_run_key(key, &self.paths.audit_key)?;
        let relay = match spec.daemon.as_ref().and_then(|daemon| daemon.relay_token.as_ref()) {
            Some(token) => {
                let failed = |source| StepError::Directory { path: self.paths.relay_token.clone(), source };
                rundir::write_relay_token(&self.paths, token).map_err(failed)?;
                RelayMode::ToController
            }
            // The token was written with the clone.
            None if spec.clone.is_some() => RelayMode::ToController,
            None => RelayMode::Off,
        };
        let sidecar = SidecarSpec {
            program: &self.host.proxy,
            key,
            paths: &self.paths,
            account: &spec.account,
            graph_id: &spec.graph_id,
            upstream: &spec.upstream,
            models: &spec.models,
            sandbox_uid: rundir::sandbox_uid(&self.paths).map_err(StepError::SidecarUser)?,
            user,
            relay,
            deadline: spec.lifetime(),
            lifetime: spec.sidecar_lifetime(),
            flags: &flags,
        };
        let begun = Instant::now();
        let (sidecar, reached) =
            tokio::join!(Sidecar::start(&sidecar, &upstream_key), upstream::reach(&spec.upstream.url, user));
        let sidecar = sidecar?;
        self.ready_ms = Some(ms_since(begun));
        self.sidecar = Some(sidecar);
        Ok(reached?)
    }

    /// Returns the flags with the metadata of calls in a file.
    fn with_metadata_file(&self, flags: &[String]) -> Result<Vec<String>, StepError> {
        let (mut flags, metadata) = without_metadata(flags);
        if let Some(text) = metadata {
            let failed = |source| StepError::Directory { path: self.paths.conf.clone(), source };
            let path = rundir::write_metadata(&self.paths, text).map_err(failed)?;
            flags.extend(["--metadata-file".to_owned(), path.display().to_string()]);
        }
        Ok(flags)
    }

    async fn drain(&mut self) -> Result<(), StepError> {
        if let Some(sidecar) = &mut self.sidecar {
            self.exit = sidecar.drain().await?;
        }
        self.sidecar = None;
        Ok(())
    }

    /// Waits until the sidecar has ended. Cancel-safe.
    pub(super) async fn ended(&mut self) {
        match &mut self.sidecar {
            Some(sidecar) => self.exit = sidecar.ended().await,
            None => std::future::pending().await,
        }
        self.sidecar = None;
    }
}

/// Returns the flags without `--metadata` and its value, in one word or in two, and the value.
fn without_metadata(flags: &[String]) -> (Vec<String>, Option<&str>) {
    const NAME: &str = "--metadata";
    let (mut others, mut metadata) = (Vec::with_capacity(flags.len()), None);
    let mut words = flags.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix(NAME) {
            Some("") => metadata = words.next().map(String::as_str),
            Some(rest) if rest.starts_with('=') => metadata = Some(&rest[1..]),
            _ => others.push(word.clone()),
        }
    }
    (others, metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_no_part_of_the_command_line() {
        let flags = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        for words in [&["--rate", "5/s", "--metadata", "{}"][..], &["--metadata={}", "--rate", "5/s"]] {
            assert_eq!(without_metadata(&flags(words)), (flags(&["--rate", "5/s"]), Some("{}")));
        }
        assert_eq!(without_metadata(&flags(&["--metadata-file", "/f"])), (flags(&["--metadata-file", "/f"]), None));
    }
}
