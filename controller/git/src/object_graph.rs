//! Trees and commits as `git cat-file --batch` prints them.
//!
//! Pure. The objects come from a sandbox.

use std::collections::HashMap;

use crate::limits::TREE_ENTRIES;
use crate::object_id::ObjectId;

/// One object with its bytes.
#[derive(Debug)]
pub(crate) struct BatchObject<'a> {
    pub(crate) id: ObjectId,
    pub(crate) bytes: &'a [u8],
}

/// Output of `cat-file --batch` that cannot be read, or an object that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrokenBatch;

/// Splits the output of `cat-file --batch`.
pub(crate) fn batch_objects(mut output: &[u8]) -> Result<Vec<BatchObject<'_>>, BrokenBatch> {
    let mut objects = Vec::new();
    while !output.is_empty() {
        let end = output.iter().position(|byte| *byte == b'\n').ok_or(BrokenBatch)?;
        let words: Vec<&[u8]> = output[..end].split(|byte| *byte == b' ').collect();
        let [id, _, size] = words[..] else { return Err(BrokenBatch) };
        let size: usize = std::str::from_utf8(size).ok().and_then(|size| size.parse().ok()).ok_or(BrokenBatch)?;
        let (bytes, rest) = output[end + 1..].split_at_checked(size).ok_or(BrokenBatch)?;
        output = rest.strip_prefix(b"\n").ok_or(BrokenBatch)?;
        objects.push(BatchObject { id: ObjectId::from_bytes(id).map_err(|_| BrokenBatch)?, bytes });
    }
    Ok(objects)
}

/// Returns the committer line of a commit, without its first word.
pub(crate) fn committer(commit: &[u8]) -> Option<&[u8]> {
    let mut lines = commit.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    lines.find_map(|line| line.strip_prefix(b"committer "))
}

/// Size of the checkout of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TreeSize {
    /// Maximum depth of directories, including the tree itself.
    pub(crate) depth: u32,
    /// Number of files and directories.
    pub(crate) paths: u64,
}

/// Reason why trees are not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeFault {
    /// A tree cannot be read.
    Broken,
    /// All trees together have more than [`TREE_ENTRIES`] entries.
    TooMany,
}

impl From<BrokenBatch> for TreeFault {
    fn from(_: BrokenBatch) -> Self {
        Self::Broken
    }
}

/// Measures the trees in the output of `cat-file --batch`: the largest depth and the largest number of paths. This takes up
/// to a second of CPU time, so it must not run on a thread of the runtime.
pub(crate) fn measure_trees(output: &[u8]) -> Result<TreeSize, TreeFault> {
    let mut graph = Trees::default();
    for object in batch_objects(output)? {
        graph.add(object.id, object.bytes)?;
    }
    Ok(graph.largest())
}

/// Trees by id, with the ids of the trees in them and their number of entries. A missing tree counts as empty: it
/// was checked when it arrived.
#[derive(Debug, Default)]
struct Trees {
    nodes: HashMap<ObjectId, Node>,
    entries: u64,
}

#[derive(Debug)]
struct Node {
    trees: Vec<ObjectId>,
    entries: u64,
    size: Option<TreeSize>,
}

