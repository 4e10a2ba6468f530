//! The decision about the commands of a push, before git receives any of it.
//!
//! Pure.

use sluice_contract::text::truncate;

use super::command_list::CommandList;
use crate::branch::Branch;
use crate::object_id::ObjectId;

/// Conditions that a push must meet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    /// The only branch that a push may change.
    pub(crate) branch: &'a Branch,
    /// Present head of the branch.
    pub(crate) head: &'a ObjectId,
    /// Object format of the ids: `sha1` or `sha256`.
    pub(crate) format: &'a str,
    /// Commits where the history of the repository begins.
    pub(crate) shallow: &'a [ObjectId],
}

/// Reason why a push is refused. The texts go to the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PushRefusal {
    /// More than one command.
    #[error("a push changes one branch; push {branch} alone: git push origin HEAD:{branch}")]
    Commands {
        /// The allowed branch.
        branch: String,
    },
    /// A ref other than the allowed branch.
    #[error("only the branch {branch} is accepted, not {}; run: git push origin HEAD:{branch}", truncate(.given))]
    Reference {
        /// The allowed branch.
        branch: String,
        /// The ref of the command.
        given: String,
    },
    /// A deletion.
    #[error("the branch {branch} cannot be deleted")]
    Delete {
        /// The allowed branch.
        branch: String,
    },
    /// A capability that was not offered.
    #[error("the capability '{}' was not offered; use git without push options and certificates", truncate(.0))]
    Capability(String),
    /// The client's history has a boundary that the repository does not have.
    #[error("the history of the clone was cut; push from the clone in /workspace/repo, which has it whole")]
    Shallow,
    /// An id of another object format.
    #[error("ids of commits are {0} here")]
    Format(String),
    /// The branch has moved meanwhile.
    #[error("the branch is at {head}, not at {given}; push from a clone that has this commit: nothing can be fetched")]
    Stale {
        /// Present head.
        head: String,
        /// Head in the command.
        given: String,
    },
    /// Another push is in progress.
    #[error("another push of this run is going on; push again when it has ended")]
    Busy,
}

/// Returns the new head, if the push has exactly the one command that is allowed.
pub(crate) fn judge(list: &CommandList, expected: &Expected<'_>) -> Result<ObjectId, PushRefusal> {
    let branch = expected.branch.to_string();
    let [command] = &list.commands[..] else { return Err(PushRefusal::Commands { branch }) };
    if command.reference != expected.branch.reference() {
        return Err(PushRefusal::Reference { branch, given: command.reference.clone() });
    }
    if command.new.is_zero() {
        return Err(PushRefusal::Delete { branch });
    }
    if let Some(unknown) = list.capabilities.iter().find(|capability| !is_offered(capability, expected.format)) {
        return Err(PushRefusal::Capability(unknown.clone()));
    }
    if list.shallow.iter().any(|id| !expected.shallow.contains(id)) {
        return Err(PushRefusal::Shallow);
    }
    let width = expected.head.as_str().len();
    if command.new.as_str().len() != width || command.old.as_str().len() != width {
        return Err(PushRefusal::Format(expected.format.to_owned()));
    }
    if command.old != *expected.head {
        return Err(PushRefusal::Stale { head: expected.head.to_string(), given: command.old.to_string() });
    }
    Ok(command.new.clone())
}

fn is_offered(capability: &str, format: &str) -> bool {
    matches!(capability, "report-status" | "side-band-64k" | "quiet" | "ofs-delta")
        || capability.starts_with("agent=")
        || capability.strip_prefix("object-format=") == Some(format)
}

#[cfg(test)]
mod tests {
    use super::super::command_list::RefCommand;
    use super::*;

    fn id(digit: &str) -> ObjectId {
        digit.repeat(40).parse().expect("an id")
    }

    fn list(old: ObjectId, new: ObjectId, reference: &str) -> CommandList {
        let command = RefCommand { old, new, reference: reference.to_owned() };
        CommandList { commands: vec![command], ..CommandList::default() }
    }

    fn decide(list: &CommandList) -> Result<ObjectId, PushRefusal> {
        let branch: Branch = "feature/x".parse().expect("a branch");
        let expected = Expected { branch: &branch, head: &id("1"), format: "sha1", shallow: &[id("5")] };
        judge(list, &expected)
    }

    #[test]
    fn exactly_one_command_on_the_branch_passes() {
        let good = list(id("1"), id("2"), "refs/heads/feature/x");
        assert_eq!(decide(&good), Ok(id("2")));
        for capability in ["report-status", "side-band-64k", "quiet", "ofs-delta", "agent=git/2", "object-format=sha1"]
        {
            assert!(decide(&CommandList { capabilities: vec![capability.to_owned()], ..good.clone() }).is_ok());
        }
        assert!(decide(&CommandList { shallow: vec![id("5")], ..good.clone() }).is_ok());
        let two = CommandList { commands: [good.commands.clone(), good.commands.clone()].concat(), ..good.clone() };
        assert!(matches!(decide(&two), Err(PushRefusal::Commands { .. })));
    }

    #[test]
    fn other_refs_are_refused() {
        for reference in [
            "refs/heads/feature/x/sub", "refs/heads/feature", "refs/heads/feature/X", "refs/heads/main", "HEAD",
            "feature/x", "refs/heads/feature/x ", "refs/tags/feature/x", "refs/heads/../heads/feature/x",
            "refs/sluice/base", "refs/heads//feature/x",
        ] {
            let refusal = decide(&list(id("1"), id("2"), reference));
            assert!(matches!(refusal, Err(PushRefusal::Reference { .. })), "{reference}");
        }
    }

    #[test]
    fn other_wishes_are_refused() {
        let good = list(id("1"), id("2"), "refs/heads/feature/x");
        let delete = list(id("1"), id("0"), "refs/heads/feature/x");
        assert!(matches!(decide(&delete), Err(PushRefusal::Delete { .. })));
        let stale = list(id("0"), id("2"), "refs/heads/feature/x");
        assert!(matches!(decide(&stale), Err(PushRefusal::Stale { .. })));
        for capability in
            ["push-options", "atomic", "delete-refs", "push-cert=x", "object-format=sha256", "report-status-v2"]
        {
            let wish = CommandList { capabilities: vec![capability.to_owned()], ..good.clone() };
            assert_eq!(decide(&wish), Err(PushRefusal::Capability(capability.to_owned())));
        }
        assert_eq!(decide(&CommandList { shallow: vec![id("6")], ..good.clone() }), Err(PushRefusal::Shallow));
        let mut wide = good;
        wide.commands[0].new = "2".repeat(64).parse().expect("an id");
        assert_eq!(decide(&wide), Err(PushRefusal::Format("sha1".to_owned())));
    }
}
