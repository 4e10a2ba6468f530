//! The changes that a run has made to its copy of a repository.

use std::collections::{BTreeMap, BTreeSet};

use super::baseline::{Baseline, Original};
use super::error::ExchangeError;
use super::git_names::{is_git_directory, is_git_name};
use super::tree::{Kind, Tree, TreeEntry, is_beneath, join};

/// Maximum number of files and directories that a run may leave in its copy.
const ENTRIES_MAX: u64 = 1_000_000;

/// The changes of a run.
#[derive(Debug, Default)]
pub(super) struct Changes<'a> {
    /// Changes by path. A changed file may have the same content.
    pub(super) entries: Vec<Change<'a>>,
    /// New names of git and new repositories, which are not exported.
    pub(super) git: Vec<Vec<u8>>,
    /// Devices, FIFOs and sockets.
    pub(super) special: Vec<Vec<u8>>,
}

/// A changed path.
#[derive(Debug, Clone)]
pub(super) struct Change<'a> {
    pub(super) path: Vec<u8>,
    pub(super) before: Option<&'a Original>,
    pub(super) after: Option<TreeEntry>,
}

/// Compares the copy of a repository with the start.
pub(super) fn changes<'a>(baseline: &'a Baseline, work: &Tree) -> Result<Changes<'a>, ExchangeError> {
    let mut found = Changes::default();
    let mut now = BTreeMap::new();
    let mut left_out: BTreeSet<Vec<u8>> = BTreeSet::new();
    work.walk(ENTRIES_MAX, |listing| {
        let names = listing.entries.iter().map(|(name, _)| name.as_slice());
        if baseline.repositories.contains(listing.path) || is_git_directory(names) {
            if !baseline.repositories.contains(listing.path) {
                found.git.push(listing.path.to_vec());
            }
            left_out.insert(listing.path.to_vec());
            return Ok(Vec::new());
        }
        let mut enter = Vec::new();
        for (index, (name, entry)) in listing.entries.iter().enumerate() {
            let path = join(listing.path, name);
            if is_git_name(name) {
                if !baseline.git_names.contains(&path) {
                    found.git.push(path);
                }
            } else if entry.kind == Kind::Special {
                found.special.push(path);
            } else {
                if entry.kind == Kind::Directory {
                    enter.push(index);
                }
                now.insert(path, entry.clone());
            }
        }
        Ok(enter)
    })?;
    // Changes in a directory that has become a repository do not count, its deletion included.
    let is_left_out = |path: &[u8]| is_beneath(&left_out, path);
    for (path, original) in &baseline.entries {
        let after = now.remove(path);
        let is_same = after.as_ref().is_some_and(|after| after.is_same_version(&original.copy));
        let is_directory = |kind: Kind| kind == Kind::Directory;
        let both = after.as_ref().is_some_and(|after| is_directory(after.kind) && is_directory(original.copy.kind));
        if !is_same && !both && !is_left_out(path) {
            found.entries.push(Change { path: path.clone(), before: Some(original), after });
        }
    }
    // The directory that has become a repository is left out, too.
    let new = now.into_iter().filter(|(path, _)| !is_left_out(path));
    found.entries.extend(new.map(|(path, entry)| Change { path, before: None, after: Some(entry) }));
    found.entries.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}
