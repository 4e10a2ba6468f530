//! Index of the files and directories of a workspace, within a limit.
//!
//! Pure.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::contents::ContentHash;
use crate::exchange::tree::TreeEntry;

/// Knowledge about a name.
#[derive(Debug)]
pub(super) enum KnownName {
    /// A directory, and its watch.
    Directory(Option<i32>),
    /// Anything else.
    File(KnownFile),
}

/// Knowledge about a file.
#[derive(Debug)]
pub(super) struct KnownFile {
    pub(super) entry: TreeEntry,
    /// Hash of its content; `None` if it was not read.
    pub(super) hash: Option<ContentHash>,
    /// False if its content is not text.
    pub(super) is_text: bool,
}

#[derive(Debug)]
struct Item {
    name: KnownName,
    /// Number of the last walk that met the name.
    walk: u64,
}

/// The known names of a workspace, by their paths below it.
#[derive(Debug)]
pub(super) struct FileIndex {
    names: BTreeMap<Vec<u8>, Item>,
    path_bytes: usize,
    entries_max: usize,
    paths_max: usize,
    walk: u64,
}

impl FileIndex {
    pub(super) fn new(entries_max: usize, paths_max: usize) -> Self {
        Self { names: BTreeMap::new(), path_bytes: 0, entries_max, paths_max, walk: 0 }
    }

    pub(super) fn get(&self, path: &[u8]) -> Option<&KnownName> {
        self.names.get(path).map(|item| &item.name)
    }

    /// Returns true if a name may be set.
    pub(super) fn has_room(&self, path: &[u8]) -> bool {
        let is_new = !self.names.contains_key(path);
        !is_new || (self.names.len() < self.entries_max && self.path_bytes + path.len() <= self.paths_max)
    }

    /// Sets the known state of a name, and returns the earlier one.
    pub(super) fn set(&mut self, path: &[u8], name: KnownName) -> Option<KnownName> {
        let walk = self.walk;
        if let Some(item) = self.names.get_mut(path) {
            item.walk = walk;
            return Some(std::mem::replace(&mut item.name, name));
        }
        self.path_bytes += path.len();
        self.names.insert(path.to_vec(), Item { name, walk });
        None
    }

    pub(super) fn remove(&mut self, path: &[u8]) -> Option<KnownName> {
        let item = self.names.remove(path)?;
        self.path_bytes -= path.len();
        Some(item.name)
    }

    /// Returns the known paths below a path, in the order of their bytes.
    pub(super) fn beneath(&self, path: &[u8]) -> Vec<Vec<u8>> {
        self.items(path).map(|(path, _)| path.clone()).collect()
    }

    /// Notes that the present walk has met a name.
    pub(super) fn meet(&mut self, path: &[u8]) {
        let walk = self.walk;
        if let Some(item) = self.names.get_mut(path) {
            item.walk = walk;
        }
    }

    /// Begins a walk.
    pub(super) fn begin_walk(&mut self) {
        self.walk += 1;
    }

    /// Returns the known paths below a path that the present walk has not met.
    pub(super) fn unmet(&self, path: &[u8]) -> Vec<Vec<u8>> {
        self.items(path).filter(|(_, item)| item.walk != self.walk).map(|(path, _)| path.clone()).collect()
    }

    fn items(&self, path: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &Item)> {
        let prefix = if path.is_empty() { Vec::new() } else { [path, b"/"].concat() };
        let from = Bound::Included(prefix.clone());
        self.names
            .range((from, Bound::Unbounded))
            .take_while(move |(path, _)| path.starts_with(&prefix))
            // The path of the workspace itself is not a name in it.
            .filter(|(path, _)| !path.is_empty())
    }
}

/// Returns true for paths that are not watched: `.sluice` of the workspace, and all metadata of git.
pub(super) fn is_left_out(path: &[u8]) -> bool {
    let mut parts = path.split(|byte| *byte == b'/');
    parts.clone().next() == Some(b".sluice") || parts.any(|part| part == b".git")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(paths: &[&str]) -> FileIndex {
        let mut index = FileIndex::new(100, 1000);
        for path in paths {
            index.set(path.as_bytes(), KnownName::Directory(None));
        }
        index
    }

    fn texts(paths: &[Vec<u8>]) -> Vec<String> {
        paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    #[test]
    fn only_paths_below_a_path_are_beneath_it() {
        let index = index(&["", "a", "a-b", "a/b", "a/b/c", "a0", "b"]);
        assert_eq!(texts(&index.beneath(b"a")), ["a/b", "a/b/c"]);
        assert_eq!(texts(&index.beneath(b"")), ["a", "a-b", "a/b", "a/b/c", "a0", "b"]);
        assert_eq!(texts(&index.beneath(b"b")), [""; 0]);
    }

    #[test]
    fn a_walk_finds_what_it_has_not_met() {
        let mut index = index(&["", "a", "a/b", "c"]);
        index.begin_walk();
        index.meet(b"a");
        index.set(b"d", KnownName::Directory(None));
        assert_eq!(
            (texts(&index.unmet(b"")), texts(&index.unmet(b"a"))),
            (vec!["a/b".into(), "c".into()], vec!["a/b".into()])
        );
    }

    #[test]
    fn names_and_paths_are_limited() {
        let mut index = FileIndex::new(2, 10);
        index.set(b"a", KnownName::Directory(None));
        assert!(!index.has_room(&[b'x'; 10]) && index.has_room(&[b'x'; 9]) && index.has_room(b"a"));
        index.set(b"b", KnownName::Directory(None));
        assert!(!index.has_room(b"c") && index.has_room(b"b"));
        index.remove(b"b");
        assert!(index.has_room(b"c"));
    }
}
