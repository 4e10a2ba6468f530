//! The change of a run's branch, as commands show it.
//!
//! Pure.

use serde_json::{Value, json};
use sluice_contract::text::sanitize;

/// Commits and changed files of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BranchChange {
    pub(super) branch: Option<String>,
    pub(super) base: String,
    pub(super) head: String,
    pub(super) commits: Vec<ShownCommit>,
    pub(super) files: Vec<ShownFile>,
    /// Changed files that CI or the forge obey.
    pub(super) guarded: Vec<String>,
    pub(super) is_too_large: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShownCommit {
    pub(super) id: String,
    pub(super) subject: String,
}

/// A changed file. A binary file has no counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShownFile {
    pub(super) path: String,
    pub(super) added: Option<u64>,
    pub(super) removed: Option<u64>,
}

/// Branch, number and address of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PullRequestPlace {
    pub(super) branch: String,
    pub(super) number: Option<u64>,
    pub(super) url: Option<String>,
}

impl BranchChange {
    /// Returns the object of `--json`.
    pub(super) fn json(&self, run: &str) -> Value {
        let commit = |one: &ShownCommit| json!({"id": one.id, "subject": one.subject});
        let file = |one: &ShownFile| json!({"path": one.path, "added": one.added, "removed": one.removed});
        json!({
            "run_id": run, "branch": self.branch, "base": self.base, "head": self.head,
            "commits": self.commits.iter().map(commit).collect::<Vec<_>>(),
            "files": self.files.iter().map(file).collect::<Vec<_>>(),
            "guarded_paths": self.guarded, "too_large": self.is_too_large,
        })
    }

    /// Returns the lines for a terminal.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} from {} to {}\n", self.branch.as_deref().unwrap_or_default(), self.base, self.head);
        for one in &self.commits {
            let id = one.id.get(..12).unwrap_or(&one.id);
            text.push_str(&format!("  {id}  {}\n", sanitize(&one.subject)));
        }
        let count = |lines: Option<u64>| lines.map_or_else(|| "-".to_owned(), |lines| lines.to_string());
        for one in &self.files {
            let mark = if self.guarded.contains(&one.path) { "  (CI or the forge obey it)" } else { "" };
            let path = sanitize(&one.path);
            text.push_str(&format!("  +{} -{}  {path}{mark}\n", count(one.added), count(one.removed)));
        }
        // If a later commit reverts the change of a file, the list of changed files does not have it.
        for path in self.guarded.iter().filter(|path| !self.files.iter().any(|one| one.path == **path)) {
            text.push_str(&format!("  {}  (in an earlier commit; CI or the forge obey it)\n", sanitize(path)));
        }
        if self.is_too_large {
            text.push_str("  and more, which is too much to be shown\n");
        }
        text
    }
}

impl PullRequestPlace {
    /// Returns the address of the pull request, or its number if it has none.
    pub(super) fn shown(&self) -> String {
        match (self.url.as_deref().unwrap_or_default(), self.number) {
            ("", Some(number)) => format!("#{number}"),
            (url, _) => url.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarded_files_are_marked_and_nothing_controls_the_terminal() {
        let file = |path: &str, added| ShownFile { path: path.to_owned(), added, removed: Some(0) };
        let change = BranchChange {
            branch: Some("feature/x".to_owned()),
            base: "b".to_owned(),
            head: "h".to_owned(),
            commits: vec![ShownCommit { id: "0123456789abcdef".to_owned(), subject: "say \u{1b}[31mred".to_owned() }],
            files: vec![file(".github/workflows/ci.yml", Some(3)), file("a.png", None)],
            guarded: vec![".github/workflows/ci.yml".to_owned(), "Jenkinsfile".to_owned()],
            is_too_large: true,
        };
        let text = change.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "feature/x from b to h");
        assert!(lines[1].starts_with("  0123456789ab  say ") && !lines[1].contains('\u{1b}'), "{text:?}");
        assert_eq!(lines[2], "  +3 -0  .github/workflows/ci.yml  (CI or the forge obey it)");
        assert_eq!(lines[3], "  +- -0  a.png");
        assert_eq!(lines[4], "  Jenkinsfile  (in an earlier commit; CI or the forge obey it)");
        assert_eq!(lines[5], "  and more, which is too much to be shown");
        assert_eq!(change.json("r")["guarded_paths"], json!([".github/workflows/ci.yml", "Jenkinsfile"]));
    }
}
