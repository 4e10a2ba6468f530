//! Checks before the daemon starts: the needs of each of its runs, and faults that only the host can have.
//!
//! The upstream is not one of them: while it does not answer, calls fail and the daemon continues.

use std::path::Path;

use sluice_contract::text::error_chain;
use sluice_git::GitHome;
use sluice_runs::sandbox_user::SandboxUsers;
use sluice_runs::{host, upstream};

use super::checks::engine;
use super::git::{CREDENTIALS, GIT};
use super::host_checks::{paths, run_users, sidecar_user, user};
use super::{Check, CheckStatus, fail, git, pass};
use crate::settings::{Settings, missing};

/// Checks what each run of the daemon needs. `home` names the repositories of a state directory.
pub async fn daemon_preflight(settings: &Settings, users: &SandboxUsers, home: fn(&Path) -> GitHome) -> Vec<Check> {
    let mut checks = vec![user(), paths(&settings.host.state_dir)];
    let proxy = host::proxy(settings.host.proxy.as_deref());
    checks.push(match &proxy {
        Ok(path) => pass("sidecar program", path.display().to_string()),
        Err(error) => fail("sidecar program", error_chain(error)),
    });
    checks.push(sidecar_user(&settings.host.sidecar_users, &settings.host.docker_host));
    checks.push(run_users(users, &settings.host.sidecar_users, &settings.host.docker_host));
    engine(settings, proxy.as_deref().ok(), &mut checks).await;
    checks.extend([address(settings), key(settings)]);
    checks.extend(git::git(settings, home).await);
    checks.extend(git::credentials(settings));
    checks.into_iter().map(of_some_runs).collect()
}

/// Checks the form of the upstream's address.
fn address(settings: &Settings) -> Check {
    let name = "upstream";
    match &settings.litellm.upstream {
        None => fail(name, missing("upstream").to_string()),
        Some(named) => match upstream::address(&named.url) {
            Ok(_) => pass(name, named.url.clone()),
            Err(error) => fail(name, error_chain(&error)),
        },
    }
}

/// Checks that a sidecar would take the key.
fn key(settings: &Settings) -> Check {
    let name = "upstream key";
    match &settings.litellm.key {
        None => fail(name, missing("key_file").to_string()),
        Some(key) => match key.check() {
            Ok(()) => pass(name, "it has the form of a key".to_owned()),
            Err(fault) => fail(name, format!("the key of key_file (or SLUICE_KEY) {fault}")),
        },
    }
}

/// Turns a fault that only some runs have into a warning: a request or an agent may name another image, and not each run has
/// a repository.
fn of_some_runs(check: Check) -> Check {
    let is_of_some = ["image", GIT, CREDENTIALS].contains(&check.name) && check.status == CheckStatus::Fail;
    if is_of_some { Check { status: CheckStatus::Warn, ..check } } else { check }
}

#[cfg(test)]
mod tests {
    use super::super::{fail, warn};
    use super::*;

    #[test]
    fn a_missing_image_stops_no_daemon() {
        let status = |check| of_some_runs(check).status;
        for name in ["image", GIT, CREDENTIALS] {
            assert_eq!(status(fail(name, String::new())), CheckStatus::Warn, "{name}");
        }
        assert_eq!(status(fail("engine", String::new())), CheckStatus::Fail);
        assert_eq!(status(warn("sidecar user", String::new())), CheckStatus::Warn);
    }
}
