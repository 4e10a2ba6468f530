//! The checks, in an order in which each one can use the results of earlier ones.

use std::path::Path;

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_git::GitHome;
use sluice_runs::engine::Engine;
use sluice_runs::sandbox_user::SandboxUsers;
use sluice_runs::{host, upstream};

use super::host_checks::{paths, read, run_users, sandbox_user, sidecar_user, user};
use super::image::image;
use super::probe::{LITELLM, probe};
use super::scratch_state::ScratchState;
use super::{Check, CheckStatus, budgets, fail, git, litellm, pass, skipped};
use crate::settings::{SettingError, Settings, missing};

/// Checks everything that a run needs. `key_fault` is the reason why the settings lack their key, if it cannot be used.
/// `users` is the range for the daemon's runs, if it creates any. `home` names the repositories of a state directory.
pub async fn preflight(
    settings: &Settings,
    key_fault: Option<&SettingError>,
    users: Option<&SandboxUsers>,
    home: fn(&Path) -> GitHome,
) -> Vec<Check> {
    let mut checks = vec![user()];
    checks.push(paths(&settings.host.state_dir));
    let proxy = host::proxy(settings.host.proxy.as_deref());
    checks.push(match &proxy {
        Ok(path) => pass("sidecar program", path.display().to_string()),
        Err(error) => fail("sidecar program", error_chain(error)),
    });
    checks.push(sidecar_user(&settings.host.sidecar_users, &settings.host.docker_host));
    checks.push(sandbox_user(&read("/etc/passwd")));
    checks.extend(users.map(|users| run_users(users, &settings.host.sidecar_users, &settings.host.docker_host)));
    engine(settings, proxy.as_deref().ok(), &mut checks).await;
    checks.push(match &settings.litellm.upstream {
        None => fail("upstream", missing("upstream").to_string()),
        Some(named) => match upstream::negotiate(named).await {
            Ok(()) => pass("upstream", format!("{} answers", named.url)),
            Err(error) => fail("upstream", error_chain(&error)),
        },
    });
    let works = |checks: &[Check]| checks.iter().all(|check| check.status == CheckStatus::Pass);
    match (proxy, &settings.litellm.key) {
        (_, None) => checks.push(fail("upstream key", no_key(key_fault))),
        (Ok(proxy), Some(_)) if works(&checks[..4]) && checks.last().is_some_and(|c| c.status == CheckStatus::Pass) => {
            match ScratchState::new() {
                Ok(scratch) => {
                    let id = uuid::Uuid::new_v4().simple().to_string();
                    let key: RunKey = format!("preflight-{}.0", &id[..8]).parse().expect("a key");
                    checks.extend(probe(settings, scratch.layout(), &proxy, &key).await);
                    checks.extend(litellm::virtual_key(settings, scratch.layout(), &key).await);
                }
                Err(error) => checks.push(fail("upstream key", error_chain(&error))),
            }
            if checks.iter().any(|check| check.name == LITELLM) {
                checks.extend(budgets::budgets(settings).await);
            }
            checks.extend(litellm::spend_log(settings).await);
        }
        _ => checks
            .push(skipped("upstream key", "needs user, state directory, sidecar program, sidecar user and upstream")),
    }
    checks.extend(repositories(settings, home).await);
    checks
}

/// Returns why there is no key, and what to do.
fn no_key(fault: Option<&SettingError>) -> String {
    match fault {
        Some(fault) => error_chain(fault),
        None => missing("key_file").to_string(),
    }
}

/// Checks git, and the credentials of projects.
async fn repositories(settings: &Settings, home: fn(&Path) -> GitHome) -> Vec<Check> {
    let mut checks: Vec<_> = git::git(settings, home).await.into_iter().collect();
    checks.extend(git::credentials(settings));
    checks.extend(git::scopes(settings, &home(&settings.host.state_dir)).await);
    checks
}

/// Checks the engine, its limits and the image of runs that name none.
pub(super) async fn engine(settings: &Settings, proxy: Option<&Path>, checks: &mut Vec<Check>) {
    let engine = match Engine::connect(&settings.host.docker_host).await {
        Ok(engine) => engine,
        Err(error) => {
            checks.push(fail("engine", error_chain(&error)));
            checks.extend(["limits", "image"].map(|name| skipped(name, "needs the engine")));
            return;
        }
    };
    match engine.info().await {
        Ok(info) => {
            checks.push(pass("engine", format!("Docker {} at {}", info.version, settings.host.docker_host)));
            checks.push(match info.unfit() {
                None => {
                    pass("limits", format!("seccomp, cgroup v{}, memory, processors, processes", info.cgroup_version))
                }
                Some(reason) => fail("limits", reason),
            });
        }
        Err(error) => checks.push(fail("engine", error_chain(&error))),
    }
    checks.push(image(&engine, &settings.run.image, proxy).await);
}
