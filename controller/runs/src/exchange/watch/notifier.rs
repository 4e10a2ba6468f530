//! Notices of the kernel about directories of one workspace.
//!
//! A directory is watched by its descriptor, so names in the workspace cannot redirect the watch.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::limits::OwnerShare;
use crate::exchange::tree::join;

/// Maximum number of notices in one read. A workspace can make them as fast as they are read.
const AT_ONCE: usize = 20_000;
const BUFFER: usize = 64 << 10;

/// Events to watch for: changes of names, and of content.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

/// Notices about the directories of one workspace.
#[derive(Debug)]
pub(super) struct Notifier {
    fd: OwnedFd,
    directories: HashMap<i32, Vec<u8>>,
    max: usize,
    share: OwnerShare,
}

/// Completeness of the notices that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drained {
    /// The kernel had room for all notices.
    Complete,
    /// The kernel had no room for some.
    Overflown,
}

impl Notifier {
    /// Opens a queue of notices; `None` if the host has no queue left.
    pub(super) fn open(max: usize, share: OwnerShare) -> Option<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        Some(Self { fd, directories: HashMap::new(), max, share })
    }

    /// Watches a directory. Returns its watch; `None` if there is no room for another one.
    pub(super) fn watch(&mut self, path: &[u8], directory: &OwnedFd) -> Option<i32> {
        let is_counted = self.directories.len() < self.max && self.share.take_watch();
        let added = is_counted
            .then(|| inotify::add_watch(&self.fd, format!("/proc/self/fd/{}", directory.as_raw_fd()), CHANGES).ok())
            .flatten();
        let is_new = added.is_some_and(|watch| self.directories.insert(watch, path.to_vec()).is_none());
        if is_counted && !is_new {
            // The kernel had no room, or the directory was already watched.
            self.share.return_watches(1);
        }
        added
    }

    /// Ends a watch, unless its directory has another path by now.
    pub(super) fn forget(&mut self, watch: i32, path: &[u8]) {
        if self.directories.get(&watch).is_some_and(|known| known == path) {
            self.drop_watch(watch);
            // The kernel has already ended the watch of a removed directory.
            let _ = inotify::remove_watch(&self.fd, watch);
        }
    }

    /// Passes the paths at which something has happened.
    pub(super) fn drain(&mut self, mut note: impl FnMut(Vec<u8>)) -> Drained {
        let (mut drained, mut ended) = (Drained::Complete, Vec::new());
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        let mut read = 0;
        // Notices in the buffer are no longer in the kernel, so they are all read.
        while read < AT_ONCE || !reader.is_buffer_empty() {
            read += 1;
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                drained = Drained::Overflown;
            } else if event.events().contains(ReadFlags::IGNORED) {
                ended.push(event.wd());
            } else if let (Some(directory), Some(name)) = (self.directories.get(&event.wd()), event.file_name()) {
                note(join(directory, name.to_bytes()));
            }
        }
        ended.into_iter().for_each(|watch| self.drop_watch(watch));
        drained
    }

    fn drop_watch(&mut self, watch: i32) {
        if self.directories.remove(&watch).is_some() {
            self.share.return_watches(1);
        }
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.share.return_watches(self.directories.len());
    }
}
