//! What only some settings ask of LiteLLM: a key for each run, and a spend log that can be read.

use std::time::Duration;

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_litellm::Litellm;
use sluice_litellm::spend_log::window::TimeWindow;
use sluice_litellm::spend_log::{RetryMode, SpendLog};
use sluice_litellm::virtual_key::{Grant, try_out};
use sluice_runs::sweep::PROBE_GRAPH;
use sluice_runs::virtual_key::KeyMode;
use sluice_state::layout::Layout;
use sluice_state::store::now_us;

use super::{Check, fail, pass, warn};
use crate::settings::Settings;

/// What the key of a run lives longer than `--timeout`.
const AFTER: Duration = Duration::from_secs(180);

/// Has a virtual key made and deleted, where runs would have one.
pub(super) async fn virtual_key(settings: &Settings, layout: &Layout, key: &RunKey) -> Option<Check> {
    let name = "virtual key";
    let otherwise = match settings.key_mode {
        KeyMode::Master => return None,
        KeyMode::PerRun => fail,
        KeyMode::Auto => warn,
    };
    Some(match made(settings, layout, key).await {
        Ok(()) => pass(name, "LiteLLM makes them, and deletes them".to_owned()),
        Err(why) => otherwise(name, why),
    })
}

async fn made(settings: &Settings, layout: &Layout, key: &RunKey) -> Result<(), String> {
    let (Some(upstream), Some(secret)) = (&settings.upstream, &settings.key) else { return Ok(()) };
    let litellm = Litellm::new(upstream, secret.clone()).map_err(|error| error_chain(&error))?;
    let instance = layout.instance().map_err(|error| error.to_string())?;
    let grant = Grant {
        key,
        instance: &instance,
        account: settings.account.as_str(),
        graph_id: PROBE_GRAPH,
        models: &settings.models,
        max_cost: settings.max_cost,
        lifetime: settings.timeout + AFTER,
        upstream,
    };
    try_out(&litellm, &grant).await.map_err(|error| error_chain(&error))
}

/// Reads the spend log, where there is a key for it alone: then somebody counts on that.
pub(super) async fn spend_log(settings: &Settings) -> Option<Check> {
    let name = "spend log";
    let (upstream, key) = (settings.upstream.as_ref()?, settings.spend_key.as_ref()?);
    let read = async {
        let mut log = SpendLog::of(upstream, key, RetryMode::Once)?;
        log.rows(settings.account.as_str(), &[TimeWindow::around(now_us())]).await
    };
    Some(match read.await {
        Ok(_) => pass(name, "LiteLLM has one, and the key of spend_key_file reads it".to_owned()),
        // Runs work without.
        Err(error) => warn(name, format!("open costs stay open: {}", error_chain(&error))),
    })
}
