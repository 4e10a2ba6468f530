//! The patch of a run: the changes of its copy of a repository, in the format of `git apply`.

use std::collections::BTreeSet;

use super::changes::Change;
use super::diff::{ObjectHash, Version, diff};
use super::error::ExchangeError;
use super::interrupt::CancelFlag;
use super::lines::LineBudget;
use super::tree::{Kind, Tree, TreeEntry};

/// Maximum number of changed paths of a patch.
const ENTRIES_MAX: u64 = 100_000;
/// Maximum size of one file.
const FILE_MAX: u64 = 64 << 20;
/// Maximum size of all versions of the changed files together.
const CONTENT_MAX: u64 = 8 << 30;
/// Maximum size of a patch.
const BYTES_MAX: u64 = 256 << 20;

/// A patch, with its sums.
#[derive(Debug, Default)]
pub(super) struct Patch {
    pub(super) text: Vec<u8>,
    pub(super) files: u64,
    pub(super) insertions: u64,
    pub(super) deletions: u64,
    /// Changed paths that a person should review before applying the patch.
    pub(super) sensitive: Vec<Vec<u8>>,
}

/// Makes the patch. `base` has the files of the start.
pub(super) fn patch(
    changes: &[Change<'_>],
    base: &Tree,
    work: &Tree,
    executed: &BTreeSet<Vec<u8>>,
    hash: ObjectHash,
    interrupt: &CancelFlag,
) -> Result<Patch, ExchangeError> {
    if changes.len() as u64 > ENTRIES_MAX {
        return Err(ExchangeError::TooMany { path: "the patch".to_owned(), max: ENTRIES_MAX });
    }
    let mut patch = Patch::default();
    let mut budget = LineBudget::default();
    let mut content = 0;
    for change in changes {
        interrupt.check().map_err(work.error(&change.path))?;
        let before = match change.before {
            Some(original) => version(base, &change.path, &original.copy)?,
            None => None,
        };
        let after = match &change.after {
            Some(entry) => version(work, &change.path, entry)?,
            None => None,
        };
        let [old, new] = [&before, &after]
            .map(|version| version.as_ref().map(|(mode, content)| Version { mode, content: content.as_slice() }));
        content += [old, new].iter().flatten().map(|version| version.content.len() as u64).sum::<u64>();
        if content > CONTENT_MAX {
            return Err(ExchangeError::TooLarge {
                path: "the content of the changed files".to_owned(),
                max: CONTENT_MAX,
            });
        }
        let made = diff(&change.path, old, new, hash, &mut budget);
        if made.text.is_empty() {
            continue;
        }
        patch.text.extend_from_slice(&made.text);
        if patch.text.len() as u64 > BYTES_MAX {
            return Err(ExchangeError::TooLarge { path: "the patch".to_owned(), max: BYTES_MAX });
        }
        patch.files += 1;
        patch.insertions += made.insertions;
        patch.deletions += made.deletions;
        if is_sensitive(change) || super::tree::is_beneath(executed, &change.path) {
            patch.sensitive.push(change.path.clone());
        }
    }
    Ok(patch)
}

/// Returns mode and content as git has them; `None` for a directory.
fn version(tree: &Tree, path: &[u8], entry: &TreeEntry) -> Result<Option<(&'static str, Vec<u8>)>, ExchangeError> {
    Ok(match entry.kind {
        Kind::Directory | Kind::Special => None,
        Kind::Link => Some(("120000", entry.target.clone())),
        Kind::File => {
            let mode = if entry.is_executable() { "100755" } else { "100644" };
            Some((mode, tree.read(path, FILE_MAX)?))
        }
    })
}

/// Returns whether a change needs a person's review: a program may execute or obey the file without being asked.
pub(super) fn is_sensitive(change: &Change<'_>) -> bool {
    let has_dot = change.path.split(|byte| *byte == b'/').any(|part| part.starts_with(b"."));
    let name = change.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_ascii_lowercase();
    let is_ci = ["jenkinsfile", "codeowners"].iter().any(|known| name == known.as_bytes())
        || ["azure-pipelines", "appveyor."].iter().any(|known| name.starts_with(known.as_bytes()));
    let was_executable = change.before.is_some_and(|before| before.copy.is_executable());
    let is_new_program = change.after.as_ref().is_some_and(|after| {
        after.kind == Kind::Link || (after.kind == Kind::File && after.is_executable() && !was_executable)
    });
    has_dot || is_ci || is_new_program
}
