//! Compares a workspace with its last known state.
//!
//! The sandbox can change names during a scan. Each name is opened beneath the workspace, through no link and no mount,
//! and only regular files are read.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, StatxFlags, fstat, statx};
use sha2::{Digest, Sha256};

use super::change::{ChangeKind, DiffOmitted, DiffSide, FileChange, ObservedKind, TextDiff, difference};
use super::contents::{ContentAge, Contents};
use super::index::{FileIndex, KnownFile, KnownName, is_left_out};
use super::limits::{OwnerShare, WatchLimits};
use super::notifier::{Drained, Notifier};
use super::sink::{Sink, WatchNotice};
use crate::exchange::is_gone;
use crate::exchange::tree::{Kind, Tree, TreeEntry, find, join, read_found, split};

/// Maximum length of the path of a directory that is entered.
const PATH_MAX: usize = 4000;

/// Time at which files are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// At the start: only files that changed after this time are reported.
    Start(Option<SystemTime>),
    Later,
}

/// Compares a workspace with its last known state.
#[derive(Debug)]
pub(super) struct WorkspaceScanner {
    tree: Tree,
    index: FileIndex,
    contents: Contents,
    notifier: Option<Notifier>,
    limits: WatchLimits,
    pub(super) sink: Sink,
    moment: Moment,
    /// True if not each directory is watched.
    is_partial: bool,
}

/// The content of a file as it was read.
enum FoundContent {
    Text(Vec<u8>, [u8; 32]),
    Binary([u8; 32]),
    None(DiffOmitted),
}

impl WorkspaceScanner {
    pub(super) fn new(tree: Tree, limits: WatchLimits, share: OwnerShare, sink: Sink) -> Self {
        let notifier = Notifier::open(limits.watches, share.clone());
        let mut scanner = Self {
            tree,
            index: FileIndex::new(limits.entries, limits.paths),
            contents: Contents::new(limits.content, share),
            is_partial: notifier.is_none(),
            notifier,
            limits,
            sink,
            moment: Moment::Later,
        };
        if scanner.notifier.is_none() {
            scanner.sink.notice(WatchNotice::NoNotices);
        }
        scanner
    }

    /// Checks the whole workspace for the first time.
    pub(super) fn begin(&mut self, since: Option<SystemTime>) {
        self.moment = Moment::Start(since);
        self.walk(None);
        self.moment = Moment::Later;
    }

    /// Returns true if notices do not cover the whole workspace.
    pub(super) fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Returns the shortest time between two walks.
    pub(super) fn walk_every(&self) -> Duration {
        self.limits.walk_every
    }

