//! The copy of a repository for a run, and what it was at the start.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use super::copy::{Owner, Place, is_readable_by, mode_of};
use super::error::ExchangeError;
use super::git_config::without_credentials;
use super::git_names::{has_git_name, is_git_directory, is_git_name};
use super::tree::{Entry, Kind, Listing, Tree, entry, is_beneath, join, open_file};

/// Maximum number of files and directories of a repository.
pub(super) const ENTRIES_MAX: u64 = 500_000;
/// Maximum size of a repository in bytes.
pub(super) const BYTES_MAX: u64 = 32 << 30;
/// Maximum size of a configuration of git.
pub(super) const CONFIG_MAX: u64 = 1 << 20;

/// A file, directory or link at the start of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Original {
    /// On the host.
    pub(super) host: Entry,
    /// In the run's copy, before the run.
    pub(super) copy: Entry,
}

/// A repository at the start of a run, without the metadata of git.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    pub(super) entries: BTreeMap<Vec<u8>, Original>,
    /// Directories that are repositories of git, with everything in them.
    pub(super) repositories: BTreeSet<Vec<u8>>,
    /// Names of git that were there.
    pub(super) git_names: BTreeSet<Vec<u8>>,
    /// Entries that could not be copied, with the reasons.
    pub(super) skipped: Vec<(Vec<u8>, &'static str)>,
}

impl Baseline {
    /// Returns whether a path is in a directory that was a repository of git at the start.
    pub(super) fn is_in_repository(&self, path: &[u8]) -> bool {
        is_beneath(&self.repositories, path)
    }
}

/// Copies of a repository, under construction.
struct Copies<'a> {
    host: &'a Tree,
    /// For the run.
    work: &'a Tree,
    /// For the patch: as at the start, out of the reach of the run.
    base: Option<&'a Tree>,
    /// Owner of the directory on the host.
    owner: Owner,
    /// Owner of the copies.
    user: Owner,
    bytes: u64,
    baseline: Baseline,
}

/// Copies a directory of the host into an empty directory, and without the metadata of git into another one.
pub(super) fn copy_in(
    host: &Tree,
    work: &Tree,
    base: Option<&Tree>,
    owner: Owner,
    user: Owner,
) -> Result<Baseline, ExchangeError> {
    let mut copies = Copies { host, work, base, owner, user, bytes: 0, baseline: Baseline::default() };
    host.walk(ENTRIES_MAX, |listing| copies.copy(listing))?;
    Ok(copies.baseline)
}

impl Copies<'_> {
    fn copy(&mut self, listing: &Listing<'_>) -> Result<Vec<usize>, ExchangeError> {
        let names = listing.entries.iter().map(|(name, _)| name.as_slice());
        if !has_git_name(listing.path) && is_git_directory(names) {
            if listing.path.is_empty() {
                return Err(ExchangeError::GitDirectory(self.host.name().to_owned()));
            }
            self.baseline.repositories.insert(listing.path.to_vec());
        }
        let is_metadata = has_git_name(listing.path) || self.baseline.is_in_repository(listing.path);
        let to = self.work.directory(listing.path).map_err(self.work.error(listing.path))?;
        let base = match self.base.filter(|_| !is_metadata) {
            Some(base) => Some((base, base.directory(listing.path).map_err(base.error(listing.path))?)),
            None => None,
        };
        let mut enter = Vec::new();
        for (index, (name, host)) in listing.entries.iter().enumerate() {
            let path = join(listing.path, name);
            if !self.copy_entry(listing.directory, &to, name, &path, host)? {
                continue;
            }
            if host.kind == Kind::Directory {
                enter.push(index);
            }
            if is_git_name(name) {
                self.baseline.git_names.insert(path);
            } else if !is_metadata {
                if let Some((tree, directory)) = &base {
                    keep(directory, &to, name, host).map_err(tree.error(&path))?;
                }
                let copy = entry(&to, name).map_err(self.work.error(&path))?;
                self.baseline.entries.insert(path, Original { host: host.clone(), copy });
            }
        }
        Ok(enter)
    }

    /// Copies an entry, and returns whether it did.
    fn copy_entry(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &[u8],
        path: &[u8],
        host: &Entry,
    ) -> Result<bool, ExchangeError> {
        if host.kind != Kind::Link && host.kind != Kind::Special && !is_readable_by(host, self.owner) {
            self.baseline.skipped.push((path.to_vec(), "its owner is another user, and it is private"));
            return Ok(false);
        }
        let mut place = Place { directory: to, name, owner: self.user, mode: mode_of(host, 0o600) };
        let copied = match host.kind {
            Kind::Special => {
                self.baseline.skipped.push((path.to_vec(), "it is a device, a FIFO or a socket"));
                return Ok(false);
            }
            Kind::Directory => {
                place.mode |= 0o700;
                place.make_directory()
            }
            Kind::Link => place.link(&host.target),
            Kind::File if name == b"config" && has_git_name(path) && host.size <= CONFIG_MAX => {
                write_config(from, &place)
            }
            Kind::File => {
                let left = BYTES_MAX - self.bytes;
                let copied = place.copy(from, name, left);
                if copied.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::FileTooLarge) {
                    return Err(self.host.too_large(b"", BYTES_MAX));
                }
                copied.map(|bytes| self.bytes += bytes)
            }
        };
        copied.map(|()| true).map_err(self.host.error(path))
    }
}

/// Writes the configuration of a repository without its credentials.
fn write_config(from: &OwnedFd, place: &Place<'_>) -> io::Result<()> {
    let mut content = Vec::new();
    open_file(from, place.name)?.take(CONFIG_MAX).read_to_end(&mut content)?;
    let cleaned = without_credentials(&String::from_utf8_lossy(&content));
    place.write_bytes(cleaned.as_bytes())
}

/// Keeps a copy for the patch.
fn keep(directory: &OwnedFd, from: &OwnedFd, name: &[u8], host: &Entry) -> io::Result<()> {
    let place = Place { directory, name, owner: Owner { uid: 0, gid: 0 }, mode: 0o600 };
    match host.kind {
        Kind::Directory => Place { mode: 0o700, ..place }.make_directory(),
        Kind::File => place.copy(from, name, BYTES_MAX).map(drop),
        Kind::Link | Kind::Special => Ok(()),
    }
}
