//! The changes of a run, applied to the directory of the host from which its copy came.
//!
//! A file that was changed on the host during the run stays as it is, and so does everything that git on the host could
//! execute. Each file is written beside the old one and renamed, so that no reader sees a partial file. The run's name is
//! a part of the written file's name, so runs never overwrite each other's files.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, RenameFlags, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::baseline::Original;
use super::changes::Change;
use super::copy::{Age, Allowance, NewEntry};
use super::git_names::is_git_directory;
use super::interrupt::CancelFlag;
use super::owner::Owner;
use super::tree::{Kind, Tree, TreeEntry, entry, is_above, is_beneath, split};

/// Maximum number of bytes that one run may write to the host.
const BYTES_MAX: u64 = 8 << 30;

/// Outcome of applying the changes.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) added: u64,
    pub(super) changed: u64,
    pub(super) deleted: u64,
    pub(super) bytes: u64,
    /// Changes that were not applied, with the reasons.
    pub(super) left_out: BTreeMap<Vec<u8>, Cow<'static, str>>,
}

/// The directory of the host to which changes are applied.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) host: &'a Tree,
    pub(super) work: &'a Tree,
    pub(super) owner: Owner,
    /// Paths that git on the host executes.
    pub(super) executed: &'a BTreeSet<Vec<u8>>,
    /// Name of files while they are written.
    temporary: Vec<u8>,
    interrupt: &'a CancelFlag,
    allowance: Allowance,
    is_full: bool,
    applied: Applied,
}

impl<'a> Target<'a> {
    /// Returns a target to which this run may write at most `BYTES_MAX` bytes.
    pub(super) fn new(
        host: &'a Tree,
        work: &'a Tree,
        owner: Owner,
        executed: &'a BTreeSet<Vec<u8>>,
        temporary: Vec<u8>,
        interrupt: &'a CancelFlag,
    ) -> Self {
        let allowance = Allowance::new(BYTES_MAX, interrupt);
        Self {
            host,
            work,
            owner,
            executed,
            temporary,
            interrupt,
            allowance,
            is_full: false,
            applied: Applied::default(),
        }
    }
}

