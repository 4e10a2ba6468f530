//! Git notes at the commits of a run: the attempt that made a commit, and the hash of its audit log.
//!
//! `git notes --ref=sluice` shows them in the repository of the run. They never leave the host: a publication pushes
//! only one commit and its history.

use std::collections::HashSet;

use sluice_contract::RunKey;

use crate::error::GitError;
use crate::leftovers;
use crate::limits::HOSTILE;
use crate::object_id::ObjectId;
use crate::program::{GitCommand, Input};
use crate::run_repository::RunRepository;
use crate::transfer::{resolve, update_refs};

/// Ref of the notes.
const NOTES: &str = "refs/notes/sluice";
/// Maximum number of commits of a run that get a note: the newest ones.
const COMMITS: usize = 50_000;
/// Committer of the notes.
const COMMITTER: [&str; 2] = ["user.name=Sluice", "user.email=sluice@sluice.invalid"];

impl RunRepository {
    /// Adds a note with the attempt and the hash of its audit log to each commit of the run that has none. A commit of
    /// an earlier attempt keeps its note.
    ///
    /// # Errors
    /// [`GitError`]
    pub async fn note_commits(&self, attempt: &RunKey, audit_head: Option<&str>) -> Result<(), GitError> {
        let _lock = self.lock().await?;
        leftovers::sweep(self.path())?;
        let range = format!("{}..{}", self.base(), self.head().await?);
        let most = format!("--max-count={COMMITS}");
        let commits = self.text(["rev-list", &most, &range, "--"], "").await?;
        let last = resolve(self.program(), self.end(), NOTES, HOSTILE).await?;
        let mut entries = match &last {
            Some(last) => self.text(["ls-tree", last.as_str()], "").await?,
            None => String::new(),
        };
        let known: HashSet<&str> = entries.lines().filter_map(|line| Some(line.rsplit_once('\t')?.1)).collect();
        let new: Vec<&str> = commits.lines().filter(|commit| !known.contains(commit)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let note = self.text(["hash-object", "-w", "--stdin"], &text(attempt, audit_head)).await?;
        let added: String = new.iter().map(|commit| format!("100644 blob {}\t{commit}\n", note.trim())).collect();
        entries.push_str(&added);
        let tree = self.text(["mktree"], &entries).await?;
        let parent = last.iter().flat_map(|last| ["-p", last.as_str()]);
        let words = ["commit-tree", "-m", "Notes of a run", tree.trim()].into_iter().chain(parent);
        let command = COMMITTER.iter().fold(self.command(HOSTILE), |command, setting| command.config(*setting));
        let made = self.printed(command.args(words), "").await?;
        let old = last.as_ref().map_or_else(|| "0".repeat(self.base().as_str().len()), ObjectId::to_string);
        update_refs(self.program(), self.end(), &format!("update {NOTES} {} {old}\n", made.trim()), HOSTILE).await
    }

    async fn text<const N: usize>(&self, words: [&str; N], input: &str) -> Result<String, GitError> {
        self.printed(self.command(HOSTILE).args(words), input).await
    }

    async fn printed(&self, command: GitCommand<'_>, input: &str) -> Result<String, GitError> {
        let output = command.check(Input::Bytes(input.as_bytes())).await?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Returns the text of a note: trailers, as in a merge commit.
fn text(attempt: &RunKey, audit_head: Option<&str>) -> String {
    let head = audit_head.map(|head| format!("Sluice-Audit-Head: {head}\n")).unwrap_or_default();
    format!("Sluice-Run: {attempt}\n{head}")
}
