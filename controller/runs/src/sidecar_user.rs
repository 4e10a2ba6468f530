//! The user of a sidecar: one per run, from a range that the host does not use.
//!
//! Pure. `rundir` picks the user and gives it the directory of the run's socket. Later the owner of that directory is the
//! user of the sidecar.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use sluice_contract::RunKey;

/// Default user ids: between the ids of systemd's containers and the ids that it reserves. No tool assigns them.
pub const DEFAULT_UIDS: &str = "2000000000-2000065535";

/// The maximum user id; the kernel reads the next number as "no user".
const UID_MAX: u32 = u32::MAX - 1;

/// The users and the group of sidecars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarUsers {
    /// User ids; never root's.
    pub uids: UidRange,
    /// Group id of all sidecars; otherwise each has the number of its user id.
    pub gid: Option<u32>,
}

/// A range of user ids, each larger than 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UidRange(RangeInclusive<u32>);

/// A text that is not a range of user ids.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a range of user ids; write FIRST-LAST, such as {DEFAULT_UIDS}, or one id")]
pub struct UidRangeError(String);

/// One user with its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidecarUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The host's databases of users, and the ids that our user namespace has. An empty text states nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostIds<'a> {
    /// `/etc/passwd`
    pub passwd: &'a str,
    /// `/etc/group`
    pub group: &'a str,
    /// `/etc/subuid` and `/etc/subgid`
    pub subordinate: [&'a str; 2],
    /// `/proc/self/uid_map` and `/proc/self/gid_map`
    pub maps: [&'a str; 2],
    /// Group of the engine's socket.
    pub engine: Option<u32>,
}

impl SidecarUsers {
    /// Picks the user of a run: the first free one after a position that the run's name determines. In a full range, runs
    /// share a user.
    #[must_use]
    pub fn pick(&self, run: &RunKey, taken: &[u32]) -> SidecarUser {
        let uid = self.uids.pick(run, taken);
        SidecarUser { uid, gid: self.gid.unwrap_or(uid) }
    }

    /// Returns a conflict of the range with the host's own users, with the fix.
    #[must_use]
    pub fn conflict(&self, host: &HostIds<'_>) -> Option<String> {
        if let (Some(gid), true) = (self.gid, self.gid == host.engine) {
            return Some(format!("group {gid} may use the engine's socket; name another group with sidecar_gid"));
        }
        self.uids.conflict(self.gid, host).map(|reason| format!("{reason}; name an unused range with sidecar_uid"))
    }
}

impl UidRange {
    /// Picks the first free id after a position that the run's name determines. In a full range it returns a taken one.
    pub(crate) fn pick(&self, run: &RunKey, taken: &[u32]) -> u32 {
        let (first, len) = (*self.0.start(), self.len());
        let digest = Sha256::digest(run.to_string());
        let begin = u64::from_be_bytes(digest[..8].try_into().expect("a digest has 32 bytes")) % len;
        let nth = |n: u64| first + u32::try_from((begin + n) % len).expect("a range of ids has no more ids");
        // One more candidate than taken ids: one of them is free, if the range is large enough.
        let candidates = (0..len.min(taken.len() as u64 + 1)).map(nth);
        { candidates }.find(|uid| !taken.contains(uid)).unwrap_or_else(|| nth(0))
    }

    /// Returns a conflict of these ids with the host's own users. `gid` is a group used for all sidecars.
    pub(crate) fn conflict(&self, gid: Option<u32>, host: &HostIds<'_>) -> Option<String> {
        let [passwd, group] = [(host.passwd, "user"), (host.group, "group")];
        let found = [passwd, group].into_iter().find_map(|(text, what)| {
            let (name, id) = named(text).find(|(_, id)| self.contains(*id))?;
            Some(format!("{what} {name} of this host has the id {id}"))
        });
        let subordinate = || {
            let mut ranges = host.subordinate.iter().flat_map(|text| subordinate(text));
            let (name, first, last) = ranges.find(|(_, first, last)| self.overlaps(*first, *last))?;
            Some(format!("the subordinate ids {first}-{last} belong to {name}"))
        };
        let unmapped = || {
            let ids = [self.0.clone(), gid.map_or_else(|| self.0.clone(), |gid| gid..=gid)];
            let mut maps = host.maps.iter().zip(ids).filter(|(map, _)| !map.is_empty());
            let is_unmapped = maps.any(|(map, ids)| !is_mapped(map, &ids));
            is_unmapped.then(|| format!("the user namespace of this process does not map {self}"))
        };
        found.or_else(subordinate).or_else(unmapped)
    }

    /// Returns the first account of a passwd file that has one of these ids.
    pub(crate) fn account<'a>(&self, passwd: &'a str) -> Option<&'a str> {
        named(passwd).find_map(|(name, id)| self.contains(id).then_some(name))
    }

    /// Returns true if both ranges have an id in common.
    pub(crate) fn intersects(&self, other: &Self) -> bool {
        self.overlaps((*other.0.start()).into(), (*other.0.end()).into())
    }

    pub(crate) fn first(&self) -> u32 {
        *self.0.start()
    }

    fn len(&self) -> u64 {
        u64::from(self.0.end() - self.0.start()) + 1
    }

    fn contains(&self, id: u64) -> bool {
        self.overlaps(id, id)
    }

    fn overlaps(&self, first: u64, last: u64) -> bool {
        first <= u64::from(*self.0.end()) && u64::from(*self.0.start()) <= last
    }
}

impl FromStr for UidRange {
    type Err = UidRangeError;