impl Target<'_> {
    /// Applies the changes: deletions first, then directories, then files and links. A file or a link that has become
    /// something else is replaced with its new version, so that it stays if this version is refused.
    pub(super) fn apply(mut self, changes: &[Change<'_>]) -> Applied {
        let allowed: Vec<_> = changes.iter().filter(|change| self.is_allowed(change)).collect();
        let is_directory =
            |change: &Change<'_>| change.before.is_some_and(|before| before.host.kind == Kind::Directory);
        let is_gone = |change: &Change<'_>| {
            change.before.is_some_and(|before| change.after.as_ref().is_none_or(|after| after.kind != before.host.kind))
        };
        for change in allowed.iter().filter(|change| change.after.is_none() && !is_directory(change)) {
            self.perform(change, Self::delete);
        }
        // Nested directories are deleted before the directories that contain them.
        for change in allowed.iter().rev().filter(|change| is_gone(change) && is_directory(change)) {
            self.perform(change, Self::delete_directory);
        }
        for change in allowed.iter().filter(|change| change.after.is_some()) {
            self.perform(change, Self::put);
        }
        Applied { bytes: self.allowance.used(), ..self.applied }
    }

    fn perform(&mut self, change: &Change<'_>, action: fn(&mut Self, &Change<'_>) -> io::Result<()>) {
        if !self.applied.left_out.contains_key(&change.path)
            && let Err(error) = self.interrupt.check().and_then(|()| action(self, change))
        {
            // Later changes fail at once, without a copy that would fail too.
            self.is_full |= error.kind() == io::ErrorKind::FileTooLarge;
            self.applied.left_out.insert(change.path.clone(), reason(&error));
        }
    }

    fn is_allowed(&mut self, change: &Change<'_>) -> bool {
        let link = change.after.as_ref().filter(|after| after.kind == Kind::Link);
        let reason = if is_beneath(self.executed, &change.path) {
            "git on the host executes it"
        } else if link.is_some() && is_above(self.executed, &change.path) {
            "it is a link on the way to what git on the host executes"
        } else if let Some(link) = link
            && leads_out(&change.path, &link.target)
        {
            "it is a link that leads out of the directory, or into the metadata of git"
        } else {
            return true;
        };
        self.applied.left_out.insert(change.path.clone(), reason.into());
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
        self.applied.deleted += 1;
        Ok(())
    }

    /// Removes a directory. A directory that still has files of the host stays.
    fn delete_directory(&mut self, change: &Change<'_>) -> io::Result<()> {
        let (parent, name) = split(&change.path);
        let Ok(directory) = self.host.directory(parent) else { return Ok(()) };
        match unlinkat(&directory, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(()),
            removed => Ok(removed?),
        }
    }

    fn put(&mut self, change: &Change<'_>) -> io::Result<()> {
        let after = change.after.as_ref().expect("the caller has looked");
        if self.is_full {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let (parent, name) = split(&change.path);
        let directory = self.host.directory(parent)?;
        let now = match entry(&directory, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            now => Some(now?),
        };
        if self.is_equal(change, now.as_ref())? {
            return Ok(());
        }
        // A directory that has become something else was removed before.
        let is_replaced = |before: &Original| before.host.kind == after.kind || before.host.kind != Kind::Directory;
        let before = change.before.filter(|before| is_replaced(before));
        check_unchanged(before, now.as_ref())?;
        if would_be_repository(&directory, name)? {
            return Err(io::Error::other("git on the host would take its directory for a repository"));
        }
        let mode = mode_on_host(after, now.as_ref());
        let owner = self.owner;
        match after.kind {
            Kind::Directory if before.is_none() => {
                NewEntry { directory: &directory, name, owner, mode: mode | 0o700 }.make_directory()?;
            }
            Kind::Directory => {
                let place = NewEntry { directory: &directory, name: &self.temporary, owner, mode: mode | 0o700 };
                replace_by_directory(&place, name, before)?;
            }
            Kind::Link | Kind::File => {
                let temporary = self.temporary.clone();
                let place = NewEntry { directory: &directory, name: &temporary, owner, mode };
                let from = match after.kind {
                    Kind::File => Some(self.work.file(&change.path)?),
                    _ => None,
                };
                // The content is new, even if the run has set an old time.
                let written = match &from {
                    Some(from) => place.copy(from, Age::New, &mut self.allowance),
                    None => place.link(&after.target),
                };
                // Another program uses this name; its file stays.
                if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
                    return Err(name_taken(&temporary));
                }
                let renamed = written.and_then(|()| {
                    // Checked again, because the copy may have taken a while.
                    let now = entry(&directory, name).ok();
                    check_unchanged(before, now.as_ref())?;
                    rename(&place, name, before.is_some())
                });
                if renamed.is_err() {
                    let _ = unlinkat(&directory, &*temporary, AtFlags::empty());
                }
                renamed?;
            }
            Kind::Special => return Err(io::Error::other("it is a device, a FIFO or a socket")),
        }
        if after.kind != Kind::Directory {
            let count = if change.before.is_some() { &mut self.applied.changed } else { &mut self.applied.added };
            *count += 1;
        }
        Ok(())
    }

    /// Returns whether the host already has the same file.
    fn is_equal(&self, change: &Change<'_>, now: Option<&TreeEntry>) -> io::Result<bool> {
        let (Some(after), Some(now)) = (&change.after, now) else { return Ok(false) };
        match (after.kind, now.kind) {
            (Kind::Directory, Kind::Directory) => Ok(true),
            (Kind::Link, Kind::Link) => Ok(after.target == now.target),
            (Kind::File, Kind::File) if after.size == now.size && after.is_executable() == now.is_executable() => {
                is_same_content(self.work.file(&change.path)?, self.host.file(&change.path)?, self.interrupt)
            }
            _ => Ok(false),
        }
    }
}

fn name_taken(name: &[u8]) -> io::Error {
    let name = String::from_utf8_lossy(name);
    io::Error::other(format!("a file {name} is beside it, from a run of this name; remove that file"))
}

/// Renames the finished file. A new file never replaces another one, if the file system can prevent it.
fn rename(finished: &NewEntry<'_>, name: &[u8], replaces: bool) -> io::Result<()> {
    let NewEntry { directory, name: temporary, .. } = *finished;
    if replaces {
        return Ok(renameat(directory, temporary, directory, name)?);
    }
    match renameat_with(directory, temporary, directory, name, RenameFlags::NOREPLACE) {
        // A file system without this flag; the name was free a moment ago.
        Err(Errno::INVAL) => Ok(renameat(directory, temporary, directory, name)?),
        renamed => Ok(renamed?),
    }
}

/// Replaces a file with a directory. The file stays if the directory cannot be made.
fn replace_by_directory(place: &NewEntry<'_>, name: &[u8], before: Option<&Original>) -> io::Result<()> {
    let made = place.make_directory();
    if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
        return Err(name_taken(place.name));
    }
    let replaced = made.and_then(|_| exchange(place, name, before));
    if replaced.is_err() {
        let _ = unlinkat(place.directory, place.name, AtFlags::REMOVEDIR);
    }
    replaced
}

