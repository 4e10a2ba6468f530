//! A question to the upstream, through a sidecar as a run has one: so the key, TLS and the sidecar are tried where they
//! are used.

use std::path::Path;
use std::time::Duration;

use sluice_contract::RunKey;
use sluice_contract::text::{error_chain, truncate};
use sluice_runs::rundir;
use sluice_runs::sidecar::{Sidecar, SidecarLifetime, SidecarSpec};
use sluice_runs::sweep::PROBE_GRAPH;
use sluice_state::keys::Keys;
use sluice_state::layout::{Layout, RunPaths};
use sluice_state::process::Process;
use sluice_state::store::{RunRow, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{Check, fail, pass, warn};
use crate::settings::Settings;

const WITHIN: Duration = Duration::from_secs(20);

/// Asks for the upstream's models, and for what it is.
pub(super) async fn probe(settings: &Settings, layout: &Layout, proxy: &Path, key: &RunKey) -> Vec<Check> {
    match recorded(settings, layout, proxy, key).await {
        Ok((models, description)) => [key_check(settings.upstream.as_deref().unwrap_or_default(), &models)]
            .into_iter()
            .chain(version_check(&description))
            .collect(),
        Err(reason) => vec![fail("upstream key", reason)],
    }
}

/// Written down like a run while it lasts, so that a sweep knows whose it is, now and after a kill.
async fn recorded(
    settings: &Settings,
    layout: &Layout,
    proxy: &Path,
    key: &RunKey,
) -> Result<(String, String), String> {
    let store = Store::open(&layout.database()).map_err(|error| error_chain(&error))?;
    let entry = RunRow {
        key: key.clone(),
        account: settings.account.to_string(),
        agent: PROBE_GRAPH.to_owned(),
        model: None,
        image: String::new(),
        owner: Process::current().map_err(|error| error.to_string())?,
    };
    store.begin(entry).await.map_err(|error| error_chain(&error))?;
    let paths = layout.run(key);
    let asked = asked(settings, proxy, key, &paths).await;
    // No call of a run: neither its directory nor its log is worth keeping.
    let removed = rundir::remove(&paths.root, None).and_then(|()| match std::fs::remove_file(&paths.audit) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    });
    removed.map_err(|error| format!("cannot clean up {}: {error}", paths.root.display()))?;
    store.forget(key, 0).await.map_err(|error| error_chain(&error))?;
    asked
}

async fn asked(settings: &Settings, proxy: &Path, key: &RunKey, paths: &RunPaths) -> Result<(String, String), String> {
    let (Some(upstream), Some(secret)) = (&settings.upstream, &settings.key) else {
        return Err("neither upstream nor key is set".to_owned());
    };
    let keys = Keys::open(&settings.state_dir).map_err(|error| error_chain(&error))?;
    rundir::create(paths, key, &settings.sidecar_users)
        .map_err(|error| format!("{}: {error}", paths.root.display()))?;
    keys.write_run_key(key, &paths.audit_key).map_err(|error| error_chain(&error))?;
    let order = SidecarSpec {
        program: proxy,
        key,
        paths,
        account: settings.account.as_str(),
        graph_id: PROBE_GRAPH,
        upstream,
        models: &[],
        user: rundir::sidecar_user(paths).map_err(|error| error.to_string())?,
        deadline: Duration::from_secs(60),
        lifetime: SidecarLifetime::WithController,
        flags: &["--allow".to_owned(), "GET /openapi.json".to_owned()],
    };
    let mut sidecar = Sidecar::start(&order, secret).await.map_err(|error| error_chain(&error))?;
    // Both at once: LiteLLM takes a while to describe itself.
    let both = async { tokio::try_join!(get(&paths.socket, "/v1/models"), get(&paths.socket, "/openapi.json")) };
    let answers = timeout(WITHIN, both).await;
    sidecar.drain().await.map_err(|error| error_chain(&error))?;
    let late = |_| format!("the upstream did not answer within {} s", WITHIN.as_secs());
    answers.map_err(late)?.map_err(|error| error.to_string())
}

/// What the answer to `GET /v1/models` says of the key. Where the sidecar answered in the upstream's place, it says why.
fn key_check(upstream: &str, answer: &str) -> Check {
    let name = "upstream key";
    let (head, body) = answer.split_once("\n\n").unwrap_or((answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    match (status, head.lines().find_map(|line| line.strip_prefix("x-sluice-reason: "))) {
        ("200", _) => pass(name, "the upstream takes it".to_owned()),
        (_, Some("upstream_auth")) => fail(name, "the upstream does not take it; correct key_file".to_owned()),
        (_, Some(_)) => fail(name, truncate(body["error"]["message"].as_str().unwrap_or(status))),
        ("404", None) if upstream.trim_end_matches('/').ends_with("/v1") => {
            fail(name, format!("{upstream} has no GET /v1/models; write the upstream without /v1"))
        }
        ("400", None) => fail(
            name,
            "the upstream answered GET /v1/models with status 400, as a LiteLLM without a database does when the key is \
             wrong; correct key_file, or read the upstream's log"
                .to_owned(),
        ),
        ("404", None) => warn(name, "the upstream has no GET /v1/models, so the key could not be tried".to_owned()),
        (status, None) => fail(
            name,
            format!(
                "the upstream answered GET /v1/models with status {status}, so calls may fail; its own log says why"
            ),
        ),
    }
}

/// The name of the check that is there where the upstream is a LiteLLM.
pub(super) const LITELLM: &str = "litellm";

/// Which LiteLLM this is; nothing when it is something else, or does not say.
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

async fn get(socket: &Path, path: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = format!("GET {path} HTTP/1.0\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(64 << 20).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).replace("\r\n", "\n"))
}
