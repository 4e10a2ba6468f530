//! The content of files before their next change, by its hash, within a limit.
//!
//! The content at the start of a run stays as long as a file has it. Of later content, the oldest is dropped first: a program
//! that writes many files must not push out the original files of the run.

use std::collections::{BTreeMap, HashMap};
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

/// A content that files have.
#[derive(Debug, Default)]
struct KnownContent {
    /// Number of files that have it.
    files: usize,
    /// `None` if there was no room for it, or if it was dropped.
    kept: Option<KeptContent>,
}

#[derive(Debug)]
struct KeptContent {
    bytes: Arc<[u8]>,
    /// Key in the order of later contents; `None` for a content of the start.
    number: Option<u64>,
}

/// The kept contents of one workspace.
#[derive(Debug)]
pub(super) struct Contents {
    known: HashMap<ContentHash, KnownContent>,
    /// Hashes of the kept later contents, oldest first.
    order: BTreeMap<u64, ContentHash>,
    /// Number of the newest later content.
    newest: u64,
    used: usize,
    used_of_start: usize,
    max: usize,
    share: OwnerShare,
}

impl Contents {
    pub(super) fn new(max: usize, share: OwnerShare) -> Self {
        let (known, order) = (HashMap::new(), BTreeMap::new());
        Self { known, order, newest: 0, used: 0, used_of_start: 0, max, share }
    }

    /// Returns a content, if it is kept.
    pub(super) fn get(&self, hash: &ContentHash) -> Option<Arc<[u8]>> {
        let kept = self.known.get(hash)?.kept.as_ref()?;
        Some(Arc::clone(&kept.bytes))
    }

    /// Returns true if content of this size would be kept at the start.
    pub(super) fn has_room_at_start(&self, size: u64) -> bool {
        usize::try_from(size).is_ok_and(|size| self.used_of_start + size <= self.max / OF_START * (OF_START - 1))
    }

    /// Notes that a file has this content, and keeps the content if there is room.
    pub(super) fn keep(&mut self, hash: ContentHash, bytes: Vec<u8>, age: ContentAge) {
        let known = self.known.entry(hash).or_default();
        // The file counts even if there is no room: it releases the content later.
        known.files += 1;
        let len = bytes.len();
        if known.kept.is_some() || !self.take_room(len, age) {
            return;
        }
        self.used += len;
        let number = match age {
            ContentAge::Start => {
                self.used_of_start += len;
                None
            }
            ContentAge::Later => {
                self.newest += 1;
                self.order.insert(self.newest, hash);
                Some(self.newest)
            }
        };
        self.known.entry(hash).or_default().kept = Some(KeptContent { bytes: bytes.into(), number });
    }

    /// Notes that a file has this content no longer.
    pub(super) fn release(&mut self, hash: &ContentHash) {
        let Some(known) = self.known.get_mut(hash) else { return };
        known.files -= 1;
        if known.files == 0 {
            self.drop_bytes(hash);
            self.known.remove(hash);
        }
    }

    /// Takes room for a content from the share of the owner. If necessary, the oldest later contents of this workspace
    /// are dropped for it. Returns false if there is no room.
    fn take_room(&mut self, len: usize, age: ContentAge) -> bool {
        if age == ContentAge::Start && !self.has_room_at_start(len as u64) {
            return false;
        }
        while self.used + len > self.max {
            let Some((_, oldest)) = self.order.pop_first() else { return false };
            self.drop_bytes(&oldest);
        }
        self.share.take_content(len)
    }

    fn drop_bytes(&mut self, hash: &ContentHash) {
        let Some(kept) = self.known.get_mut(hash).and_then(|known| known.kept.take()) else { return };
        let len = kept.bytes.len();
        self.used -= len;
        if let Some(number) = kept.number {
            self.order.remove(&number);
        } else {
            self.used_of_start -= len;
        }
        self.share.return_content(len);
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

    /// Bug: the first entry in the order made the content older than others that came before it.
    #[test]
    fn a_content_that_is_kept_again_is_new() {
        let mut contents = contents(12, 1000);
        contents.keep([1; 32], vec![1; 4], ContentAge::Later);
        contents.release(&[1; 32]);
        for n in [2, 1, 3, 4] {
            contents.keep([n; 32], vec![n; 4], ContentAge::Later);
        }
        let kept: Vec<_> = (0..10).filter(|n| contents.get(&[*n; 32]).is_some()).collect();
        assert_eq!((kept, contents.used), (vec![1, 3, 4], 12));
    }

    /// Bug: after the content was dropped, its files were no longer counted.
    #[test]
    fn a_dropped_content_keeps_the_number_of_its_files() {
        let mut contents = contents(8, 1000);
        for n in [1, 1, 2, 3] {
            contents.keep([n; 32], vec![n; 4], ContentAge::Later);
        }
        assert!(contents.get(&[1; 32]).is_none(), "it is the oldest");
        contents.keep([1; 32], vec![1; 4], ContentAge::Later);
        contents.release(&[1; 32]);
        contents.release(&[1; 32]);
        assert!(contents.get(&[1; 32]).is_some(), "the third file has it");
        contents.release(&[1; 32]);
        assert!(contents.get(&[1; 32]).is_none() && contents.used == 4);
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
        assert!(contents.order.is_empty() && contents.known.is_empty());
    }
}
