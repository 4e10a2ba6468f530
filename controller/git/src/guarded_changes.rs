//! Finds guarded paths in a change, and in git's machine-readable list of the changes of each commit.
//!
//! Pure. Paths come from the sandbox. A publication has all commits of a branch, so a path counts even if a later
//! commit reverts the change.

use std::collections::BTreeMap;

use crate::guarded_paths::{Guard, guard_of};
use crate::look_parse::{BrokenOutput, SUBMODULE};

/// Guarded paths with their reasons.
pub(crate) type GuardedPaths = BTreeMap<Vec<u8>, Guard>;

/// Returns the reason why a change of this path between entries of these modes needs an approval, if it does.
pub(crate) fn guard_of_change(path: &[u8], modes: &[u32]) -> Option<Guard> {
    if modes.contains(&SUBMODULE) { Some(Guard::Git) } else { guard_of(path) }
}

/// Reads `diff-tree --stdin -r -c -z --raw` of many commits, and returns only the guarded paths, each once. Stops after
/// `most` paths, and returns true if there were more.
pub(crate) fn guarded_changes(output: &[u8], most: usize) -> Result<(GuardedPaths, bool), BrokenOutput> {
    let mut guarded = GuardedPaths::new();
    let mut fields = output.split(|byte| *byte == 0).filter(|field| !field.is_empty());
    while let Some(record) = fields.next() {
        let path = fields.next().ok_or(BrokenOutput)?;
        let Some(guard) = guard_of_change(path, &modes(record)?) else { continue };
        if guarded.len() == most && !guarded.contains_key(path) {
            return Ok((guarded, true));
        }
        guarded.insert(path.to_vec(), guard);
    }
    Ok((guarded, false))
}

/// Returns the modes of an entry in the parents of a commit, and in the commit. A record begins with a colon for each
/// parent; the modes, the ids and the kinds of change follow.
fn modes(record: &[u8]) -> Result<Vec<u32>, BrokenOutput> {
    let record = std::str::from_utf8(record).map_err(|_| BrokenOutput)?;
    let fields = record.trim_start_matches(':');
    let parents = record.len() - fields.len();
    let words: Vec<&str> = fields.split(' ').collect();
    if parents == 0 || words.len() != 2 * parents + 3 {
        return Err(BrokenOutput);
    }
    words[..=parents].iter().map(|mode| mode.parse().map_err(|_| BrokenOutput)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(modes: &str, path: &str) -> String {
        let parents = modes.split(' ').count() - 1;
        let ids = " aaa".repeat(parents + 1);
        format!("{}{modes}{ids} {}\0{path}\0", ":".repeat(parents), "M".repeat(parents))
    }

    #[test]
    fn guarded_paths_of_commits_are_kept_once() {
        let output = [
            record("000000 100644", ".github/a.yml"),
            record("100644 100644", "src/main.rs"),
            record("100644 000000", ".github/a.yml"),
            record("000000 160000 100644", "lib/vendored"),
            record("100644 100644 100644 100755", "CODEOWNERS"),
        ];
        let output = output.concat();
        let (guarded, is_cut) = guarded_changes(output.as_bytes(), 3).expect("five records");
        let expected: [(&[u8], Guard); 3] =
            [(b".github/a.yml", Guard::Ci), (b"CODEOWNERS", Guard::Reviewers), (b"lib/vendored", Guard::Git)];
        let found: Vec<(&[u8], Guard)> = guarded.iter().map(|(path, guard)| (path.as_slice(), *guard)).collect();
        assert_eq!((&found[..], is_cut), (&expected[..], false));
        let (guarded, is_cut) = guarded_changes(output.as_bytes(), 2).expect("five records");
        assert_eq!((guarded.len(), is_cut), (2, true));
    }

    #[test]
    fn records_that_git_does_not_write_are_errors() {
        for output in
            ["100644 100644 a b M\0x\0", ":100644 a b M\0x\0", "::100644 100644 a b M\0x\0", ":1 x a b M\0x\0"]
        {
            assert_eq!(guarded_changes(output.as_bytes(), 5), Err(BrokenOutput), "{output:?}");
        }
        assert_eq!(guarded_changes(b":1 2 a b M\0", 5), Err(BrokenOutput));
        assert_eq!(guarded_changes(b"", 5), Ok((GuardedPaths::new(), false)));
    }
}
