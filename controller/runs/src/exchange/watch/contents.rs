//! The content of files before their next change, by its hash, within a limit.
//!
//! The content at the start of a run stays as long as a file has it. Of later content, the oldest is dropped first: a program
//! that writes many files must not push out the original files of the run.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::limits::OwnerShare;

/// SHA-256 of a content.
pub(super) type ContentHash = [u8; 32];

/// Number of equal parts of the limit; the content of the start may take all but one of them.
const OF_START: usize = 4;

/// Time at which a content was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentAge {
    /// At the start of the watch.
    Start,
    /// Later.
    Later,
}

#[derive(Debug)]
struct KeptContent {
    bytes: Arc<[u8]>,
    files: usize,
    age: ContentAge,
}

/// The kept contents of one workspace.
#[derive(Debug)]
pub(super) struct Contents {
    kept: HashMap<ContentHash, KeptContent>,
    /// Hashes of later contents, oldest first; some may be gone.
    order: VecDeque<ContentHash>,
    used: usize,
    used_of_start: usize,
    max: usize,
    share: OwnerShare,
}

impl Contents {
    pub(super) fn new(max: usize, share: OwnerShare) -> Self {
        Self { kept: HashMap::new(), order: VecDeque::new(), used: 0, used_of_start: 0, max, share }
    }

    /// Returns a content, if it is kept.
    pub(super) fn get(&self, hash: &ContentHash) -> Option<Arc<[u8]>> {
        self.kept.get(hash).map(|kept| Arc::clone(&kept.bytes))
    }

    /// Returns true if content of this size would be kept at the start.
    pub(super) fn has_room_at_start(&self, size: u64) -> bool {
        usize::try_from(size).is_ok_and(|size| self.used_of_start + size <= self.max / OF_START * (OF_START - 1))
    }

    /// Keeps the content of a file, if there is room.
    pub(super) fn keep(&mut self, hash: ContentHash, bytes: Vec<u8>, age: ContentAge) {
        if let Some(kept) = self.kept.get_mut(&hash) {
            kept.files += 1;
            return;
        }
        let len = bytes.len();
        if age == ContentAge::Start && !self.has_room_at_start(len as u64) {
            return;
        }
        while self.used + len > self.max {
            let Some(oldest) = self.order.pop_front() else { return };
            self.remove(&oldest);
        }
        if !self.share.take_content(len) {
            return;
        }
        self.used += len;
        match age {
            ContentAge::Start => self.used_of_start += len,
            ContentAge::Later => self.order.push_back(hash),
        }
        self.kept.insert(hash, KeptContent { bytes: bytes.into(), files: 1, age });
        self.forget_gone();
    }

    /// Notes that a file has this content no longer.
    pub(super) fn release(&mut self, hash: &ContentHash) {
        if let Some(kept) = self.kept.get_mut(hash) {
            kept.files -= 1;
            if kept.files == 0 {
                self.remove(hash);
            }
        }
    }

    fn remove(&mut self, hash: &ContentHash) {
        let Some(kept) = self.kept.remove(hash) else { return };
        self.used -= kept.bytes.len();
        if kept.age == ContentAge::Start {
            self.used_of_start -= kept.bytes.len();
        }
        self.share.return_content(kept.bytes.len());
    }

    /// Drops the hashes of dropped contents, once there are many.
    fn forget_gone(&mut self) {
        if self.order.len() > 2 * self.kept.len() + 64 {
            self.order.retain(|hash| self.kept.contains_key(hash));
        }
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.share.return_content(self.used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::watch::limits::WatchShare;

    fn contents(max: usize, shared: u64) -> Contents {
        Contents::new(max, WatchShare::new(shared, 0).of_owner("alice"))
    }

    #[test]
    fn the_oldest_later_content_makes_room() {
        let mut contents = contents(40, 1000);
        contents.keep([0; 32], vec![0; 30], ContentAge::Start);
        contents.keep([9; 32], vec![9; 1], ContentAge::Start);
        for n in 1..=3 {
            contents.keep([n; 32], vec![n; 4], ContentAge::Later);
        }
        let kept: Vec<_> = (0..10).filter(|n| contents.get(&[*n; 32]).is_some()).collect();
        assert_eq!((kept, contents.used), (vec![0, 2, 3], 38), "9 is over the part of the start");
        contents.keep([4; 32], vec![4; 11], ContentAge::Later);
        assert_eq!(contents.used, 30, "what does not fit is not kept, whatever goes for it");
    }

    #[test]
    fn a_content_stays_as_long_as_a_file_has_it() {
        let mut contents = contents(100, 1000);
        contents.keep([1; 32], vec![1; 10], ContentAge::Later);
        contents.keep([1; 32], vec![1; 10], ContentAge::Later);
        contents.release(&[1; 32]);
        assert!(contents.get(&[1; 32]).is_some() && contents.used == 10);
        contents.release(&[1; 32]);
        contents.release(&[1; 32]);
        assert!(contents.get(&[1; 32]).is_none() && contents.used == 0);
    }

    #[test]
    fn all_workspaces_share_one_limit() {
        let share = WatchShare::new(20, 0).of_owner("alice");
        let mut one = Contents::new(100, share.clone());
        let mut other = Contents::new(100, share);
        one.keep([1; 32], vec![1; 10], ContentAge::Later);
        other.keep([2; 32], vec![2; 10], ContentAge::Later);
        assert!(other.get(&[2; 32]).is_none());
        drop(one);
        other.keep([2; 32], vec![2; 10], ContentAge::Later);
        assert!(other.get(&[2; 32]).is_some());
    }

    #[test]
    fn many_short_lived_contents_leave_no_trace() {
        let mut contents = contents(100, 1000);
        for n in 0..100_000_u32 {
            let mut hash = [0; 32];
            hash[..4].copy_from_slice(&n.to_le_bytes());
            contents.keep(hash, vec![0; 10], ContentAge::Later);
            contents.release(&hash);
        }
        assert!(contents.order.len() < 200 && contents.kept.is_empty(), "{}", contents.order.len());
    }
}
