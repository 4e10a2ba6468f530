//! The arguments between a starter of git and the process that confines itself before it becomes git.
//!
//! Pure.

use std::ffi::{OsStr, OsString};

/// Exit code of a process that could not confine itself; git's own exit codes are at most 129.
pub(crate) const NOT_CONFINED: i32 = 213;

/// Rights of the git process in its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectoryAccess {
    /// Read only.
    Read,
    /// Read and write.
    Write,
}

/// Confinement of a process before it becomes git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfineRequest {
    /// User and group to become; otherwise the user stays.
    pub(crate) user: Option<(u32, u32)>,
    /// TCP port that it may connect to; without one it gets no network.
    pub(crate) port: Option<u16>,
    /// Rights in its directory.
    pub(crate) access: DirectoryAccess,
    /// Address space in bytes.
    pub(crate) memory: u64,
    /// CPU seconds.
    pub(crate) cpu: u64,
    /// Maximum size of a file in bytes.
    pub(crate) file: u64,
    /// Program and its arguments.
    pub(crate) program: Vec<OsString>,
}

/// Arguments that are not a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("git-child is started by sluice itself; its arguments are not as sluice writes them")]
pub struct NotARequest;

impl ConfineRequest {
    /// Returns the request as arguments.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let user = self.user.map_or_else(|| "-".to_owned(), |(uid, gid)| format!("{uid}:{gid}"));
        let port = self.port.map_or_else(|| "-".to_owned(), |port| port.to_string());
        let access = match self.access {
            DirectoryAccess::Read => "read",
            DirectoryAccess::Write => "write",
        };
        let numbers = [self.memory, self.cpu, self.file].map(|number| number.to_string());
        let words = [user, port, access.to_owned()].into_iter().chain(numbers).chain(["--".to_owned()]);
        words.map(OsString::from).chain(self.program.iter().cloned()).collect()
    }

    /// Reads the arguments.
    pub(crate) fn parse(arguments: &[OsString]) -> Result<Self, NotARequest> {
        let (words, program) = arguments.split_at_checked(7).ok_or(NotARequest)?;
        let words: Vec<&str> = words.iter().map(|word| word.to_str().ok_or(NotARequest)).collect::<Result<_, _>>()?;
        let [user, port, access, memory, cpu, file, "--"] = words[..] else { return Err(NotARequest) };
        let is_absolute = program.first().is_some_and(|program| is_absolute(program));
        if !is_absolute {
            return Err(NotARequest);
        }
        Ok(Self {
            user: optional(user, |text| {
                let (uid, gid) = text.split_once(':')?;
                Some((uid.parse().ok()?, gid.parse().ok()?))
            })?,
            port: optional(port, |text| text.parse().ok())?,
            access: match access {
                "read" => DirectoryAccess::Read,
                "write" => DirectoryAccess::Write,
                _ => return Err(NotARequest),
            },
            memory: memory.parse().map_err(|_| NotARequest)?,
            cpu: cpu.parse().map_err(|_| NotARequest)?,
            file: file.parse().map_err(|_| NotARequest)?,
            program: program.to_vec(),
        })
    }
}

fn is_absolute(program: &OsStr) -> bool {
    program.as_encoded_bytes().starts_with(b"/")
}

fn optional<T>(text: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, NotARequest> {
    if text == "-" { Ok(None) } else { parse(text).map(Some).ok_or(NotARequest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let program = vec!["/usr/bin/git".into(), "--".into(), "x y".into()];
        let request = ConfineRequest {
            user: Some((65522, 65521)),
            port: None,
            access: DirectoryAccess::Write,
            memory: 1,
            cpu: 2,
            file: 3,
            program,
        };
        assert_eq!(ConfineRequest::parse(&request.arguments()), Ok(request.clone()));
        let other = ConfineRequest { user: None, port: Some(443), access: DirectoryAccess::Read, ..request.clone() };
        assert_eq!(ConfineRequest::parse(&other.arguments()), Ok(other));
        let relative = ConfineRequest { program: vec!["git".into()], ..request };
        assert_eq!(ConfineRequest::parse(&relative.arguments()), Err(NotARequest));
        assert_eq!(ConfineRequest::parse(&relative.arguments()[..5]), Err(NotARequest));
        assert_eq!(ConfineRequest::parse(&[]), Err(NotARequest));
    }
}
