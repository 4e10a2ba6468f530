//! The configuration of the clone that a sandbox gets.
//!
//! Pure.

use crate::branch::Branch;
use crate::identity::CommitterIdentity;

/// Returns the text of `.git/config`: origin is the relay, and a plain `git push` sends the branch of the run.
pub(crate) fn clone_config(branch: &Branch, origin_url: &str, identity: &CommitterIdentity) -> String {
    let url = quoted(origin_url);
    let (name, email) = (quoted(identity.name()), quoted(identity.email()));
    format!(
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
         [remote \"origin\"]\n\turl = {url}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
         [branch \"{branch}\"]\n\tremote = origin\n\tmerge = refs/heads/{branch}\n\
         [push]\n\tdefault = current\n\
         [user]\n\tname = {name}\n\temail = {email}\n"
    )
}

/// Quotes a value; control characters do not get here.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_configuration_are_quoted() {
        let identity = CommitterIdentity::new("Sluice; r1 # x", "r1@sluice.invalid").expect("plain");
        let text = clone_config(&"fix/#1".parse().expect("a branch"), "http://localhost:8080/git/r1.git", &identity);
        assert!(text.contains("name = \"Sluice; r1 # x\"\n") && text.contains("[branch \"fix/#1\"]\n"), "{text}");
        assert_eq!(quoted("a\"b\\c"), "\"a\\\"b\\\\c\"");
    }
}
