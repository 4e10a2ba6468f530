//! Host directories that admins let the runs of an agent read: the permitted ones, and the table of an agent's grants.

use std::path::{Component, Path, PathBuf};

use sluice_runs::forbidden_mounts::{ForbiddenPlaces, forbidden};
use sluice_runs::grant::{self, GrantError};
use sluice_runs::sandbox_user::SandboxUsers;
use tokio::task::spawn_blocking;

use crate::mount_table::MountTable;

/// Maximum number of grants of an agent.
pub const GRANTS_MAX: usize = 16;
/// Maximum length of a path in bytes, below the kernel's limit of 4,096.
const PATH_MAX: usize = 4000;

/// Directories that may be granted.
#[derive(Debug, Clone)]
pub struct GrantPolicy {
    /// Directories under which grants may be, as the operator named them.
    pub roots: Vec<PathBuf>,
    /// Places that no sandbox may see.
    pub forbidden: ForbiddenPlaces,
    /// The users that must be able to read a grant.
    pub users: SandboxUsers,
}

/// A grant that is refused.
#[derive(Debug, thiserror::Error)]
pub enum GrantRefusal {
    /// The text is not the path of a directory.
    #[error("{0:?} is not an absolute path without . and .., or it is too long")]
    Invalid(String),
    /// The path is under none of the roots.
    #[error("{0} does not lie under a directory of grant_roots")]
    OutsideRoots(String),
    /// The path is forbidden for sandboxes.
    #[error("{path} {reason}")]
    Forbidden {
        /// The grant.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The directory cannot be mounted.
    #[error(transparent)]
    Unusable(#[from] GrantError),
}

/// Reason that the grants of an agent cannot be read, or that one of them cannot be mounted.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "their messages say it")]
pub enum MountTableError {
    #[error("the grants of the agent cannot be read")]
    Grants(#[from] serde_json::Error),
    #[error(transparent)]
    Refused(#[from] GrantRefusal),
    #[error("the check of the grants did not end")]
    Check(#[from] tokio::task::JoinError),
}

impl GrantPolicy {
    /// Checks that a directory may be granted, and could be mounted now. It reads the file system.
    ///
    /// # Errors
    /// [`GrantRefusal`]
    pub fn check(&self, grant: &str) -> Result<(), GrantRefusal> {
        self.check_place(grant)?;
        Ok(grant::check(Path::new(grant), self.users.first())?)
    }

    /// Checks the path of a grant.
    fn check_place(&self, grant: &str) -> Result<(), GrantRefusal> {
        if !is_plain(grant) {
            return Err(GrantRefusal::Invalid(grant.to_owned()));
        }
        let path = Path::new(grant);
        if !self.roots.iter().any(|root| path.starts_with(root)) {
            return Err(GrantRefusal::OutsideRoots(grant.to_owned()));
        }
        match forbidden(path, &self.forbidden) {
            Some(reason) => Err(GrantRefusal::Forbidden { path: grant.to_owned(), reason }),
            None => Ok(()),
        }
    }

    /// Returns the mount table of an agent's grants, which are a list in JSON. Each is checked again: a setting, or the
    /// directory itself, may have changed since it was granted.
    ///
    /// # Errors
    /// [`MountTableError`], at the first grant that cannot be mounted.
    pub async fn mount_table(&self, grants: &str) -> Result<MountTable, MountTableError> {
        let table = MountTable::of(serde_json::from_str::<Vec<String>>(grants)?);
        self.check_table(&table).await?;
        Ok(table)
    }

    /// Checks that each directory of a table can be mounted now.
    ///
    /// # Errors
    /// [`MountTableError`]
    pub async fn check_table(&self, table: &MountTable) -> Result<(), MountTableError> {
        if table.is_empty() {
            return Ok(());
        }
        let (policy, table) = (self.clone(), table.clone());
        // A read from a network file system can block.
        spawn_blocking(move || table.sources().iter().try_for_each(|source| policy.check(source))).await??;
        Ok(())
    }
}

/// Returns whether a text is an absolute path without `.`, `..`, control characters, and repeated or final slashes.
fn is_plain(text: &str) -> bool {
    let path = Path::new(text);
    let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    let written: PathBuf = path.components().collect();
    text.len() <= PATH_MAX
        && path.is_absolute()
        && path.components().all(is_plain)
        && written.as_os_str() == text
        && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(roots: &[&str]) -> GrantPolicy {
        GrantPolicy {
            roots: roots.iter().map(PathBuf::from).collect(),
            forbidden: ForbiddenPlaces {
                socket: Some("/srv/engine/docker.sock".into()),
                state: "/srv/sluice".into(),
                audit: "/srv/sluice/audit".into(),
                sockets: Some("/srv/sockets".into()),
                secrets: vec!["/srv/keys/litellm".into()],
            },
            users: "2000000-2000009".parse().expect("a range"),
        }
    }

    fn word(policy: &GrantPolicy, grant: &str) -> &'static str {
        match policy.check_place(grant) {
            Ok(()) => "",
            Err(GrantRefusal::Invalid(_)) => "invalid",
            Err(GrantRefusal::OutsideRoots(_)) => "outside",
            Err(GrantRefusal::Forbidden { .. }) => "forbidden",
            Err(GrantRefusal::Unusable(_)) => "unusable",
        }
    }

    #[test]
    fn grants_lie_under_a_root_and_show_no_secret() {
        let policy = policy(&["/srv", "/etc", "/proc", "/sys", "/dev", "/run/sluice"]);
        for (grant, expected) in [
            ("/srv/data", ""),
            ("/srv/data/a b", ""),
            ("/srvdata", "outside"),
            ("/home/o", "outside"),
            ("/srv", "forbidden"),
            ("/srv/sluice", "forbidden"),
            ("/srv/sluice/runs", "forbidden"),
            ("/srv/engine", "forbidden"),
            ("/srv/sockets/x", "forbidden"),
            ("/srv/keys", "forbidden"),
            ("/etc/ssl", "forbidden"),
            ("/proc/1", "forbidden"),
            ("/sys/fs", "forbidden"),
            ("/dev/shm", "forbidden"),
            ("/run/sluice", "forbidden"),
            ("/srv/../etc", "invalid"),
            ("/srv/./data", "invalid"),
            ("/srv//data", "invalid"),
            ("/srv/data/", "invalid"),
            ("srv/data", "invalid"),
            ("", "invalid"),
            ("/srv/a\nb", "invalid"),
        ] {
            assert_eq!(word(&policy, grant), expected, "{grant:?}");
        }
    }

    #[test]
    fn without_roots_nothing_is_granted() {
        assert_eq!(word(&policy(&[]), "/srv/data"), "outside");
    }
}
