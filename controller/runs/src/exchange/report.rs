//! Results of a run, for `--json` and for people.

use serde::{Deserialize, Serialize};

use super::tree::show;
use crate::run_clone::CloneReport;

/// Maximum number of names in a message.
const NAMES_MAX: usize = 10;
/// Maximum number of names in the report.
const REPORTED_MAX: usize = 1000;

/// Results that were exported from a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ExchangeReport {
    /// The directory of `--repo DIR:rw`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo: Option<RepositoryReport>,
    /// The file of `--patch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<PatchReport>,
    /// The directory of `--out`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<OutReport>,
    /// Commits of the run in the clone of `--repo URL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<CloneReport>,
    /// Path of the kept workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// Changes that were applied to a directory of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RepositoryReport {
    /// Path.
    pub path: String,
    /// Number of new files and links.
    pub added: u64,
    /// Number of changed files and links.
    pub changed: u64,
    /// Number of deleted files and links.
    pub deleted: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Changes that were not applied.
    pub left_out: Vec<LeftOutFiles>,
}

/// A patch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PatchReport {
    /// Path of the file.
    pub path: String,
    /// Number of changed files.
    pub files: u64,
    /// Number of new lines.
    pub insertions: u64,
    /// Number of removed lines.
    pub deletions: u64,
    /// Size of the patch.
    pub bytes: u64,
    /// SHA-256 of the patch.
    pub sha256: String,
    /// Changed files that a person should look at before applying the patch.
    pub sensitive: Vec<String>,
    /// Changes that the patch does not have.
    pub left_out: Vec<LeftOutFiles>,
}

/// Files that were copied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct OutReport {
    /// Path of the directory.
    pub path: String,
    /// Number of files.
    pub files: u64,
    /// Size of all files together.
    pub bytes: u64,
    /// Entries that were not copied.
    pub left_out: Vec<LeftOutFiles>,
}

/// An entry that was not exported, or the number of further ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutFiles {
    /// Path, made printable.
    pub path: String,
    /// Reason.
    pub reason: String,
}

impl LeftOutFiles {
    pub(super) fn new(path: &[u8], reason: impl Into<String>) -> Self {
        Self { path: if path.is_empty() { ".".to_owned() } else { show(path) }, reason: reason.into() }
    }

    /// Returns the first ones as list entries, with the number of the rest as the last one.
    pub(super) fn first(mut rest: impl Iterator<Item = Self>) -> Vec<Self> {
        let mut all: Vec<_> = rest.by_ref().take(REPORTED_MAX).collect();
        let more = rest.count();
        if more > 0 {
            all.push(Self { path: String::new(), reason: format!("and {more} more") });
        }
        all
    }
}

impl ExchangeReport {
    /// Returns the summary for people, in lines.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(repo) = &self.repo {
            let RepositoryReport { path, added, changed, deleted, .. } = repo;
            lines.push(format!("repo: {added} files added, {changed} changed, {deleted} deleted in {path}"));
            lines.extend(left_out_line("repo", &repo.left_out));
        }
        if let Some(patch) = &self.patch {
            let PatchReport { path, files, insertions, deletions, sensitive, .. } = patch;
            lines.push(format!(
                "patch: {files} files changed, {insertions} insertions, {deletions} deletions in {path}"
            ));
            if !sensitive.is_empty() {
                let names = names(sensitive.iter().cloned());
                lines.push(format!("patch: look at these before you apply it: {names}"));
            }
            lines.extend(left_out_line("patch", &patch.left_out));
        }
        if let Some(out) = &self.out {
            lines.push(format!("out: {} files, {} bytes in {}", out.files, out.bytes, out.path));
            lines.extend(left_out_line("out", &out.left_out));
        }
        lines.extend(self.git.iter().flat_map(CloneReport::lines));
        lines.extend(self.workspace.iter().map(|path| format!("workspace: kept in {path}")));
        lines
    }
}

fn left_out_line(what: &str, left_out: &[LeftOutFiles]) -> Option<String> {
    let described = left_out.iter().map(|one| format!("{} ({})", one.path, one.reason));
    (!left_out.is_empty()).then(|| format!("{what}: left out: {}", names(described)))
}

/// Returns the first names as one text.
pub(super) fn names(mut all: impl Iterator<Item = String>) -> String {
    let mut text = all.by_ref().take(NAMES_MAX).collect::<Vec<_>>().join(", ");
    let more = all.count();
    if more > 0 {
        text.push_str(&format!(", and {more} more"));
    }
    text
}
