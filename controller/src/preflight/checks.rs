//! The questions, in the order in which one answer needs another.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{Check, Status, unfit};
use crate::engine::Engine;
use crate::host;
use crate::layout::{Layout, RunKey};
use crate::rundir;
use crate::scene::chain;
use crate::settings::{Settings, missing};
use crate::sidecar::{Order, Sidecar};
use crate::upstream;

/// Looks at everything that a run needs.
pub async fn preflight(settings: &Settings) -> Vec<Check> {
    let mut checks = vec![user()];
    let layout = Layout::open(&settings.state_dir);
    checks.push(match &layout {
        Ok(layout) => paths(layout),
        Err(error) => fail("state directory", chain(error)),
    });
    let proxy = host::proxy(settings.proxy.as_deref());
    checks.push(match &proxy {
        Ok(path) => pass("sidecar program", path.display().to_string()),
        Err(error) => fail("sidecar program", chain(error)),
    });
    engine(settings, &mut checks).await;
    checks.push(match &settings.upstream {
        None => fail("upstream", missing("upstream").to_string()),
        Some(url) => match upstream::reach(url).await {
            Ok(()) => pass("upstream", format!("{url} answers")),
            Err(error) => fail("upstream", chain(&error)),
        },
    });
    let works = |checks: &[Check]| checks.iter().all(|check| check.status == Status::Pass);
    match (layout, proxy, &settings.key) {
        (_, _, None) => checks.push(fail("upstream key", missing("key_file").to_string())),
        (Ok(layout), Ok(proxy), Some(_))
            if works(&checks[..3]) && checks.last().is_some_and(|c| c.status == Status::Pass) =>
        {
            probe(settings, &layout, &proxy, &mut checks).await;
        }
        _ => checks.push(Check {
            name: "upstream key",
            status: Status::Skipped,
            detail: "needs all of the above".into(),
        }),
    }
    checks
}

fn user() -> Check {
    if nix::unistd::Uid::effective().is_root() {
        pass("user", "root".to_owned())
    } else {
        fail("user", host::HostError::NotRoot.to_string())
    }
}

fn paths(layout: &Layout) -> Check {
    // As long as the names that we make; a longer one that somebody asks for is checked when it comes.
    let key: RunKey = "r00000000-000000-00000000.0".parse().expect("a key");
    match layout.run(&key).check() {
        Ok(()) => pass("state directory", layout.state().display().to_string()),
        Err(error) => fail("state directory", chain(&error)),
    }
}

async fn engine(settings: &Settings, checks: &mut Vec<Check>) {
    let engine = match Engine::connect(&settings.docker_host).await {
        Ok(engine) => engine,
        Err(error) => {
            checks.push(fail("engine", chain(&error)));
            for name in ["limits", "image"] {
                checks.push(Check { name, status: Status::Skipped, detail: "needs the engine".into() });
            }
            return;
        }
    };
    match engine.facts().await {
        Ok(facts) => {
            checks.push(pass("engine", format!("Docker {} at {}", facts.version, settings.docker_host)));
            checks.push(match unfit(&facts) {
                None => {
                    pass("limits", format!("seccomp, cgroup v{}, memory, processors, processes", facts.cgroup_version))
                }
                Some(reason) => fail("limits", reason),
            });
        }
        Err(error) => checks.push(fail("engine", chain(&error))),
    }
    checks.push(match engine.image(&settings.image).await {
        Ok(()) => pass("image", settings.image.clone()),
        Err(error) => fail("image", chain(&error)),
    });
}

/// Asks the upstream for its models, through a sidecar as a run has one: so the key, TLS and the sidecar are tried
/// where they are used.
async fn probe(settings: &Settings, layout: &Layout, proxy: &Path, checks: &mut Vec<Check>) {
    let (Some(url), Some(secret)) = (&settings.upstream, &settings.key) else { return };
    let id = uuid::Uuid::new_v4().simple().to_string();
    let key: RunKey = format!("preflight-{}.0", &id[..8]).parse().expect("a key");
    let paths = layout.run(&key);
    let asked = async {
        rundir::create(&paths).map_err(|error| error.to_string())?;
        let order = Order {
            program: proxy,
            key: &key,
            paths: &paths,
            account: settings.account.as_str(),
            graph_id: "sluice:preflight",
            upstream: url,
            model: None,
            deadline: Duration::from_secs(60),
            flags: &["--allow".to_owned(), "GET /openapi.json".to_owned()],
        };
        let mut sidecar = Sidecar::start(&order, secret).await.map_err(|error| chain(&error))?;
        let answers = tokio::time::timeout(Duration::from_secs(20), async {
            // Both at once: LiteLLM takes a while to describe itself.
            tokio::try_join!(get(&paths.socket, "/v1/models"), get(&paths.socket, "/openapi.json"))
        });
        let answers = answers.await;
        sidecar.drain().await.map_err(|error| chain(&error))?;
        answers.map_err(|_| "the upstream did not answer within 20 s".to_owned())?.map_err(|error| error.to_string())
    };
    let asked = asked.await;
    // No call of a run: neither its directory nor its log is worth keeping.
    let removed = rundir::remove(&paths.root).and_then(|()| match std::fs::remove_file(&paths.audit) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    });
    match asked {
        Ok((models, description)) => {
            checks.push(key_check(&models));
            checks.extend(version_check(&description));
        }
        Err(reason) => checks.push(fail("upstream key", reason)),
    }
    if let Err(error) = removed {
        checks.push(fail("state directory", format!("cannot clean up: {error}")));
    }
}

fn key_check(answer: &str) -> Check {
    let name = "upstream key";
    match answer.split(' ').nth(1).unwrap_or_default() {
        "200" => pass(name, "the upstream takes it".to_owned()),
        "404" => warn(name, "the upstream has no GET /v1/models, so the key could not be tried".to_owned()),
        status => {
            fail(name, format!("the upstream does not take it (status {status} to GET /v1/models); correct key_file"))
        }
    }
}

/// Which LiteLLM this is; nothing when it is something else, or does not say.
fn version_check(answer: &str) -> Option<Check> {
    let (_, body) = answer.split_once("\n\n")?;
    let description: serde_json::Value = serde_json::from_str(body).ok()?;
    let info = &description["info"];
    let version = info["version"].as_str().filter(|_| info["title"].as_str().is_some_and(|t| t.contains("LiteLLM")))?;
    let number = |part: Option<&str>| part.and_then(|part| part.parse::<u32>().ok()).unwrap_or(0);
    let mut parts = version.split('.');
    Some(if (number(parts.next()), number(parts.next())) < (1, 106) {
        warn("litellm", format!("{version} has holes that a sidecar cannot close; use 1.106 or newer"))
    } else {
        pass("litellm", version.to_owned())
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

fn pass(name: &'static str, detail: String) -> Check {
    Check { name, status: Status::Pass, detail }
}

fn warn(name: &'static str, detail: String) -> Check {
    Check { name, status: Status::Warn, detail }
}

fn fail(name: &'static str, detail: String) -> Check {
    Check { name, status: Status::Fail, detail }
}
