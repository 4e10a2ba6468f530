//! A probe of the upstream through a sidecar, as in a run. It checks the key, TLS and the sidecar together.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_contract::RunKey;
use sluice_contract::text::{error_chain, truncate};
use sluice_contract::upstream_key::KeyFault;
use sluice_litellm::Litellm;
use sluice_runs::rundir;
use sluice_runs::sidecar::{RelayMode, Sidecar, SidecarError, SidecarLifetime, SidecarSpec};
use sluice_runs::sweep::PROBE_GRAPH;
use sluice_state::keys::{KeyError, Keys};
use sluice_state::layout::Layout;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::key_answer::{key_check, unlisted_check};
use super::listed_models::ListedModels;
use super::{Check, CheckStatus, fail, pass, warn};
use crate::settings::Settings;

/// Maximum time of the probe.
const WITHIN: Duration = Duration::from_secs(20);

/// A probe without an answer of the upstream.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("neither upstream nor key is set")]
    NotSet,
    #[error("{path}: {1}", path = .0.display())]
    Directory(PathBuf, io::Error),
    #[error("{0}")]
    User(io::Error),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("the key of key_file (or SLUICE_KEY) {0}")]
    UpstreamKey(#[from] KeyFault),
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
    #[error("{0}")]
    Socket(io::Error),
    #[error("the upstream did not answer within {} s", WITHIN.as_secs())]
    Timeout,
}

/// Requests the upstream's models and its description.
pub(super) async fn probe(settings: &Settings, layout: &Layout, proxy: &Path, key: &RunKey) -> Vec<Check> {
    match send(settings, layout, proxy, key).await {
        Ok((models, description)) => {
            let upstream = settings.litellm.upstream.as_ref().map_or("", |upstream| &upstream.url);
            let key = key_check(upstream, &models);
            let key = match key.status {
                CheckStatus::Pass => unlisted_models(settings, &models).await.unwrap_or(key),
                _ => key,
            };
            [key].into_iter().chain(version_check(&description)).collect()
        }
        Err(error) => vec![fail("upstream key", error_chain(&error))],
    }
}

/// Probes the upstream in a state directory of its own. A killed probe leaves no process: its sidecar ends with it.
async fn send(
    settings: &Settings,
    layout: &Layout,
    proxy: &Path,
    key: &RunKey,
) -> Result<(String, String), ProbeError> {
    let (Some(upstream), Some(secret)) = (&settings.litellm.upstream, &settings.litellm.key) else {
        return Err(ProbeError::NotSet);
    };
    secret.check()?;
    let paths = &layout.run(key);
    let keys = Keys::open(layout.state())?;
    rundir::create(paths, key, &settings.host.sidecar_users, None)
        .map_err(|error| ProbeError::Directory(paths.root.clone(), error))?;
    keys.write_run_key(key, &paths.audit_key)?;
    let spec = SidecarSpec {
        program: proxy,
        key,
        paths,
        account: settings.run.account.as_str(),
        graph_id: PROBE_GRAPH,
        upstream,
        models: &[],
        sandbox_uid: rundir::SANDBOX_UID,
        user: rundir::sidecar_user(paths).map_err(ProbeError::User)?,
        deadline: Duration::from_secs(60),
        relay: RelayMode::Off,
        lifetime: SidecarLifetime::WithController,
        flags: &["--allow".to_owned(), "GET /openapi.json".to_owned()],
    };
    let mut sidecar = Sidecar::start(&spec, secret).await?;
    // Both at once: LiteLLM needs some time for its description.
    let both = async { tokio::try_join!(get(&paths.socket, "/v1/models"), get(&paths.socket, "/openapi.json")) };
    let answers = timeout(WITHIN, both).await;
    sidecar.drain().await?;
    answers.map_err(|_| ProbeError::Timeout)?.map_err(ProbeError::Socket)
}

/// Path of the models of a key, with LiteLLM's wildcards among them.
const MODELS_AND_WILDCARDS: &str = "/v1/models?return_wildcard_routes=true";

/// Returns the check of a key that works, if the upstream does not list all configured models for it. `answer` is the
/// sidecar's answer to `GET /v1/models`.
async fn unlisted_models(settings: &Settings, answer: &str) -> Option<Check> {
    let (upstream, key) = (settings.litellm.upstream.as_ref()?, settings.litellm.key.as_ref()?);
    let unlisted = |body: &str| {
        let missing = ListedModels::read(body)?.missing(&settings.configured_models);
        (!missing.is_empty()).then_some(missing)
    };
    let (_, body) = answer.split_once("\n\n")?;
    unlisted(body)?;
    // LiteLLM leaves out its wildcards unless a query asks for them, and a sidecar passes no query on.
    let body = Litellm::new(upstream, key.clone()).ok()?.get(MODELS_AND_WILDCARDS).await.ok()?;
    let unlisted = unlisted(&String::from_utf8_lossy(&body))?;
    Some(unlisted_check(&upstream.url, &unlisted))
}

/// Name of the check that exists only if the upstream is a LiteLLM.
pub(super) const LITELLM: &str = "litellm";

/// Returns the check of LiteLLM's version; none if the upstream is not a LiteLLM, or does not state it.
fn version_check(answer: &str) -> Option<Check> {
    let (_, body) = answer.split_once("\n\n")?;
    let description: serde_json::Value = serde_json::from_str(body).ok()?;
    let info = &description["info"];
    let version = info["version"].as_str().filter(|_| info["title"].as_str().is_some_and(|t| t.contains("LiteLLM")))?;
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
    let mut parts = version.split('.');
    Some(if (number(parts.next()), number(parts.next())) < (1, 106) {
        warn(LITELLM, format!("{} has holes that a sidecar cannot close; use 1.106 or newer", truncate(version)))
    } else {
        pass(LITELLM, truncate(version))
    })
}

async fn get(socket: &Path, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(64 << 20).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).replace("\r\n", "\n"))
}
