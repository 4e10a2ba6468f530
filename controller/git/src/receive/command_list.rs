//! The list of commands at the beginning of a push.
//!
//! Pure. The bytes come from the sandbox.

use crate::object_id::ObjectId;

/// Maximum number of commands that are read, so that each gets an answer.
pub(super) const COMMANDS: usize = 64;
/// Maximum number of `shallow` lines that are read.
pub(super) const SHALLOW: usize = 1000;

/// One change of a ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefCommand {
    /// Object before.
    pub(crate) old: ObjectId,
    /// Object after.
    pub(crate) new: ObjectId,
    /// Name of the ref, as the client wrote it.
    pub(crate) reference: String,
}

/// Commands and capabilities of a push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CommandList {
    /// Changes of refs.
    pub(crate) commands: Vec<RefCommand>,
    /// Capabilities that the client wants.
    pub(crate) capabilities: Vec<String>,
    /// Commits at which the history of the client begins.
    pub(crate) shallow: Vec<ObjectId>,
}

/// Reason why the list of a push cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ListError {
    /// Wrong length of a line.
    #[error("the request is not in the form of git: the length of a line is wrong")]
    Length,
    /// The body ends inside of the list.
    #[error("the request is not in the form of git: it ends inside of the list of commands")]
    Truncated,
    /// The list has too many bytes or commands.
    #[error("the push has more than {COMMANDS} commands; push one branch")]
    TooLong,
    /// A signed push.
    #[error("signed pushes are not accepted; push without --signed")]
    Certificate,
    /// A line that is not a command.
    #[error("the request is not in the form of git: a command is not an old id, a new id and a ref")]
    Command,
}

impl CommandList {
    /// Reads the lines before the first flush.
    pub(crate) fn parse(lines: &[Vec<u8>]) -> Result<Self, ListError> {
        let mut list = Self::default();
        for line in lines {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            if line.starts_with(b"push-cert") {
                return Err(ListError::Certificate);
            }
            if let Some(id) = line.strip_prefix(b"shallow ") {
                list.shallow.push(ObjectId::from_bytes(id).map_err(|_| ListError::Command)?);
            } else {
                list.add(line)?;
            }
            if list.commands.len() > COMMANDS || list.shallow.len() > SHALLOW {
                return Err(ListError::TooLong);
            }
        }
        if list.commands.is_empty() { Err(ListError::Command) } else { Ok(list) }
    }

    /// Returns true if the client wants the capability.
    pub(crate) fn wants(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|wanted| wanted == capability)
    }

    /// Adds a command; the first one has the capabilities after a zero byte.
    fn add(&mut self, line: &[u8]) -> Result<(), ListError> {
        let zero = line.iter().position(|byte| *byte == 0);
        let (command, capabilities) = zero.map_or((line, None), |zero| (&line[..zero], Some(&line[zero + 1..])));
        if let Some(capabilities) = capabilities {
            if !self.commands.is_empty() {
                return Err(ListError::Command);
            }
            let text = std::str::from_utf8(capabilities).map_err(|_| ListError::Command)?;
            self.capabilities = text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        }
        let mut words = command.splitn(3, |byte| *byte == b' ');
        let mut id = || ObjectId::from_bytes(words.next().unwrap_or_default()).map_err(|_| ListError::Command);
        let (old, new) = (id()?, id()?);
        let reference = std::str::from_utf8(words.next().unwrap_or_default()).map_err(|_| ListError::Command)?;
        let is_name = (1..=1024).contains(&reference.len()) && !reference.chars().any(char::is_control);
        if !is_name {
            return Err(ListError::Command);
        }
        self.commands.push(RefCommand { old, new, reference: reference.to_owned() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";

    fn parse(lines: &[&str]) -> Result<CommandList, ListError> {
        CommandList::parse(&lines.iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn commands_and_capabilities_are_read() {
        let first = format!("{A} {B} refs/heads/x\0 report-status agent=git/2\n");
        let list = parse(&[&format!("shallow {A}"), &first, &format!("{B} {A} refs/heads/y")]).expect("a list");
        assert_eq!(list.capabilities, ["report-status", "agent=git/2"]);
        assert_eq!((list.commands.len(), list.shallow.len()), (2, 1));
        assert_eq!(list.commands[1].reference, "refs/heads/y");
        assert!(list.wants("report-status") && !list.wants("report"));
    }

    #[test]
    fn lines_that_are_no_commands_are_errors() {
        let command = format!("{A} {B} refs/heads/x");
        for (lines, expected) in [
            (vec!["push-cert\0x".to_owned()], ListError::Certificate),
            (vec![format!("{A} {B}")], ListError::Command),
            (vec![format!("{A} {B} ")], ListError::Command),
            (vec![format!("{A}  refs/heads/x")], ListError::Command),
            (vec![format!("HEAD {B} refs/heads/x")], ListError::Command),
            (vec![format!("{command}\nrefs/heads/y")], ListError::Command),
            (vec![format!("{command}\x1b")], ListError::Command),
            (vec![command.clone(), format!("{command}\0x")], ListError::Command),
            (vec![format!("shallow {A}")], ListError::Command),
            (vec!["shallow x".to_owned()], ListError::Command),
            (vec![command.clone(); COMMANDS + 1], ListError::TooLong),
            (vec![], ListError::Command),
        ] {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            assert_eq!(parse(&lines), Err(expected), "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn any_lines_are_a_list_or_an_error(lines: Vec<Vec<u8>>) {
            if let Ok(list) = CommandList::parse(&lines) {
                prop_assert!(!list.commands.is_empty() && list.commands.len() <= COMMANDS);
            }
        }

        #[test]
        fn what_is_read_was_written(name in "[ -~]{1,40}", capability in "[!-~]{1,10}") {
            let list = parse(&[&format!("{A} {B} {name}\0{capability}")]).expect("a command");
            prop_assert_eq!(&list.commands[0].reference, &name);
            prop_assert_eq!(&list.capabilities, &[capability]);
        }
    }
}
