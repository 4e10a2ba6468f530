//! Bounds of a git process.
//!
//! Pure.

use std::time::Duration;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Bounds of one git process and its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Address space in bytes.
    pub(crate) memory: u64,
    /// CPU seconds.
    pub(crate) cpu: u64,
    /// Maximum size of a file that it may write, in bytes.
    pub(crate) file: u64,
    /// Time until it is killed.
    pub(crate) wall: Duration,
    /// Maximum size of standard output in bytes.
    pub(crate) output: usize,
}

/// Bounds while objects of a sandbox are read: its pushes, its bundle, and each read of them.
pub(crate) const HOSTILE: Limits =
    Limits { memory: GIB, cpu: 60, file: GIB, wall: Duration::from_secs(120), output: 16 * MIB as usize };

/// Bounds of reading pushed objects for a person.
pub(crate) const LOOK: Limits = Limits { wall: Duration::from_secs(30), cpu: 10, ..HOSTILE };

/// Bounds of work with the operator's own repository, which may be large: fetch, clone, publish.
pub(crate) const OPERATOR: Limits =
    Limits { memory: 8 * GIB, cpu: 1800, file: 64 * GIB, wall: Duration::from_secs(3600), output: 16 * MIB as usize };

/// Bounds of listing the branches of a forge.
pub(crate) const LISTING: Limits = Limits { wall: Duration::from_secs(120), ..OPERATOR };

/// Maximum size of a pack of a push or bundle.
pub(crate) const PACK_BYTES: u64 = 256 * MIB;
/// Maximum number of bytes of all packs that one run sends.
pub(crate) const RUN_BYTES: u64 = 4 * GIB;
/// Maximum number of objects of a push or bundle.
pub(crate) const PACK_OBJECTS: u32 = 50_000;
/// Maximum size of an object of a push or bundle, inflated.
pub(crate) const OBJECT_BYTES: u64 = 100 * MIB;
/// Maximum number of bytes of all commits and trees of a push, inflated.
pub(crate) const STRUCTURE_BYTES: u64 = 64 * MIB;
/// Maximum size of a commit or tag.
pub(crate) const COMMIT_BYTES: u64 = MIB;
/// Maximum depth of directories.
pub(crate) const TREE_DEPTH: u32 = 64;
/// Maximum number of entries of all trees of a push or bundle.
pub(crate) const TREE_ENTRIES: u64 = 1_000_000;
/// Maximum number of paths in the work tree of one commit. For a push, only new trees are counted; for a clone, all.
pub(crate) const TREE_PATHS: u64 = 1_000_000;
/// Maximum number of bytes of the files of a clone, as git stores them: attributes of the repository may make some
/// files longer in the work tree.
pub(crate) const CHECKOUT_BYTES: u64 = 16 * GIB;
/// Maximum number of changed paths in the summary of a branch.
pub(crate) const LOOK_PATHS: usize = 5_000;
/// Maximum number of commits in the summary of a branch.
pub(crate) const LOOK_COMMITS: usize = 1_000;
/// Maximum number of refs that a remote may advertise.
pub(crate) const REMOTE_REFS: usize = 100_000;