    /// Returns the queue of notices.
    pub(super) fn notices(&self) -> Option<BorrowedFd<'_>> {
        self.notifier.as_ref().map(AsFd::as_fd)
    }

    /// Passes the paths with notices. Returns whether some notices are missing.
    pub(super) fn drain(&mut self, mut note: impl FnMut(Vec<u8>)) -> Drained {
        let Some(notifier) = &mut self.notifier else { return Drained::Complete };
        notifier.drain(|path| {
            if !is_left_out(&path) {
                note(path);
            }
        })
    }

    /// Checks the whole workspace. Returns false if the time was up before.
    pub(super) fn walk(&mut self, until: Option<Instant>) -> bool {
        self.index.set(b"", KnownName::Directory(self.watch_of(b"")));
        self.walk_from(vec![Vec::new()], until)
    }

    /// Checks one name, and all names below it.
    pub(super) fn look_at(&mut self, path: &[u8]) {
        if self.look_again(path) {
            self.walk_from(vec![path.to_vec()], None);
        }
    }

    /// Checks one name. Returns true for a directory to enter.
    fn look_again(&mut self, path: &[u8]) -> bool {
        let (parent, name) = split(path);
        match self.tree.directory(parent) {
            Ok(directory) => return self.look(&directory, parent, name),
            Err(error) if is_gone(&error) => self.vanished(path),
            Err(_) => {}
        }
        false
    }

    fn walk_from(&mut self, mut waiting: Vec<Vec<u8>>, until: Option<Instant>) -> bool {
        let top = waiting.first().cloned().unwrap_or_default();
        let mut left = self.limits.entries * 2;
        self.index.begin_walk();
        while let Some(path) = waiting.pop() {
            let Ok(directory) = self.tree.directory(&path) else { continue };
            self.watch(&path, &directory);
            let Ok(names) = Dir::read_from(&directory) else { continue };
            for found in names {
                // Each file can take long to compare, and a directory can have many.
                if self.must_stop(until) {
                    return false;
                }
                let Ok(found) = found else { break };
                let name = found.file_name().to_bytes();
                if name == b"." || name == b".." {
                    continue;
                }
                if left == 0 {
                    self.sink.notice(WatchNotice::TooManyFiles);
                    break;
                }
                left -= 1;
                if self.look(&directory, &path, name) {
                    waiting.push(join(&path, name));
                }
            }
        }
        if self.is_removed() {
            return true;
        }
        for path in self.index.unmet(&top) {
            if self.must_stop(until) {
                return false;
            }
            // The name is gone, or the walk reached its limit before it.
            self.look_again(&path);
        }
        true
    }

    fn must_stop(&self, until: Option<Instant>) -> bool {
        self.sink.is_closed() || until.is_some_and(|until| Instant::now() >= until)
    }

    /// Compares one name of a directory with its last known state. Returns true for a directory to enter.
    fn look(&mut self, directory: &OwnedFd, parent: &[u8], name: &[u8]) -> bool {
        let path = join(parent, name);
        if path.len() > PATH_MAX || is_left_out(&path) {
            return false;
        }
        match find(directory, name) {
            Ok((found, entry)) if entry.kind == Kind::Directory => {
                drop(found);
                self.enter(&path)
            }
            Ok((found, entry)) => {
                self.compare(&path, &found, entry);
                false
            }
            Err(error) if is_gone(&error) => {
                self.vanished(&path);
                false
            }
            // A name that cannot be checked keeps its last known state.
            Err(_) => {
                self.index.meet(&path);
                false
            }
        }
    }

    /// Notes a directory. Returns true if there is room for it.
    fn enter(&mut self, path: &[u8]) -> bool {
        if matches!(self.index.get(path), Some(KnownName::File(_))) {
            self.vanished(path);
        }
        if !self.index.has_room(path) {
            self.sink.notice(WatchNotice::TooManyFiles);
            return false;
        }
        self.index.set(path, KnownName::Directory(self.watch_of(path)));
        true
    }

    fn watch_of(&self, path: &[u8]) -> Option<i32> {
        match self.index.get(path) {
            Some(KnownName::Directory(watch)) => *watch,
            _ => None,
        }
    }

    /// Requests notices about a directory. A directory that replaced another one gets its own watch.
    fn watch(&mut self, path: &[u8], directory: &OwnedFd) {
        let before = self.watch_of(path);
        let Some(notifier) = &mut self.notifier else { return };
        let watch = notifier.watch(path, directory);
        if let Some(before) = before.filter(|before| watch.is_some_and(|watch| watch != *before)) {
            notifier.forget(before, path);
        }
        if watch.is_none() && before.is_none() {
            self.is_partial = true;
            self.sink.notice(WatchNotice::WatchLimit);
        }
        self.index.set(path, KnownName::Directory(watch.or(before)));
    }

    /// Compares a file with its last known state, and reports the change.
    fn compare(&mut self, path: &[u8], found: &OwnedFd, entry: TreeEntry) {
        if matches!(self.index.get(path), Some(KnownName::Directory(_))) {
            self.vanished(path);
        }
        let known = match self.index.get(path) {
            Some(KnownName::File(known)) if known.entry.is_same_version(&entry) => return self.index.meet(path),
            Some(KnownName::File(known)) => Some((known.entry.clone(), known.hash, known.is_text)),
            _ => None,
        };
        if !self.index.has_room(path) {
            return self.sink.notice(WatchNotice::TooManyFiles);
        }
        let content = self.read(found, &entry);
        let (hash, is_text) = match &content {
            FoundContent::Text(_, hash) => (Some(*hash), true),
            FoundContent::Binary(hash) => (Some(*hash), false),
            FoundContent::None(_) => (None, true),
        };
        let is_same = hash.is_some() && known.as_ref().is_some_and(|(_, before, _)| *before == hash);
        if !is_same && let Some(change) = self.kind_of_change(known.is_some(), found, &entry) {
            let diff = match (&content, &known) {
                (FoundContent::None(omitted), _) => Err(*omitted),
                (FoundContent::Binary(_), _) => Err(DiffOmitted::Binary),
                (FoundContent::Text(..), None) if change != ChangeKind::Created => Err(DiffOmitted::NoBaseline),
                (FoundContent::Text(new, _), known) => {
                    let before = known.as_ref().map(|(entry, hash, is_text)| (entry, *hash, *is_text));
                    self.diff(path, before, Some(DiffSide { entry: &entry, content: new }))
                }
            };
            let kind = ObservedKind::of(entry.kind);
            let size = Some(entry.size);
            self.sink.change(FileChange { path: path.to_vec(), change, kind, size, diff });
        }
        let known = known.and_then(|(_, hash, _)| hash);
        if !is_same && let FoundContent::Text(bytes, hash) = content {
            let age = if matches!(self.moment, Moment::Start(_)) { ContentAge::Start } else { ContentAge::Later };
            self.contents.keep(hash, bytes, age);
        }
        if let Some(before) = known.filter(|_| !is_same) {
            self.contents.release(&before);
        }
        self.index.set(path, KnownName::File(KnownFile { entry, hash, is_text }));
    }

    /// Returns the kind of a change; `None` at the start for a change that is not reported.
    fn kind_of_change(&self, is_known: bool, found: &OwnedFd, entry: &TreeEntry) -> Option<ChangeKind> {
        match self.moment {
            Moment::Later => Some(if is_known { ChangeKind::Modified } else { ChangeKind::Created }),
            Moment::Start(since) => {
                let since = since?.duration_since(UNIX_EPOCH).ok()?;
                let since = (i64::try_from(since.as_secs()).ok()?, i64::from(since.subsec_nanos()));
                if entry.changed_at() <= since {
                    return None;
                }
                let is_new = born_at(found).is_none_or(|born| born > since);
                Some(if is_new { ChangeKind::Created } else { ChangeKind::Modified })
            }
        }
    }

    /// Returns the diff between the kept content and the new one.
    fn diff(
        &self,
        path: &[u8],
        before: Option<(&TreeEntry, Option<[u8; 32]>, bool)>,
        after: Option<DiffSide<'_>>,
    ) -> Result<TextDiff, DiffOmitted> {
        let max = self.limits.diff;
        let Some((entry, hash, is_text)) = before else { return Ok(difference(path, None, after, max)) };
        if entry.kind != Kind::File {
            return Err(DiffOmitted::NotAFile);
        }
        if !is_text {
            return Err(DiffOmitted::Binary);
        }
        let old = hash.and_then(|hash| self.contents.get(&hash)).ok_or(DiffOmitted::NoBaseline)?;
        Ok(difference(path, Some(DiffSide { entry, content: &old }), after, max))
    }

    fn read(&self, found: &OwnedFd, entry: &TreeEntry) -> FoundContent {
        let max = self.limits.file;
        if entry.kind != Kind::File {
            return FoundContent::None(DiffOmitted::NotAFile);
        }
        if entry.size > max {
            return FoundContent::None(DiffOmitted::TooLarge);
        }
        if self.moment != Moment::Later && !self.contents.has_room_at_start(entry.size) {
            return FoundContent::None(DiffOmitted::NoBaseline);
        }
        let mut bytes = Vec::new();
        let read = read_found(found, entry).and_then(|file: File| file.take(max + 1).read_to_end(&mut bytes));
        match read {
            Err(_) => FoundContent::None(DiffOmitted::Unreadable),
            Ok(_) if bytes.len() as u64 > max => FoundContent::None(DiffOmitted::TooLarge),
            Ok(_) => {
                let hash = Sha256::digest(&bytes).into();
                if bytes.contains(&0) { FoundContent::Binary(hash) } else { FoundContent::Text(bytes, hash) }
            }
        }
    }

    /// Reports that a name, and all names below it, are gone.
    fn vanished(&mut self, path: &[u8]) {
        if self.is_removed() {
            return;
        }
        for inner in self.index.beneath(path) {
            self.forget(&inner);
        }
        self.forget(path);
    }

    fn forget(&mut self, path: &[u8]) {
        match self.index.remove(path) {
            None => {}
            Some(KnownName::Directory(watch)) => {
                if let (Some(notifier), Some(watch)) = (&mut self.notifier, watch) {
                    notifier.forget(watch, path);
                }
            }
            Some(KnownName::File(known)) => {
                let KnownFile { entry, hash, is_text } = &known;
                let diff = match entry.kind {
                    Kind::File if entry.size > self.limits.file => Err(DiffOmitted::TooLarge),
                    _ => self.diff(path, Some((entry, *hash, *is_text)), None),
                };
                let kind = ObservedKind::of(entry.kind);
                let (path, change) = (path.to_vec(), ChangeKind::Deleted);
                self.sink.change(FileChange { path, change, kind, size: None, diff });
                if let Some(hash) = known.hash {
                    self.contents.release(&hash);
                }
            }
        }
    }

    /// Returns true if the workspace itself was removed: then nothing in it was deleted by the sandbox.
    fn is_removed(&self) -> bool {
        self.tree.directory(b"").is_ok_and(|root| fstat(&root).is_ok_and(|stat| stat.st_nlink == 0))
    }
}

/// Returns the time at which a file was made, if its file system says it.
fn born_at(found: &OwnedFd) -> Option<(i64, i64)> {
    let stat = statx(found, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let has = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    has.then_some((stat.stx_btime.tv_sec, i64::from(stat.stx_btime.tv_nsec)))
}
