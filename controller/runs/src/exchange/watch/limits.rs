//! What the watch of one workspace, and of all together, may use.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limits of one watched workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchLimits {
    /// Files and directories that are known.
    pub entries: usize,
    /// Bytes of their paths.
    pub paths: usize,
    /// Directories with notices of the kernel. The others are walked through.
    pub watches: usize,
    /// Bytes of content that are kept for diffs.
    pub content: usize,
    /// Size of a file with a diff.
    pub file: u64,
    /// Size of a diff.
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
#[derive(Debug)]
pub struct WatchShare {
    content: AtomicU64,
    watches: AtomicU64,
}

/// Bytes of content of all workspaces together.
const CONTENT: u64 = 256 << 20;
/// Watches of a user where the kernel does not say it.
const WATCHES: u64 = 8192;

impl WatchShare {
    /// Returns the share of this host: half of the watches that the kernel gives to a user.
    #[must_use]
    pub fn of_host() -> Arc<Self> {
        let text = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap_or_default();
        Arc::new(Self::new(CONTENT, text.trim().parse().unwrap_or(WATCHES) / 2))
    }

    /// Returns a share of this size.
    #[must_use]
    pub fn new(content: u64, watches: u64) -> Self {
        Self { content: AtomicU64::new(content), watches: AtomicU64::new(watches) }
    }

    pub(super) fn take_content(&self, bytes: usize) -> bool {
        take(&self.content, bytes as u64)
    }

    pub(super) fn return_content(&self, bytes: usize) {
        self.content.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn take_watch(&self) -> bool {
        take(&self.watches, 1)
    }

    pub(super) fn return_watches(&self, count: usize) {
        self.watches.fetch_add(count as u64, Ordering::Relaxed);
    }
}

fn take(left: &AtomicU64, amount: u64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(amount)).is_ok()
}
