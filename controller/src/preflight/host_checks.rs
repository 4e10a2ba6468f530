//! Checks of the host itself: its users and its state directory.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
use sluice_runs::rundir::SANDBOX_UID;
use sluice_runs::sandbox_user::SandboxUsers;
use sluice_runs::sidecar_user::{HostIds, SidecarUsers};
use sluice_runs::{engine, host};
use sluice_state::layout::Layout;
use sluice_state::state_directory::{self, StateDirectory};

use super::{Check, fail, pass, warn};

/// The host's databases of users.
struct HostFiles {
    passwd: String,
    group: String,
    subordinate: [String; 2],
    maps: [String; 2],
    engine: Option<u32>,
}

impl HostFiles {
    fn read(docker_host: &str) -> Self {
        let [passwd, group] = ["/etc/passwd", "/etc/group"].map(read);
        let engine = engine::socket_of(docker_host).and_then(|path| Some(std::fs::metadata(path).ok()?.gid()));
        Self {
            passwd,
            group,
            subordinate: ["/etc/subuid", "/etc/subgid"].map(read),
            maps: ["/proc/self/uid_map", "/proc/self/gid_map"].map(read),
            engine,
        }
    }

    fn ids(&self) -> HostIds<'_> {
        HostIds {
            passwd: &self.passwd,
            group: &self.group,
            subordinate: self.subordinate.each_ref().map(String::as_str),
            maps: self.maps.each_ref().map(String::as_str),
            engine: self.engine,
        }
    }
}

/// Checks that we are root.
pub(super) fn user() -> Check {
    if nix::unistd::Uid::effective().is_root() {
        pass("user", "root".to_owned())
    } else {
        fail("user", host::HostError::NotRoot.to_string())
    }
}

/// Checks that the users of sidecars are free. Users that only a directory service knows are not seen.
pub(super) fn sidecar_user(users: &SidecarUsers, docker_host: &str) -> Check {
    let name = "sidecar user";
    let uid = nix::unistd::Uid::effective();
    if !uid.is_root() {
        return warn(
            name,
            format!("sidecars stay user {uid}: only root can give each run's sidecar a user of its own"),
        );
    }
    let files = HostFiles::read(docker_host);
    match users.conflict(&files.ids()) {
        None => pass(name, format!("{}, one for each run", users.uids)),
        Some(reason) => fail(name, reason),
    }
}

/// Reads a database of users; an empty text states nothing.
pub(super) fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Checks that no person or service of the host has the user id of sandboxes.
pub(super) fn sandbox_user(passwd: &str) -> Check {
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

/// Checks the state directory, and that the paths of runs in it are short enough.
pub(super) fn paths(state: &Path) -> Check {
    let found = match state_directory::inspect(state) {
        Ok(found) => found,
        Err(error) => return fail("state directory", error_chain(&error)),
    };
    let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
    let note = if found == StateDirectory::InUse { "" } else { ": the first run makes it" };
    // This key is as long as a generated one. A longer id of --run-id is checked by its run.
    let key: RunKey = "r00000000-000000-00000000.0".parse().expect("a key");
    let layout = Layout::at(&state);
    match layout.check_database().and_then(|()| layout.run(&key).check()) {
        Ok(()) => pass("state directory", format!("{}{note}", state.display())),
        Err(error) => fail("state directory", error_chain(&error)),
    }
}

/// Checks that the users of the daemon's runs are free.
pub(super) fn run_users(users: &SandboxUsers, sidecars: &SidecarUsers, docker_host: &str) -> Check {
    judge_run_users(users, sidecars, &HostFiles::read(docker_host).ids())
}

fn judge_run_users(users: &SandboxUsers, sidecars: &SidecarUsers, host: &HostIds<'_>) -> Check {
    let name = "run users";
    if let Some(user) = users.account(host.passwd) {
        return fail(
            name,
            format!(
                "user {user} of this host has an id of uid_range, {users}: {user} could stop the programs of a run, read its \
                 files and make calls in its name; name an unused range with uid_range"
            ),
        );
    }
    match users.conflict(host, sidecars) {
        None => pass(name, format!("{users}, one for each run of the daemon")),
        Some(reason) => fail(name, reason),
    }
}

#[cfg(test)]
mod tests {
    use super::super::CheckStatus;
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

    #[test]
    fn users_of_runs_are_not_those_of_the_host() {
        let sidecars = SidecarUsers { uids: "3000-3999".parse().expect("a range"), gid: None };
        let free = HostIds { passwd: "root:x:0:0::/:/bin/sh\n", ..HostIds::default() };
        let used = HostIds { passwd: "anna:x:2000500:100::/:/bin/sh\n", ..free };
        let subordinate = HostIds { subordinate: ["anna:1950000:65536\n", ""], ..free };
        for (range, host, status, words) in [
            ("2000000-2009999", free, CheckStatus::Pass, "one for each run"),
            ("2000000-2009999", used, CheckStatus::Fail, "user anna of this host has an id of uid_range"),
            ("2000000-2009999", subordinate, CheckStatus::Fail, "belong to anna; name an unused range with uid_range"),
            ("3500-3600", free, CheckStatus::Fail, "may be sidecars"),
        ] {
            let check = judge_run_users(&range.parse().expect("a range"), &sidecars, &host);
            assert!(check.status == status && check.detail.contains(words), "{check:?}");
        }
    }
}