/// Gives the finished directory the name of a file, and deletes the file. No directory can be renamed to the name of a
/// file, but both can exchange their names.
fn exchange(finished: &NewEntry<'_>, name: &[u8], before: Option<&Original>) -> io::Result<()> {
    let NewEntry { directory, name: temporary, .. } = *finished;
    let exchange_names = || renameat_with(directory, temporary, directory, name, RenameFlags::EXCHANGE);
    match exchange_names() {
        // A file system without this flag; the file was unchanged a moment ago.
        Err(Errno::INVAL) => {
            unlinkat(directory, name, AtFlags::empty())?;
            return Ok(renameat(directory, temporary, directory, name)?);
        }
        exchanged => exchanged?,
    }
    let file = entry(directory, temporary);
    let deleted = file
        .and_then(|now| check_unchanged(before, Some(&now)))
        .and_then(|()| Ok(unlinkat(directory, temporary, AtFlags::empty())?));
    if deleted.is_err() {
        exchange_names()?;
    }
    deleted
}

/// Returns whether git would treat a directory of the host as a repository once it also has this name.
fn would_be_repository(directory: &OwnedFd, name: &[u8]) -> io::Result<bool> {
    let makes = [b"HEAD".as_slice(), b"objects", b"refs", b"commondir"];
    if !makes.iter().any(|part| name.eq_ignore_ascii_case(part)) {
        return Ok(false);
    }
    let mut names = vec![name.to_vec()];
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        names.extend(makes.iter().any(|part| name.eq_ignore_ascii_case(part)).then_some(name));
    }
    Ok(is_git_directory(names.iter().map(Vec::as_slice)))
}

/// Checks that the host's file is unchanged since the start of the run.
fn check_unchanged(before: Option<&Original>, now: Option<&TreeEntry>) -> io::Result<()> {
    let reason = match (before, now) {
        (None, None) => return Ok(()),
        (Some(before), Some(now)) if now.has_same_content(&before.host) => return Ok(()),
        (None, Some(_)) => "the host has such a file, which the run has not seen",
        (Some(_), None) => "it was deleted on the host during the run",
        (Some(_), Some(_)) => "it was changed on the host during the run",
    };
    Err(io::Error::other(reason))
}

/// Returns the mode of a file on the host. A run decides whether a file is executable, and gives no write permission to
/// other users.
fn mode_on_host(after: &TreeEntry, now: Option<&TreeEntry>) -> u32 {
    match now.filter(|now| now.kind == after.kind) {
        Some(now) if now.is_executable() == after.is_executable() => now.mode & 0o777,
        Some(now) if after.is_executable() => (now.mode & 0o777) | (now.mode & 0o444) >> 2,
        Some(now) => now.mode & 0o666,
        None => (after.mode & 0o755) | 0o600,
    }
}

/// Returns whether the text of a link may lead out of the tree, or through a name of git. After a name, `..` could
/// depend on the target of another link, so it is refused.
fn leads_out(path: &[u8], target: &[u8]) -> bool {
    if target.starts_with(b"/") || super::git_names::has_git_name(target) {
        return true;
    }
    let depth = split(path).0.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).count();
    let mut parts = target.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).peekable();
    let mut up = 0;
    while parts.next_if(|part| *part == b"..").is_some() {
        up += 1;
    }
    up > depth || parts.any(|part| part == b"..")
}

fn is_same_content(one: std::fs::File, other: std::fs::File, interrupt: &CancelFlag) -> io::Result<bool> {
    use std::io::{BufReader, Read};
    let (mut one, mut other) = (BufReader::new(one), BufReader::new(other));
    let [mut left, mut right] = [[0; 8192]; 2];
    loop {
        interrupt.check()?;
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
fn reason(error: &io::Error) -> Cow<'static, str> {
    if error.kind() == io::ErrorKind::FileTooLarge {
        return format!("a run may write {BYTES_MAX} bytes at most").into();
    }
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS) => "the owner of the repository may not read its directory".into(),
        Some(Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => "its directory is a link or another file system now".into(),
        Some(Errno::EXIST | Errno::ISDIR) => "the host has such a file, which the run has not seen".into(),
        _ => error.to_string().into(),
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
            ("a/b/c", "./.././../x/y", false),
            ("a/b", "./../x/y/../..", true),
            // If x/y/z is a link to its own root, this leads outside the root.
            ("b", "x/y/z/../sibling/file", true),
        ] {
            assert_eq!(leads_out(path.as_bytes(), target.as_bytes()), expected, "{path} -> {target}");
        }
    }
}
