//! The changes of a run, applied to the directory of the host from which its copy came.
//!
//! A file that was changed on the host during the run stays as it is, and so does everything that git on the host could
//! execute. Each file is written beside the old one and renamed, so that no reader sees half of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, RenameFlags, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::baseline::Original;
use super::changes::Change;
use super::copy::{Owner, Place, is_missing};
use super::tree::{Entry, Kind, Tree, entry, is_beneath, open_file, split};

/// Maximum number of bytes that one run may write to the host.
const BYTES_MAX: u64 = 8 << 30;
/// Name of a file that is being written.
const TEMPORARY: &[u8] = b".sluice-unfinished";

/// Outcome of applying the changes.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) added: u64,
    pub(super) changed: u64,
    pub(super) deleted: u64,
    pub(super) bytes: u64,
    /// Changes that were not applied, with the reasons.
    pub(super) left_out: BTreeMap<Vec<u8>, String>,
}

/// The directory of the host to which changes are applied.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) host: &'a Tree,
    pub(super) work: &'a Tree,
    pub(super) owner: Owner,
    /// Paths that git on the host executes.
    pub(super) executed: &'a BTreeSet<Vec<u8>>,
    pub(super) applied: Applied,
}

impl Target<'_> {
    /// Applies the changes: deletions first, then directories, then files and links.
    pub(super) fn apply(&mut self, changes: &[Change<'_>]) {
        let allowed: Vec<_> = changes.iter().filter(|change| self.is_allowed(change)).collect();
        let is_directory =
            |change: &Change<'_>| change.before.is_some_and(|before| before.host.kind == Kind::Directory);
        let is_gone = |change: &Change<'_>| {
            change.before.is_some_and(|before| change.after.as_ref().is_none_or(|after| after.kind != before.host.kind))
        };
        for change in allowed.iter().filter(|change| is_gone(change) && !is_directory(change)) {
            self.perform(change, Self::delete);
        }
        // Directories in directories come first.
        for change in allowed.iter().rev().filter(|change| is_gone(change) && is_directory(change)) {
            self.perform(change, Self::delete_directory);
        }
        for change in allowed.iter().filter(|change| change.after.is_some()) {
            self.perform(change, Self::put);
        }
    }

    fn perform(&mut self, change: &Change<'_>, action: fn(&mut Self, &Change<'_>) -> io::Result<()>) {
        if !self.applied.left_out.contains_key(&change.path)
            && let Err(error) = action(self, change)
        {
            self.applied.left_out.insert(change.path.clone(), reason(&error));
        }
    }

    fn is_allowed(&mut self, change: &Change<'_>) -> bool {
        let reason = if is_beneath(self.executed, &change.path) {
            "git on the host executes it".to_owned()
        } else if let Some(link) = change.after.as_ref().filter(|after| after.kind == Kind::Link)
            && leads_out(&change.path, &link.target)
        {
            "it is a link that leads out of the directory, or into the metadata of git".to_owned()
        } else {
            return true;
        };
        self.applied.left_out.insert(change.path.clone(), reason);
        false
    }

    fn delete(&mut self, change: &Change<'_>) -> io::Result<()> {
        let (parent, name) = split(&change.path);
        let directory = match self.host.directory(parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            directory => directory?,
        };
        match entry(&directory, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            now => check_unchanged(change.before, Some(&now?))?,
        }
        unlinkat(&directory, name, AtFlags::empty())?;
        self.applied.deleted += u64::from(change.after.is_none());
        Ok(())
    }

    /// Removes a directory. One that still has files of the host stays.
    fn delete_directory(&mut self, change: &Change<'_>) -> io::Result<()> {
        let (parent, name) = split(&change.path);
        let Ok(directory) = self.host.directory(parent) else { return Ok(()) };
        match unlinkat(&directory, name, AtFlags::REMOVEDIR) {
            Err(error) if is_missing(error) || matches!(error, Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(()),
            removed => Ok(removed?),
        }
    }

    fn put(&mut self, change: &Change<'_>) -> io::Result<()> {
        let after = change.after.as_ref().expect("the caller has looked");
        let (parent, name) = split(&change.path);
        let directory = self.host.directory(parent)?;
        let now = match entry(&directory, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            now => Some(now?),
        };
        let is_replaced = change.before.is_some_and(|before| before.host.kind == after.kind);
        if self.is_equal(change, now.as_ref())? {
            return Ok(());
        }
        let before = change.before.filter(|_| is_replaced);
        check_unchanged(before, now.as_ref())?;
        let mode = mode_on_host(after, now.as_ref());
        let owner = self.owner;
        match after.kind {
            Kind::Directory => Place { directory: &directory, name, owner, mode: mode | 0o700 }.make_directory()?,
            Kind::Link | Kind::File => {
                let _ = unlinkat(&directory, TEMPORARY, AtFlags::empty());
                let place = Place { directory: &directory, name: TEMPORARY, owner, mode };
                let written = self.write(&place, &change.path, after).and_then(|bytes| {
                    // Once more: the copy may have taken a while.
                    let now = entry(&directory, name).ok();
                    check_unchanged(before, now.as_ref())?;
                    rename(&directory, name, before.is_some())?;
                    Ok(bytes)
                });
                if written.is_err() {
                    let _ = unlinkat(&directory, TEMPORARY, AtFlags::empty());
                }
                self.applied.bytes += written?;
            }
            Kind::Special => return Err(io::Error::other("it is a device, a FIFO or a socket")),
        }
        if after.kind != Kind::Directory {
            let count = if change.before.is_some() { &mut self.applied.changed } else { &mut self.applied.added };
            *count += 1;
        }
        Ok(())
    }

    fn write(&self, place: &Place<'_>, path: &[u8], after: &Entry) -> io::Result<u64> {
        if after.kind == Kind::Link {
            return place.link(&after.target).map(|()| 0);
        }
        let (parent, name) = split(path);
        let from = open_file(&self.work.directory(parent)?, name)?;
        let written = place.write(&from, BYTES_MAX.saturating_sub(self.applied.bytes))?;
        // The content is new, whatever time the run has given its file.
        rustix::fs::utimensat(place.directory, place.name, &NOW, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(written)
    }

    /// Returns whether the host has the same file already.
    fn is_equal(&self, change: &Change<'_>, now: Option<&Entry>) -> io::Result<bool> {
        let (Some(after), Some(now)) = (&change.after, now) else { return Ok(false) };
        match (after.kind, now.kind) {
            (Kind::Directory, Kind::Directory) => Ok(true),
            (Kind::Link, Kind::Link) => Ok(after.target == now.target),
            (Kind::File, Kind::File) if after.size == now.size && after.is_executable() == now.is_executable() => {
                is_same_content(self.work.file(&change.path)?, self.host.file(&change.path)?)
            }
            _ => Ok(false),
        }
    }
}

const NOW: rustix::fs::Timestamps = {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    rustix::fs::Timestamps { last_access: now, last_modification: now }
};

/// Renames the finished file. A new file never replaces another one.
fn rename(directory: &OwnedFd, name: &[u8], replaces: bool) -> io::Result<()> {
    if replaces {
        return Ok(renameat(directory, TEMPORARY, directory, name)?);
    }
    match renameat_with(directory, TEMPORARY, directory, name, RenameFlags::NOREPLACE) {
        // A file system without this flag; the name was free a moment ago.
        Err(Errno::INVAL) => Ok(renameat(directory, TEMPORARY, directory, name)?),
        renamed => Ok(renamed?),
    }
}

/// Checks that the host still has what it had at the start of the run.
fn check_unchanged(before: Option<&Original>, now: Option<&Entry>) -> io::Result<()> {
    let reason = match (before, now) {
        (None, None) => return Ok(()),
        (Some(before), Some(now)) if now.has_same_content(&before.host) => return Ok(()),
        (None, Some(_)) => "the host has such a file, which the run has not seen",
        (Some(_), None) => "it was deleted on the host during the run",
        (Some(_), Some(_)) => "it was changed on the host during the run",
    };
    Err(io::Error::other(reason))
}

/// Returns the mode of a file on the host. A run decides who may execute its files, and gives no right to write.
fn mode_on_host(after: &Entry, now: Option<&Entry>) -> u32 {
    match now.filter(|now| now.kind == after.kind) {
        Some(now) if now.is_executable() == after.is_executable() => now.mode & 0o777,
        Some(now) if after.is_executable() => (now.mode & 0o777) | (now.mode & 0o444) >> 2,
        Some(now) => now.mode & 0o666,
        None => (after.mode & 0o755) | 0o600,
    }
}

/// Returns whether a link leads out of the tree, or through a name of git, by its text.
fn leads_out(path: &[u8], target: &[u8]) -> bool {
    if target.starts_with(b"/") || super::git_names::has_git_name(target) {
        return true;
    }
    let mut depth = split(path).0.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).count();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if depth == 0 => return true,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}

fn is_same_content(one: std::fs::File, other: std::fs::File) -> io::Result<bool> {
    use std::io::{BufReader, Read};
    let (mut one, mut other) = (BufReader::new(one), BufReader::new(other));
    let [mut left, mut right] = [[0; 8192]; 2];
    loop {
        let count = one.read(&mut left)?;
        if count == 0 {
            return Ok(other.read(&mut right)? == 0);
        }
        if other.read_exact(&mut right[..count]).is_err() || left[..count] != right[..count] {
            return Ok(false);
        }
    }
}

/// Returns a reason in words.
fn reason(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => {
            "its directory is a link or another file system now".to_owned()
        }
        Some(Errno::EXIST | Errno::ISDIR) => "the host has such a file, which the run has not seen".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_tree_are_known() {
        for (path, target, expected) in [
            ("a", "b", false),
            ("a/b", "../c", false),
            ("a/b", "../../c", true),
            ("a", "..", true),
            ("a", "/etc/passwd", true),
            ("a", ".git/hooks", true),
            ("a/b/c", "../../.GIT/config", true),
            ("a/b", "./../x/y/../..", false),
        ] {
            assert_eq!(leads_out(path.as_bytes(), target.as_bytes()), expected, "{path} -> {target}");
        }
    }
}
