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
    /// Largest file that it may write, in bytes.
    pub(crate) file: u64,
    /// Time until it is killed.
    pub(crate) wall: Duration,
    /// Largest standard output in bytes.
    pub(crate) output: usize,
}

/// Bounds while objects of a sandbox are read: its pushes, its bundle, and each look at them.
pub(crate) const HOSTILE: Limits =
    Limits { memory: GIB, cpu: 60, file: GIB, wall: Duration::from_secs(120), output: 16 * MIB as usize };

/// Bounds of a look at pushed objects for a person.
pub(crate) const LOOK: Limits = Limits { wall: Duration::from_secs(10), cpu: 10, ..HOSTILE };

/// Bounds of work with the operator's own repository, which may be large: fetch, clone, publish.
pub(crate) const OPERATOR: Limits =
    Limits { memory: 8 * GIB, cpu: 1800, file: 64 * GIB, wall: Duration::from_secs(3600), output: 16 * MIB as usize };

/// Largest pack of a push or bundle.
pub(crate) const PACK_BYTES: u64 = 256 * MIB;
/// Most bytes of all packs that one run sends.
pub(crate) const RUN_BYTES: u64 = 4 * GIB;
/// Most objects of a push or bundle.
pub(crate) const PACK_OBJECTS: u32 = 50_000;
/// Largest object of a push or bundle, inflated.
pub(crate) const OBJECT_BYTES: u64 = 100 * MIB;
/// Most bytes of all commits and trees of a push, inflated.
pub(crate) const STRUCTURE_BYTES: u64 = 64 * MIB;
/// Largest commit or tag.
pub(crate) const COMMIT_BYTES: u64 = MIB;
/// Most directories inside each other.
pub(crate) const TREE_DEPTH: u32 = 64;
/// Most entries of all trees of a push or bundle.
pub(crate) const TREE_ENTRIES: u64 = 1_000_000;
/// Maximum number of paths in the work tree of one commit: of a push, as far as its trees are new, and of a clone.
pub(crate) const TREE_PATHS: u64 = 1_000_000;
/// Most bytes of the files of a clone, as the repository has them: attributes of the repository may write some longer.
pub(crate) const CHECKOUT_BYTES: u64 = 16 * GIB;
/// Most changed paths in a look.
pub(crate) const LOOK_PATHS: usize = 5_000;
/// Most commits in a look.
pub(crate) const LOOK_COMMITS: usize = 1_000;
/// Most refs that a remote may advertise.
pub(crate) const REMOTE_REFS: usize = 100_000;
