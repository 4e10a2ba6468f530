//! Limits of the watch of one workspace, and of all watches together.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Limits of one watched workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchLimits {
    /// Maximum number of files and directories that are known.
    pub entries: usize,
    /// Maximum number of bytes of their paths.
    pub paths: usize,
    /// Maximum number of directories with notices of the kernel. The others are walked through.
    pub watches: usize,
    /// Maximum number of bytes of content kept for diffs.
    pub content: usize,
    /// Maximum size of a file with a diff.
    pub file: u64,
    /// Maximum size of a diff.
    pub diff: usize,
    /// Shortest time between two walks through a workspace without notices.
    pub walk_every: Duration,
}

impl Default for WatchLimits {
    fn default() -> Self {
        Self {
            entries: 100_000,
            paths: 16 << 20,
            watches: 4096,
            content: 64 << 20,
            file: 1 << 20,
            diff: 1 << 20,
            walk_every: Duration::from_secs(5),
        }
    }
}

/// State that all watched workspaces of a process share.
///
/// When an owner takes something, it never has more than what is then left: the first owner can take a half, and the
/// next one a half of the rest. So an owner that comes later finds something, even beside owners that take all they can
/// get.
#[derive(Debug)]
pub struct WatchShare {
    pools: Mutex<Pools>,
}

#[derive(Debug)]
struct Pools {
    content: Pool,
    watches: Pool,
}

/// A resource that owners share.
#[derive(Debug)]
struct Pool {
    left: u64,
    used: HashMap<Arc<str>, u64>,
}

/// Maximum number of bytes of content of all workspaces together.
const CONTENT: u64 = 256 << 20;
/// Number of watches of a user, if the kernel does not report it.
const WATCHES: u64 = 8192;

impl WatchShare {
    /// Returns the share of this host: half of the watches that the kernel gives to a user.
    #[must_use]
    pub fn of_host() -> Arc<Self> {
        let text = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap_or_default();
        Self::new(CONTENT, text.trim().parse().unwrap_or(WATCHES) / 2)
    }

    /// Returns a share of this size.
    #[must_use]
    pub fn new(content: u64, watches: u64) -> Arc<Self> {
        let [content, watches] = [content, watches].map(|left| Pool { left, used: HashMap::new() });
        Arc::new(Self { pools: Mutex::new(Pools { content, watches }) })
    }

    /// Returns the part of an owner, which all its workspaces share.
    #[must_use]
    pub fn of_owner(self: &Arc<Self>, owner: &str) -> OwnerShare {
        OwnerShare { share: Arc::clone(self), owner: owner.into() }
    }

    fn lock(&self) -> MutexGuard<'_, Pools> {
        // Nothing panics while it is held.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The watch resources of one owner.
#[derive(Debug, Clone)]
pub struct OwnerShare {
    share: Arc<WatchShare>,
    owner: Arc<str>,
}

impl OwnerShare {
    pub(super) fn take_content(&self, bytes: usize) -> bool {
        self.share.lock().content.take(&self.owner, bytes as u64)
    }

    pub(super) fn return_content(&self, bytes: usize) {
        self.share.lock().content.give_back(&self.owner, bytes as u64);
    }

    pub(super) fn take_watch(&self) -> bool {
        self.share.lock().watches.take(&self.owner, 1)
    }

    pub(super) fn return_watches(&self, count: usize) {
        self.share.lock().watches.give_back(&self.owner, count as u64);
    }
}

impl Pool {
    fn take(&mut self, owner: &Arc<str>, amount: u64) -> bool {
        let used = self.used.get(owner).copied().unwrap_or_default();
        let Some(left) = self.left.checked_sub(amount).filter(|left| used.saturating_add(amount) <= *left) else {
            return false;
        };
        self.left = left;
        self.used.insert(Arc::clone(owner), used + amount);
        true
    }

    fn give_back(&mut self, owner: &Arc<str>, amount: u64) {
        self.left += amount;
        if let Some(used) = self.used.get_mut(owner) {
            *used = used.saturating_sub(amount);
            if *used == 0 {
                self.used.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes watches until none is left, and returns their number.
    fn exhaust(share: &OwnerShare) -> usize {
        (0..).take_while(|_| share.take_watch()).count()
    }

    #[test]
    fn an_owner_leaves_as_much_as_it_has() {
        let share = WatchShare::new(0, 1200);
        let [alice, bob, carol] = ["alice", "bob", "carol"].map(|owner| share.of_owner(owner));
        assert_eq!((exhaust(&alice), exhaust(&share.of_owner("alice"))), (600, 0), "all its runs are one owner");
        assert_eq!((exhaust(&bob), exhaust(&carol)), (300, 150), "those who come later find something");
        alice.return_watches(600);
        assert_eq!((exhaust(&alice), exhaust(&bob)), (375, 37));
        drop((alice, bob, carol));
    }

    #[test]
    fn all_that_is_given_back_can_be_taken() {
        let share = WatchShare::new(100, 0);
        let alice = share.of_owner("alice");
        assert!(!alice.take_watch() && !alice.take_content(51) && !alice.take_content(usize::MAX));
        assert!(alice.take_content(50) && !alice.take_content(1));
        alice.return_content(50);
        assert!(share.lock().content.used.is_empty(), "an owner without runs is forgotten");
        assert!(share.of_owner("bob").take_content(50));
    }
}