impl Trees {
    /// Adds a tree.
    fn add(&mut self, id: ObjectId, mut bytes: &[u8]) -> Result<(), TreeFault> {
        let width = id.as_str().len() / 2;
        let (mut trees, mut entries) = (Vec::new(), 0);
        while !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == 0).ok_or(BrokenBatch)?;
            let (raw, rest) = bytes[end + 1..].split_at_checked(width).ok_or(BrokenBatch)?;
            if bytes.starts_with(b"40000 ") || bytes.starts_with(b"040000 ") {
                trees.push(ObjectId::from_raw(raw));
            }
            (entries, self.entries) = (entries + 1, self.entries + 1);
            if self.entries > TREE_ENTRIES {
                return Err(TreeFault::TooMany);
            }
            bytes = rest;
        }
        self.nodes.insert(id, Node { trees, entries, size: None });
        Ok(())
    }

    /// Returns the largest depth and the largest number of paths of all trees. Shared trees count each time.
    fn largest(&mut self) -> TreeSize {
        let ids: Vec<ObjectId> = self.nodes.keys().cloned().collect();
        let mut largest = TreeSize::default();
        for id in ids {
            let size = self.measure(&id);
            largest = TreeSize { depth: largest.depth.max(size.depth), paths: largest.paths.max(size.paths) };
        }
        largest
    }

    /// Measures a tree without recursion: the sandbox chooses the depth.
    fn measure(&mut self, id: &ObjectId) -> TreeSize {
        let mut stack = vec![id.clone()];
        while let Some(top) = stack.last().cloned() {
            let Some(node) = self.nodes.get(&top) else {
                stack.pop();
                continue;
            };
            if node.size.is_some() {
                stack.pop();
                continue;
            }
            let open: Vec<ObjectId> = node.trees.iter().filter(|tree| self.is_open(tree)).cloned().collect();
            if open.is_empty() {
                let size = Some(self.sum(node));
                if let Some(node) = self.nodes.get_mut(&top) {
                    node.size = size;
                }
            } else {
                stack.extend(open);
            }
        }
        self.nodes.get(id).and_then(|node| node.size).unwrap_or_default()
    }

    fn is_open(&self, id: &ObjectId) -> bool {
        self.nodes.get(id).is_some_and(|node| node.size.is_none())
    }

    fn sum(&self, node: &Node) -> TreeSize {
        let start = TreeSize { depth: 0, paths: node.entries };
        let inside = node.trees.iter().filter_map(|tree| self.nodes.get(tree)?.size);
        let sum = inside.fold(start, |sum, size| TreeSize {
            depth: sum.depth.max(size.depth),
            paths: sum.paths.saturating_add(size.paths),
        });
        TreeSize { depth: sum.depth + 1, ..sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> ObjectId {
        ObjectId::from_raw(&[number; 20])
    }

    fn tree(entries: &[(&str, u8)]) -> Vec<u8> {
        let entry = |(name, number): &(&str, u8)| [name.as_bytes(), &[0], &[*number; 20]].concat();
        entries.iter().flat_map(entry).collect()
    }

    #[test]
    fn a_tree_bomb_is_counted_without_unfolding() {
        let mut trees = Trees::default();
        for level in 1..=60 {
            let bytes = tree(&[("40000 a", level - 1), ("40000 b", level - 1), ("100644 c", 200)]);
            trees.add(id(level), &bytes).expect("a tree");
        }
        let largest = trees.largest();
        assert_eq!(largest.depth, 60);
        assert!(largest.paths > 1 << 60);
    }

    #[test]
    fn a_deep_chain_does_not_recurse() {
        let mut trees = Trees::default();
        let at = |number: u32| ObjectId::from_raw(&[&number.to_be_bytes()[..], &[0; 16]].concat());
        for number in 1..50_000_u32 {
            let raw = [&(number - 1).to_be_bytes()[..], &[0; 16]].concat();
            trees.add(at(number), &[b"40000 a\0", &raw[..]].concat()).expect("a tree");
        }
        assert_eq!(trees.largest().depth, 49_999);
    }

    #[test]
    fn reading_stops_at_too_many_entries() {
        let entries = 1_000;
        let bytes = tree(&[("100644 a", 1)]).repeat(entries);
        let mut trees = Trees::default();
        for number in 0..TREE_ENTRIES / entries as u64 {
            let id = ObjectId::from_raw(&[&number.to_be_bytes()[..], &[0; 12]].concat());
            assert_eq!(trees.add(id, &bytes), Ok(()));
        }
        assert_eq!(trees.add(id(255), &bytes), Err(TreeFault::TooMany));
    }

    #[test]
    fn broken_objects_are_errors() {
        let mut trees = Trees::default();
        assert_eq!(trees.add(id(1), b"40000 a"), Err(TreeFault::Broken));
        assert_eq!(trees.add(id(1), b"40000 a\x00123"), Err(TreeFault::Broken));
        for output in
            [&b"x"[..], b"x missing\n", b"0 1 2 3\n", b"0000000000000000000000000000000000000000 tree 5\nab\n"]
        {
            assert!(batch_objects(output).is_err());
        }
        let output = format!("{0} blob 2\na\n\n{0} tree 0\n\n", id(1));
        let objects = batch_objects(output.as_bytes()).expect("two objects");
        assert_eq!((objects[0].bytes, objects[1].bytes), (&b"a\n"[..], &b""[..]));
        assert_eq!(committer(b"tree x\ncommitter a\n\ncommitter b\n"), Some(&b"a"[..]));
        assert_eq!(committer(b"tree x\n\ncommitter b\n"), None);
    }
}