    /// Parses `FIRST-LAST`, or one id.
    fn from_str(text: &str) -> Result<Self, UidRangeError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (id(first), id(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self(first..=last)),
            _ => Err(UidRangeError(text.to_owned())),
        }
    }
}

/// Parses a user or group id other than root's.
#[must_use]
pub fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| (1..=UID_MAX).contains(id))
}

/// Returns names and ids of `/etc/passwd` or `/etc/group`.
fn named(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.parse().ok()?))
    })
}

/// Returns owners and ranges of `/etc/subuid` or `/etc/subgid`.
fn subordinate(text: &str) -> impl Iterator<Item = (&str, u64, u64)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, first): (_, u64) = (fields.next()?, fields.next()?.parse().ok()?);
        let count: u64 = fields.next()?.trim().parse().ok().filter(|count| *count > 0)?;
        Some((name, first, first.saturating_add(count - 1)))
    })
}

/// Returns true if one line of a `uid_map` has all these ids.
fn is_mapped(map: &str, ids: &RangeInclusive<u32>) -> bool {
    map.lines().any(|line| {
        let fields: Vec<u64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let [first, _, count] = fields[..] else { return false };
        first <= u64::from(*ids.start()) && u64::from(*ids.end()) < first.saturating_add(count)
    })
}

impl fmt::Display for UidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.start() == self.0.end() {
            write!(f, "user {}", self.0.start())
        } else {
            write!(f, "users {}-{}", self.0.start(), self.0.end())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(range: &str, gid: Option<u32>) -> SidecarUsers {
        SidecarUsers { uids: range.parse().expect("a range"), gid }
    }

    fn run(name: &str) -> RunKey {
        name.parse().expect("a run")
    }

    #[test]
    fn a_range_is_two_ids_or_one() {
        for (text, expected) in [
            (DEFAULT_UIDS, Some(2_000_000_000..=2_000_065_535)),
            ("65534", Some(65534..=65534)),
            ("1-4294967294", Some(1..=4_294_967_294)),
            ("0", None),
            ("0-10", None),
            ("10-9", None),
            ("1-4294967295", None),
            ("-1", None),
            ("1-", None),
            ("nobody", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<UidRange>().ok(), expected.map(UidRange), "{text:?}");
        }
    }

    #[test]
    fn every_live_run_gets_a_user_of_its_own() {
        let users = users("100-119", None);
        let mut taken = Vec::new();
        for n in 0..20 {
            let user = users.pick(&run(&format!("run-{n}.0")), &taken);
            assert!((100..=119).contains(&user.uid) && user.gid == user.uid && !taken.contains(&user.uid), "{user:?}");
            taken.push(user.uid);
        }
        let shared = users.pick(&run("one-more.0"), &taken);
        assert!((100..=119).contains(&shared.uid));
    }

    #[test]
    fn runs_begin_at_different_places_of_the_range() {
        let users = users(DEFAULT_UIDS, Some(50));
        let picked: Vec<_> = (0..8).map(|n| users.pick(&run(&format!("run-1.{n}")), &[])).collect();
        let mut uids: Vec<_> = picked.iter().map(|user| user.uid).collect();
        uids.sort_unstable();
        uids.dedup();
        assert!(uids.len() > 4, "{uids:?}");
        assert!(picked.iter().all(|user| user.gid == 50));
        assert_eq!(users.pick(&run("run-1.0"), &[]), picked[0]);
    }

    #[test]
    fn the_whole_space_of_ids_is_a_range() {
        let users = users("1-4294967294", None);
        assert!(users.pick(&run("run-1.0"), &[1, 2, 3]).uid > 0);
    }

    #[test]
    fn a_range_that_the_host_uses_is_named() {
        let whole = "         0          0 4294967295\n";
        let free = HostIds {
            passwd: "root:x:0:0:root:/root:/bin/sh\nagent:x:1001:1001::/:/bin/sh\n",
            group: "root:x:0:\ndocker:x:999:\n",
            subordinate: ["agent:100000:65536\n", "agent:100000:65536\n"],
            maps: [whole, whole],
            engine: Some(999),
        };
        let default = users(DEFAULT_UIDS, None);
        let rows = [
            (&default, free, None),
            (&default, HostIds::default(), None),
            (&users("1000-1002", None), free, Some("user agent of this host has the id 1001;")),
            (&users("999", None), free, Some("group docker of this host has the id 999;")),
            (&users("90000-100000", None), free, Some("the subordinate ids 100000-165535 belong to agent;")),
            (&users("165535-165540", None), free, Some("the subordinate ids 100000-165535 belong to agent;")),
            (&users("165536-165540", None), free, None),
            (&users("500", Some(998)), free, None),
            (&default, HostIds { engine: None, ..free }, None),
            (&default, HostIds { maps: ["0 100000 65536\n", whole], ..free }, Some("the user namespace ")),
            (&default, HostIds { maps: [whole, "0 100000 65536\n"], ..free }, Some("the user namespace ")),
            (&users("5", Some(70000)), HostIds { maps: [whole, "0 1 65536\n"], ..free }, Some("the user namespace ")),
            (&default, HostIds { passwd: "broken\n:::\nx:y\n", group: "", ..free }, None),
        ];
        let engine = users("500", Some(999)).conflict(&free).expect("its members may use the engine");
        assert_eq!(engine, "group 999 may use the engine's socket; name another group with sidecar_gid");
        for (users, host, expected) in rows {
            let found = users.conflict(&host);
            match expected {
                None => assert_eq!(found, None, "{users:?}"),
                Some(words) => {
                    let found = found.unwrap_or_else(|| panic!("no {words}"));
                    assert!(found.starts_with(words) && found.ends_with("sidecar_uid"), "{found}");
                }
            }
        }
    }
}
