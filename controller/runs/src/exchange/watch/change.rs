//! One observed change of a file, and its diff.
//!
//! Pure.

use crate::exchange::diff::{ObjectHash, Version, diff};
use crate::exchange::lines::LineBudget;
use crate::exchange::tree::{Kind, TreeEntry};

/// Maximum work of the comparison of one file, as the squares of numbers of lines.
const COMPARISON: u64 = 1 << 26;

/// An observed change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// Path below the workspace, which need not be text.
    pub path: Vec<u8>,
    /// Kind of the change.
    pub change: ChangeKind,
    /// Kind of the file: for a deleted one, its earlier kind.
    pub kind: ObservedKind,
    /// Size in bytes; `None` for a deleted file.
    pub size: Option<u64>,
    /// The diff, or the reason why it is missing.
    pub diff: Result<TextDiff, DiffOmitted>,
}

/// Kind of a change to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The file is new.
    Created,
    /// The file has other content.
    Modified,
    /// The file was removed.
    Deleted,
}

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservedKind {
    /// A regular file.
    File,
    /// A symbolic link, which is not followed.
    Link,
    /// A device, a FIFO or a socket, which is not opened.
    Special,
}

/// The difference of two versions of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextDiff {
    /// Diff in the format of `git apply`. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// True if its end is cut off.
    pub truncated: bool,
    /// Number of added lines.
    pub added: u64,
    /// Number of removed lines.
    pub removed: u64,
}

/// Reason that a change has no diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffOmitted {
    /// The content is not text.
    Binary,
    /// The file is too large.
    TooLarge,
    /// The content before is not known.
    NoBaseline,
    /// The content could not be read.
    Unreadable,
    /// The name is a link, a device, a FIFO or a socket.
    NotAFile,
}

impl ChangeKind {
    /// Returns the word that events use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
        }
    }
}

impl ObservedKind {
    pub(super) fn of(kind: Kind) -> Self {
        match kind {
            Kind::Link => Self::Link,
            Kind::Special => Self::Special,
            Kind::File | Kind::Directory => Self::File,
        }
    }

    /// Returns the word that events use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Link => "link",
            Self::Special => "special",
        }
    }
}

impl DiffOmitted {
    /// Returns the word that events use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::TooLarge => "too_large",
            Self::NoBaseline => "no_baseline",
            Self::Unreadable => "unreadable",
            Self::NotAFile => "not_a_file",
        }
    }
}

/// One side of a comparison.
#[derive(Clone, Copy)]
pub(super) struct DiffSide<'a> {
    pub(super) entry: &'a TreeEntry,
    pub(super) content: &'a [u8],
}

/// Returns the difference of two texts, cut to `max` bytes.
pub(super) fn difference(
    path: &[u8],
    before: Option<DiffSide<'_>>,
    after: Option<DiffSide<'_>>,
    max: usize,
) -> TextDiff {
    let [old, new] = [before, after].map(|side| {
        side.map(|side| Version {
            mode: if side.entry.is_executable() { "100755" } else { "100644" },
            content: side.content,
        })
    });
    let made = diff(path, old, new, ObjectHash::Sha1, &mut LineBudget::of(COMPARISON));
    let mut text = String::from_utf8_lossy(&made.text).into_owned();
    let end = text.floor_char_boundary(max);
    let truncated = end < text.len();
    text.truncate(end);
    TextDiff { text, truncated, added: made.insertions, removed: made.deletions }
}
