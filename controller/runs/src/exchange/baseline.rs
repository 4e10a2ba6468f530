//! The copy of a repository for a run, and the state of the repository at the start.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use super::copy::{Age, Allowance, NewEntry, UNFINISHED, mode_of};
use super::error::ExchangeError;
use super::git_config::without_credentials;
use super::git_names::{has_git_name, is_git_directory, is_git_name};
use super::git_settings;
use super::interrupt::CancelFlag;
use super::owner::Owner;
use super::tree::{Kind, Listing, Tree, TreeEntry, entry, find, is_beneath, join, open_file, read_found, split};

/// Maximum number of files and directories of a repository.
pub(super) const ENTRIES_MAX: u64 = 500_000;
/// Maximum size of a repository in bytes.
pub(super) const BYTES_MAX: u64 = 32 << 30;
/// Maximum size of a configuration of git.
pub(super) const CONFIG_MAX: u64 = 1 << 20;

/// A file, directory or link at the start of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Original {
    /// Entry on the host.
    pub(super) host: TreeEntry,
    /// Entry in the run's copy, before the run.
    pub(super) copy: TreeEntry,
}

/// A repository at the start of a run, without the metadata of git.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    pub(super) entries: BTreeMap<Vec<u8>, Original>,
    /// Directories that are git repositories; everything in them is metadata.
    pub(super) repositories: BTreeSet<Vec<u8>>,
    /// Names of git that existed.
    pub(super) git_names: BTreeSet<Vec<u8>>,
    /// Links in the metadata of git, with their targets.
    pub(super) metadata_links: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Entries that could not be copied, with the reasons.
    pub(super) skipped: Vec<(Vec<u8>, &'static str)>,
}

impl Baseline {
    /// Returns whether a path is in a directory that was a repository of git at the start.
    pub(super) fn is_in_repository(&self, path: &[u8]) -> bool {
        is_beneath(&self.repositories, path)
    }

    /// Returns the target of a link outside the metadata of git.
    pub(super) fn link(&self, path: &[u8]) -> Option<&[u8]> {
        let original = self.entries.get(path)?;
        (original.host.kind == Kind::Link).then_some(&original.host.target)
    }

    /// Returns the links outside the metadata of git, with their targets.
    pub(super) fn links(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let links = self.entries.iter().filter(|(_, original)| original.host.kind == Kind::Link);
        links.map(|(path, original)| (path.as_slice(), original.host.target.as_slice()))
    }
}

/// Copies of a repository, under construction.
struct Copies<'a> {
    host: &'a Tree,
    /// Copy for the run.
    work: &'a Tree,
    /// Copy for the patch: the state at the start, not accessible to the run.
    base: Option<&'a Tree>,
    /// Owner of the directory on the host.
    owner: Owner,
    /// Owner of the copies.
    user: Owner,
    allowance: Allowance,
    /// Allowance for the copies in `base`.
    kept: Allowance,
    baseline: Baseline,
}

/// Copies a directory of the host into an empty directory, and without the metadata of git into another one.
pub(super) fn copy_in(
    host: &Tree,
    work: &Tree,
    base: Option<&Tree>,
    owner: Owner,
    user: Owner,
    interrupt: &CancelFlag,
) -> Result<Baseline, ExchangeError> {
    let [allowance, kept] = [BYTES_MAX, BYTES_MAX].map(|max| Allowance::new(max, interrupt));
    let mut copies = Copies { host, work, base, owner, user, allowance, kept, baseline: Baseline::default() };
    host.walk(ENTRIES_MAX, |listing| copies.copy(listing))?;
    Ok(copies.baseline)
}

