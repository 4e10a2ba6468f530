//! Parses the output of `git push --porcelain`.
//!
//! Pure. The texts come from the forge.

use sluice_contract::text::{sanitize, truncate};

/// Result of a push to a forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PushEnd {
    /// The branch was made or moved.
    Done,
    /// The branch already had the commit.
    AlreadyThere,
    /// The branch is not at the commit of the lease.
    Stale,
    /// The forge refused.
    Refused(String),
    /// The output has no line about the branch: the push ended earlier.
    Unknown,
}

/// Reads the line about the one ref.
pub(crate) fn push_end(output: &[u8]) -> PushEnd {
    let text = String::from_utf8_lossy(output).into_owned();
    let Some(line) = text.lines().find(|line| line.contains("\trefs/heads/") || line.contains(":refs/heads/")) else {
        return PushEnd::Unknown;
    };
    let mut fields = line.split('\t');
    let flag = fields.next().unwrap_or_default();
    let summary = fields.nth(1).unwrap_or_default();
    match flag {
        "=" => PushEnd::AlreadyThere,
        "*" | " " | "+" => PushEnd::Done,
        _ if is_stale(summary) => PushEnd::Stale,
        _ => PushEnd::Refused(truncate(&sanitize(summary))),
    }
}

/// Returns true if git itself has found that the branch is at another commit. The forge chooses the words after
/// `[remote rejected]`, so they are not evaluated.
fn is_stale(summary: &str) -> bool {
    let words = ["stale info", "fetch first", "already exists"];
    summary.starts_with("[rejected]") && words.iter().any(|words| summary.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_ref_decides() {
        let line = |flag: &str, summary: &str| format!("To https://h/r\n{flag}\tabc:refs/heads/x\t{summary}\nDone\n");
        for (flag, summary, expected) in [
            ("*", "[new branch]", PushEnd::Done),
            (" ", "a..b", PushEnd::Done),
            ("=", "[up to date]", PushEnd::AlreadyThere),
            ("!", "[rejected] (stale info)", PushEnd::Stale),
            ("!", "[remote rejected] (protected)", PushEnd::Refused("[remote rejected] (protected)".to_owned())),
        ] {
            assert_eq!(push_end(line(flag, summary).as_bytes()), expected, "{flag}");
        }
        assert_eq!(push_end(b"fatal: no\n"), PushEnd::Unknown);
    }

    /// Bug: if the refusal of a forge had such words, the branch was pushed under twenty names.
    #[test]
    fn words_of_the_forge_mean_no_taken_name() {
        for words in ["a rule for this name already exists", "stale info", "fetch first"] {
            let summary = format!("[remote rejected] ({words})");
            let output = format!("To https://h/r\n!\tabc:refs/heads/x\t{summary}\nDone\n");
            assert_eq!(push_end(output.as_bytes()), PushEnd::Refused(summary));
        }
    }
}
