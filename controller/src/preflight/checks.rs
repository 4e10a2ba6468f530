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
    let works = |checks: &[Check]| checks.iter().all(|check| check.name == "engine" || check.status == Status::Pass);
    match (layout, proxy, &settings.key) {
        (_, _, None) => checks.push(fail("upstream key", missing("key_file").to_string())),
        (Ok(layout), Ok(proxy), Some(_)) if works(&checks[..3]) && checks.last().is_some_and(|c| c.status == Status::Pass) => {
            probe(settings, &layout, &proxy, &mut checks).await;
        }
        _ => checks.push(Check { name: "upstream key", status: Status::Skipped, detail: "needs all of the above".into() }),
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
    // The longest name that a run can have.
    let key: RunKey = format!("{}.99", "x".repeat(63)).parse().expect("a key");
    let named = layout.state().display().to_string();
    match layout.run(&key).check() {
        Ok(()) => pass("state directory", named),
        // Names that we make are much shorter.
        Err(error) => Check { name: "state directory", status: Status::Warn, detail: chain(&error) },
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
                None => pass("limits", format!("seccomp, cgroup v{}, memory, processors, processes", facts.cgroup_version)),
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
    let key: RunKey = format!("preflight-{}.0", &id[..12]).parse().expect("a key");
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
            flags: &["--pass-response-header".to_owned(), "x-litellm-version".to_owned()],
        };
        let mut sidecar = Sidecar::start(&order, secret).await.map_err(|error| chain(&error))?;
        let answer = tokio::time::timeout(Duration::from_secs(20), models(&paths.socket)).await;
        let drained = sidecar.drain().await;
        drained.map_err(|error| chain(&error))?;
        answer.map_err(|_| "the upstream did not answer GET /v1/models within 20 s".to_owned())?.map_err(|error| error.to_string())
    };
    let asked = asked.await;
    // No call of a run: neither its directory nor its log is worth keeping.
    let removed = rundir::remove(&paths.root).and_then(|()| match std::fs::remove_file(&paths.audit) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    });
    match asked {
        Ok(answer) => judge(&answer, checks),
        Err(reason) => checks.push(fail("upstream key", reason)),
    }
    if let Err(error) = removed {
        checks.push(fail("state directory", format!("cannot clean up: {error}")));
    }
}

fn judge(answer: &str, checks: &mut Vec<Check>) {
    let status = answer.split(' ').nth(1).unwrap_or_default();
    checks.push(match status {
        "200" => pass("upstream key", "the upstream takes it".to_owned()),
        "404" => Check {
            name: "upstream key",
            status: Status::Warn,
            detail: "the upstream has no GET /v1/models, so the key could not be tried".into(),
        },
        _ => fail("upstream key", format!("the upstream does not take it (status {status} to GET /v1/models); correct key_file")),
    });
    if let Some(version) = header(answer, "x-litellm-version") {
        let old = version.split('.').take(2).map(|part| part.parse::<u32>().unwrap_or(0)).collect::<Vec<_>>() < vec![1, 106];
        checks.push(if old {
            Check {
                name: "litellm",
                status: Status::Warn,
                detail: format!("{version} has holes that a sidecar cannot close (see README); use 1.106 or newer"),
            }
        } else {
            pass("litellm", version.to_owned())
        });
    }
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.lines().take_while(|line| !line.is_empty()).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

async fn models(socket: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.take(1 << 20).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).replace("\r\n", "\n"))
}

fn pass(name: &'static str, detail: String) -> Check {
    Check { name, status: Status::Pass, detail }
}

fn fail(name: &'static str, detail: String) -> Check {
    Check { name, status: Status::Fail, detail }
}