impl Copies<'_> {
    fn copy(&mut self, listing: &Listing<'_>) -> Result<Vec<usize>, ExchangeError> {
        let names = listing.entries.iter().map(|(name, _)| name.as_slice());
        let is_repository = is_git_directory(names);
        if !has_git_name(listing.path) && is_repository {
            if listing.path.is_empty() {
                return Err(ExchangeError::GitDirectory(self.host.name().to_owned()));
            }
            self.baseline.repositories.insert(listing.path.to_vec());
        }
        let is_metadata = has_git_name(listing.path) || self.baseline.is_in_repository(listing.path);
        let has_config = is_repository || is_git_name(split(listing.path).1);
        let to = self.work.directory(listing.path).map_err(self.work.error(listing.path))?;
        let base = match self.base.filter(|_| !is_metadata) {
            Some(base) => Some((base, base.directory(listing.path).map_err(base.error(listing.path))?)),
            None => None,
        };
        let mut enter = Vec::new();
        for (index, (name, _)) in listing.entries.iter().enumerate() {
            let path = join(listing.path, name);
            let Some(host) = self.copy_entry(listing.directory, &to, name, &path, has_config)? else { continue };
            if host.kind == Kind::Directory {
                enter.push(index);
            }
            if host.kind == Kind::Link && (is_metadata || is_git_name(name)) {
                self.baseline.metadata_links.insert(path.clone(), host.target.clone());
            }
            if is_git_name(name) {
                self.baseline.git_names.insert(path);
            } else if !is_metadata {
                if let Some((tree, directory)) = &base {
                    keep(directory, &to, name, &host, &mut self.kept).map_err(tree.error(&path))?;
                }
                let copy = entry(&to, name).map_err(self.work.error(&path))?;
                self.baseline.entries.insert(path, Original { host, copy });
            }
        }
        Ok(enter)
    }

    /// Copies an entry, and returns its state at that time; `None` if it was not copied.
    fn copy_entry(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &[u8],
        path: &[u8],
        has_config: bool,
    ) -> Result<Option<TreeEntry>, ExchangeError> {
        let (found, host) = match find(from, name) {
            // Removed since its name was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found.map_err(self.host.error(path))?,
        };
        let skipped = match host.kind {
            Kind::Special => Some("it is a device, a FIFO or a socket"),
            Kind::File if name.starts_with(UNFINISHED) => Some("a controller has not finished it; remove it"),
            Kind::File | Kind::Directory
                if !self.owner.may_read(host.owner, host.mode, host.kind == Kind::Directory) =>
            {
                Some("its owner is another user, and it is private")
            }
            _ => None,
        };
        if let Some(reason) = skipped {
            self.baseline.skipped.push((path.to_vec(), reason));
            return Ok(None);
        }
        let mut place = NewEntry { directory: to, name, owner: self.user, mode: mode_of(&host, 0o600) };
        let copied = match host.kind {
            Kind::Directory => {
                place.mode |= 0o700;
                place.make_directory().map(drop)
            }
            Kind::File => {
                let file = read_found(&found, &host).map_err(self.host.error(path))?;
                if has_config && name.to_ascii_lowercase().starts_with(b"config") {
                    return Ok(self.write_config(file, &place, path)?.then_some(host));
                }
                match place.copy(&file, Age::Original, &mut self.allowance) {
                    Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                        return Err(self.host.too_large(b"", BYTES_MAX));
                    }
                    copied => copied,
                }
            }
            Kind::Link | Kind::Special => place.link(&host.target),
        };
        copied.map_err(self.host.error(path))?;
        Ok(Some(host))
    }

    /// Writes a configuration of git without its credentials, and returns whether it did. An invalid `config` or
    /// `config.worktree` is an error; any other file that git does not accept as a configuration is left out.
    fn write_config(&mut self, from: File, place: &NewEntry<'_>, path: &[u8]) -> Result<bool, ExchangeError> {
        let is_read = matches!(place.name, b"config" | b"config.worktree");
        let mut content = Vec::new();
        from.take(CONFIG_MAX + 1).read_to_end(&mut content).map_err(self.host.error(path))?;
        let is_too_large = content.len() as u64 > CONFIG_MAX;
        match git_settings::parse(&content) {
            _ if is_read && is_too_large => Err(self.host.too_large(path, CONFIG_MAX)),
            Err(line) if is_read => Err(self.host.bad_config(path, line)),
            Ok(settings) if !is_too_large => {
                let written = place.write_bytes(&without_credentials(&settings));
                written.map(|_| true).map_err(self.work.error(path))
            }
            _ => {
                self.baseline.skipped.push((path.to_vec(), "it may hold credentials"));
                Ok(false)
            }
        }
    }
}

/// Keeps a copy for the patch.
fn keep(directory: &OwnedFd, from: &OwnedFd, name: &[u8], host: &TreeEntry, kept: &mut Allowance) -> io::Result<()> {
    let place = NewEntry { directory, name, owner: Owner { uid: 0, gid: 0 }, mode: 0o600 };
    match host.kind {
        Kind::Directory => NewEntry { mode: 0o700, ..place }.make_directory().map(drop),
        Kind::File => place.copy(&open_file(from, name)?, Age::Original, kept),
        Kind::Link | Kind::Special => Ok(()),
    }
}
