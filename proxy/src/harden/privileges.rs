//! The user and the capabilities of the process.
//!
//! The process opens its files and binds its socket as the user that started it. Then it becomes the user of `--user`
//! and gives up all capabilities. So no file has to be readable for that user, and the user can open none of them
//! again.

use std::fs;
use std::str::FromStr;

use caps::errors::CapsError;
use caps::{CapSet, Capability};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

use super::{HardenError, Measure};

/// The user and group that the process becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// User id; never root's.
    pub uid: u32,
    /// Group id; never root's.
    pub gid: u32,
}

impl User {
    /// User that the sidecar becomes if root starts it without `--user`: one of the ids that Debian and systemd reserve
    /// and give to no user. It is below 65,536, so that most user namespaces map it.
    pub const UNPRIVILEGED: Self = Self { uid: 65_521, gid: 65_521 };
}

/// Value of `--user`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserChoice {
    /// The process stays root, without capabilities.
    Root,
    /// The process becomes this user.
    User(User),
}

/// The largest id. The kernel reads the number after it as "leave the id as it is".
const ID_MAX: u32 = u32::MAX - 1;

/// The text is not a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("want UID or UID:GID, each a number from 1 to 4294967294; or root, to stay root")]
pub struct NotAUser;

impl FromStr for UserChoice {
    type Err = NotAUser;

    /// Reads `root` or `0`, or a [`User`].
    fn from_str(text: &str) -> Result<Self, NotAUser> {
        match text {
            "root" | "0" => Ok(Self::Root),
            _ => text.parse().map(Self::User),
        }
    }
}

impl FromStr for User {
    type Err = NotAUser;

    /// Reads `UID` or `UID:GID`; without a group id, it is the same number as the user id.
    fn from_str(text: &str) -> Result<Self, NotAUser> {
        let id = |text: &str| match text.parse() {
            Ok(id @ 1..=ID_MAX) => Ok(id),
            _ => Err(NotAUser),
        };
        let (uid, gid) = text.split_once(':').unwrap_or((text, text));
        Ok(Self { uid: id(uid)?, gid: id(gid)? })
    }
}

/// Returns true if the process may become another user.
#[must_use]
pub fn may_become_user() -> bool {
    has(Capability::CAP_SETUID) && has(Capability::CAP_SETGID)
}

/// Returns true if the process can ignore the modes of files.
#[must_use]
pub fn ignores_modes() -> bool {
    has(Capability::CAP_DAC_OVERRIDE)
}

fn has(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
}

/// Becomes the user, if one is given, and empties all capability sets.
///
/// The call needs a process with one thread: the kernel keeps capabilities for each thread.
///
/// # Errors
/// [`HardenError::User`], [`HardenError::Capabilities`]
pub(super) fn give_up(user: Option<User>) -> Result<Measure, HardenError> {
    // The change of user takes the capability that this needs.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        caps::clear(None, CapSet::Bounding)?;
    }
    if let Some(user) = user {
        become_user(user).map_err(|source| HardenError::User { user, source })?;
        // The kernel resets this when the user changes.
        prctl::set_dumpable(false)?;
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Permitted)?;
    caps::clear(None, CapSet::Inheritable)?;
    Ok(if are_empty(&fs::read_to_string("/proc/thread-self/status").unwrap_or_default()) {
        Measure::Applied
    } else {
        Measure::Partial
    })
}

/// Becomes the user. The groups come first: the change of the user id takes the right to change them.
fn become_user(user: User) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

/// Returns true if a `/proc/PID/status` states that all five capability sets are empty.
fn are_empty(status: &str) -> bool {
    ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"].iter().all(|set| {
        let value = status.lines().find_map(|line| line.strip_prefix(set));
        value.is_some_and(|value| u64::from_str_radix(value.trim(), 16) == Ok(0))
    })
}

impl From<CapsError> for HardenError {
    fn from(error: CapsError) -> Self {
        Self::Capabilities(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_one_number_or_two() {
        let user = |uid, gid| Ok(User { uid, gid });
        for (text, expected) in [
            ("1001", user(1001, 1001)),
            ("1001:50", user(1001, 50)),
            ("4294967294:1", user(u32::MAX - 1, 1)),
            ("0", Err(NotAUser)),
            ("1:0", Err(NotAUser)),
            ("4294967295", Err(NotAUser)),
            ("-1", Err(NotAUser)),
            ("nobody", Err(NotAUser)),
            ("1:2:3", Err(NotAUser)),
            (":1", Err(NotAUser)),
            ("", Err(NotAUser)),
        ] {
            assert_eq!(text.parse(), expected, "{text:?}");
        }
    }

    #[test]
    fn root_stays_root_only_where_it_is_named() {
        let user = User { uid: 7, gid: 7 };
        for (text, expected) in [
            ("root", Ok(UserChoice::Root)),
            ("0", Ok(UserChoice::Root)),
            ("7", Ok(UserChoice::User(user))),
            ("0:0", Err(NotAUser)),
            ("root:root", Err(NotAUser)),
            ("00", Err(NotAUser)),
            ("", Err(NotAUser)),
        ] {
            assert_eq!(text.parse(), expected, "{text:?}");
        }
    }

    #[test]
    fn one_capability_in_any_set_is_seen() {
        let zero = "0000000000000000";
        let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
        let status =
            |full: &str| sets.map(|set| format!("{set}:\t{}\n", if set == full { "0000000000000200" } else { zero }));
        assert!(are_empty(&status("").concat()));
        for set in sets {
            assert!(!are_empty(&status(set).concat()), "{set}");
        }
        assert!(!are_empty("Name:\tsluice-proxy\n"));
    }
}
