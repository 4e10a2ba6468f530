//! Checks of the parts of LiteLLM that only some settings need: virtual keys, and the spend log.

use std::time::Duration;

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_litellm::spend_log::window::TimeWindow;
use sluice_litellm::spend_log::{RetryMode, SpendLog};
use sluice_litellm::virtual_key::{Grant, TrialError, try_out};
use sluice_litellm::{Litellm, LitellmError};
use sluice_runs::sweep::PROBE_GRAPH;
use sluice_runs::virtual_key::KeyMode;
use sluice_state::layout::Layout;
use sluice_state::store::now_us;

use super::{Check, fail, pass, warn};
use crate::settings::Settings;

/// Time between the end of `--timeout` and the end of a run's key.
const LIFETIME_MARGIN: Duration = Duration::from_secs(180);

/// A virtual key that could not be made and deleted.
#[derive(Debug, thiserror::Error)]
enum VirtualKeyFault {
    #[error(transparent)]
    Client(#[from] LitellmError),
    #[error(transparent)]
    Instance(#[from] std::io::Error),
    #[error(transparent)]
    Trial(#[from] TrialError),
}

/// Makes and deletes a virtual key, if runs would have one.
pub(super) async fn virtual_key(settings: &Settings, layout: &Layout, key: &RunKey) -> Option<Check> {
    let name = "virtual key";
    let on_error = match settings.litellm.key_mode {
        KeyMode::Master => return None,
        KeyMode::PerRun => fail,
        KeyMode::Auto => warn,
    };
    Some(match try_virtual_key(settings, layout, key).await {
        Ok(()) => pass(name, "LiteLLM makes them, and deletes them".to_owned()),
        Err(error) => on_error(name, error_chain(&error)),
    })
}

async fn try_virtual_key(settings: &Settings, layout: &Layout, key: &RunKey) -> Result<(), VirtualKeyFault> {
    let (Some(upstream), Some(secret)) = (&settings.litellm.upstream, &settings.litellm.key) else {
        return Ok(());
    };
    let litellm = Litellm::new(upstream, secret.clone())?;
    let instance = layout.instance()?;
    let grant = Grant {
        key,
        instance: &instance,
        account: settings.run.account.as_str(),
        graph_id: PROBE_GRAPH,
        models: &settings.run.models,
        max_cost: settings.run.max_cost,
        lifetime: settings.run.timeout + LIFETIME_MARGIN,
        upstream: &upstream.url,
    };
    Ok(try_out(&litellm, &grant).await?)
}

/// Reads the spend log, if a key for it is set: then the operator relies on it.
pub(super) async fn spend_log(settings: &Settings) -> Option<Check> {
    let name = "spend log";
    let (upstream, key) = (settings.litellm.upstream.as_ref()?, settings.litellm.own_spend_key.as_ref()?);
    let read = async {
        let mut log = SpendLog::of(upstream, key, RetryMode::Once)?;
        log.rows(settings.run.account.as_str(), &[TimeWindow::around(now_us())]).await
    };
    Some(match read.await {
        Ok(_) => pass(name, "LiteLLM has one, and the key of spend_key_file reads it".to_owned()),
        // Runs work without it.
        Err(error) => warn(name, format!("open costs stay open: {}", error_chain(&error))),
    })
}
