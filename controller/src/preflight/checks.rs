//! The checks, in an order in which each one can use the results of earlier ones.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_runs::engine::{self, Engine};
use sluice_runs::rundir::SANDBOX_UID;
use sluice_runs::sidecar_user::{HostIds, SidecarUsers};
use sluice_runs::{host, upstream};
use sluice_state::layout::Layout;
use sluice_state::state_directory::{self, StateDirectory};

use super::image::image;
use super::probe::{LITELLM, probe};
use super::scratch_state::ScratchState;
use super::{Check, CheckStatus, budgets, fail, litellm, pass, skipped, warn};
use crate::settings::{Settings, missing};

/// Checks everything that a run needs.
pub async fn preflight(settings: &Settings) -> Vec<Check> {
    let mut checks = vec![user()];
    checks.push(match state_directory::inspect(&settings.host.state_dir) {
        Ok(found) => paths(&settings.host.state_dir, found),
        Err(error) => fail("state directory", error_chain(&error)),
    });
    let proxy = host::proxy(settings.host.proxy.as_deref());
    checks.push(match &proxy {
        Ok(path) => pass("sidecar program", path.display().to_string()),
        Err(error) => fail("sidecar program", error_chain(error)),
    });
    checks.push(sidecar_user(&settings.host.sidecar_users, &settings.host.docker_host));
    checks.push(sandbox_user(&read("/etc/passwd")));
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
        (_, None) => checks.push(fail("upstream key", missing("key_file").to_string())),
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
        _ => checks.push(skipped("upstream key", "needs all of the above")),
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

/// Checks that the users of sidecars are free. Users that only a directory service knows are not seen.
fn sidecar_user(users: &SidecarUsers, docker_host: &str) -> Check {
    let name = "sidecar user";
    let uid = nix::unistd::Uid::effective();
    if !uid.is_root() {
        return warn(
            name,
            format!("sidecars stay user {uid}: only root can give each run's sidecar a user of its own"),
        );
    }
    let [passwd, group] = ["/etc/passwd", "/etc/group"].map(read);
    let [subuid, subgid] = ["/etc/subuid", "/etc/subgid"].map(read);
    let [uid_map, gid_map] = ["/proc/self/uid_map", "/proc/self/gid_map"].map(read);
    let engine = engine::socket_of(docker_host).and_then(|path| Some(std::fs::metadata(path).ok()?.gid()));
    let host =
        HostIds { passwd: &passwd, group: &group, subordinate: [&subuid, &subgid], maps: [&uid_map, &gid_map], engine };
    match users.conflict(&host) {
        None => pass(name, format!("{}, one for each run", users.uids)),
        Some(reason) => fail(name, reason),
    }
}

/// Reads a database of users; an empty text states nothing.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Checks that no person or service of the host has the user id of sandboxes.
fn sandbox_user(passwd: &str) -> Check {
    let name = "sandbox user";
    match named_user(passwd, SANDBOX_UID) {
        None => pass(name, format!("user {SANDBOX_UID}, which no user of this host has")),
        Some(user) => warn(
            name,
            format!(
                "user {user} of this host has the id {SANDBOX_UID}, as the programs in sandboxes have: {user} can stop \
                 them, read their files and make calls in their name; give {user} another id (usermod -u)"
            ),
        ),
    }
}

fn named_user(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

fn paths(state: &Path, found: StateDirectory) -> Check {
    let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
    let note = if found == StateDirectory::InUse { "" } else { ": the first run makes it" };
    // As long as generated ids. A longer id of --run-id is checked by its run.
    let key: RunKey = "r00000000-000000-00000000.0".parse().expect("a key");
    let layout = Layout::at(&state);
    match layout.check_database().and_then(|()| layout.run(&key).check()) {
        Ok(()) => pass("state directory", format!("{}{note}", state.display())),
        Err(error) => fail("state directory", error_chain(&error)),
    }
}

async fn engine(settings: &Settings, proxy: Option<&Path>, checks: &mut Vec<Check>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_user_with_the_sandboxes_id_is_named() {
        let passwd = "root:x:0:0::/:/bin/sh\n\nbroken\nanna:x:1001:1001::/home/anna:/bin/sh\n";
        let check = sandbox_user(passwd);
        assert!(check.status == CheckStatus::Warn && check.detail.contains("user anna of this host"), "{check:?}");
        for passwd in ["", "bob:1001:1002:x\n", "x:x:10011:1001::/:/"] {
            assert_eq!(sandbox_user(passwd).status, CheckStatus::Pass, "{passwd}");
        }
    }
}
