//! The user of a daemon run's agent: one per run, from a range that the host does not use.
//!
//! All agents of one-shot runs are user 1001. Agents of several owners must not share one user: the kernel lets a
//! process signal and trace processes of its user, and counts some limits by user. `rundir` picks the user and gives it
//! the workspace; the owner of that directory records which run has the user.
//!
//! Pure.

use std::fmt;
use std::str::FromStr;

use sluice_contract::RunKey;

use crate::sidecar_user::{HostIds, SidecarUsers, UidRange, UidRangeError};

/// Default of the setting `uid_range`.
pub const DEFAULT_UIDS: &str = "2000000-2009999";

/// The users of sandboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxUsers(UidRange);

/// A range in which each user has a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("all {0} have a run; name a larger range with uid_range")]
pub struct NoFreeUser(UidRange);

impl SandboxUsers {
    /// Picks the user of a run, which no other run has.
    ///
    /// # Errors
    /// [`NoFreeUser`].
    pub fn pick(&self, run: &RunKey, taken: &[u32]) -> Result<u32, NoFreeUser> {
        let picked = self.0.pick(run, taken);
        if taken.contains(&picked) { Err(NoFreeUser(self.0.clone())) } else { Ok(picked) }
    }

    /// Returns one of the users. All have the same rights to files that belong to none of them.
    #[must_use]
    pub fn first(&self) -> u32 {
        self.0.first()
    }

    /// Returns a conflict of the range with the host's own users or with the sidecars' users, and the fix.
    #[must_use]
    pub fn conflict(&self, host: &HostIds<'_>, sidecars: &SidecarUsers) -> Option<String> {
        const FIX: &str = "name an unused range with uid_range";
        if self.0.intersects(&sidecars.uids) {
            return Some(format!("{} may be sidecars; {FIX}", self.0));
        }
        self.0.conflict(None, host).map(|reason| format!("{reason}; {FIX}"))
    }

    /// Returns a host account that has the id of an agent: it could stop the agent, read its files and make its calls.
    #[must_use]
    pub fn account<'a>(&self, passwd: &'a str) -> Option<&'a str> {
        self.0.account(passwd)
    }
}

impl fmt::Display for SandboxUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SandboxUsers {
    type Err = UidRangeError;

    fn from_str(text: &str) -> Result<Self, UidRangeError> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(range: &str) -> SandboxUsers {
        range.parse().expect("a range")
    }

    #[test]
    fn no_two_runs_share_a_user() {
        let users = users("2000000-2000009");
        let mut taken = Vec::new();
        for n in 0..10 {
            let uid = users.pick(&format!("r{n}.0").parse().expect("a key"), &taken).expect("one is free");
            assert!((2_000_000..2_000_010).contains(&uid) && !taken.contains(&uid), "{uid} {taken:?}");
            taken.push(uid);
        }
        let error = users.pick(&"more.0".parse().expect("a key"), &taken).expect_err("none is free");
        assert_eq!(error.to_string(), "all users 2000000-2000009 have a run; name a larger range with uid_range");
    }

    #[test]
    fn a_range_that_others_use_is_refused() {
        let sidecars = SidecarUsers { uids: "3000-3999".parse().expect("a range"), gid: None };
        let host = HostIds {
            passwd: "root:x:0:0::/:/bin/sh\nworker:x:2000500:2000500::/:/bin/sh\n",
            subordinate: ["agent:2100000:65536\n", ""],
            ..HostIds::default()
        };
        for (range, expected) in [
            (DEFAULT_UIDS, Some("user worker of this host has the id 2000500; name an unused range with uid_range")),
            (
                "2165535-2170000",
                Some("the subordinate ids 2100000-2165535 belong to agent; name an unused range with uid_range"),
            ),
            ("3999-4001", Some("users 3999-4001 may be sidecars; name an unused range with uid_range")),
            ("2200000-2200009", None),
        ] {
            assert_eq!(users(range).conflict(&host, &sidecars).as_deref(), expected);
        }
        assert_eq!(users(DEFAULT_UIDS).account(host.passwd), Some("worker"));
        assert_eq!(users("1001").account(host.passwd), None);
    }
}
