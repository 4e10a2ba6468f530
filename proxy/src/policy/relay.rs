//! Requests to the controller: the closed list of those that exist, and what their query may say.
//!
//! Pure. A query is never passed on: its members are read, checked, and written anew.

use http::Method;

use super::wrong_method;
use crate::refusal::{Reason, Refusal};

/// Methods and resources below the own run.
const RELAYED: [(&str, &str); 6] = [
    ("POST", "events"),
    ("GET", "messages"),
    ("POST", "messages/ack"),
    ("GET", "task"),
    ("GET", "interventions"),
    ("POST", "questions"),
];
/// Beginning of the resource of one question, which has the answer to it.
const QUESTION: &str = "questions/";
/// Maximum length of an id, in bytes.
const ID_MAX: usize = 64;
/// Longest time in seconds that a request may ask the controller to wait for something new.
const WAIT_MAX: u64 = 25;
/// Maximum number of entries that a request may ask for.
const LIMIT_MAX: u64 = 100;

/// Resource of the controller that a sandbox may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayTarget<'a> {
    /// One of the own run, by its path below it.
    Resource(&'a str),
    /// The refs of the run's repository, as a push asks for them.
    PushedRefs,
    /// A push to the run's repository.
    Push,
}

/// The query of a relayed request, as the sidecar writes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RelayQuery {
    after: Option<String>,
    ack: Option<&'static str>,
    limit: Option<u64>,
    wait: Option<u64>,
}

/// Admits a resource below the own run; `None` if it does not exist.
///
/// # Errors
/// `method_not_allowed`
pub(super) fn admit<'a>(method: &Method, resource: &'a str) -> Option<Result<RelayTarget<'a>, Refusal>> {
    let is_question = resource.strip_prefix(QUESTION).is_some_and(is_id);
    let known = if is_question { "GET" } else { RELAYED.iter().find(|(_, known)| *known == resource)?.0 };
    Some(if method == known { Ok(RelayTarget::Resource(resource)) } else { Err(wrong_method(&[known])) })
}

/// Admits a path of git's protocol below the own repository; `None` if it does not exist.
///
/// # Errors
/// `push_only`, `method_not_allowed`
#[cold]
#[inline(never)]
pub(super) fn admit_git(
    method: &Method,
    path: &str,
    query: Option<&str>,
) -> Option<Result<RelayTarget<'static>, Refusal>> {
    let (known, target) = match (path, query) {
        ("info/refs", Some("service=git-receive-pack")) => ("GET", RelayTarget::PushedRefs),
        ("git-receive-pack", _) => ("POST", RelayTarget::Push),
        ("info/refs" | "git-upload-pack", _) => {
            let message = "this repository takes a push only; what the run may read is in its clone already";
            return Some(Err(Refusal::new(Reason::PushOnly, message)));
        }
        _ => return None,
    };
    Some(if method == known { Ok(target) } else { Err(wrong_method(&[known])) })
}

impl RelayQuery {
    /// Reads a query.
    ///
    /// # Errors
    /// `param_not_allowed`, `invalid_param`
    pub fn parse(method: &Method, query: Option<&str>) -> Result<Self, Refusal> {
        let mut parsed = Self::default();
        for member in query.unwrap_or_default().split('&').filter(|member| !member.is_empty()) {
            let (name, value) = member.split_once('=').unwrap_or((member, ""));
            let number = |most: u64| value.parse().ok().filter(|number| *number <= most && is_number(value));
            let is_new = match name {
                _ if method != Method::GET => return Err(not_allowed(name)),
                "after" => parsed
                    .after
                    .replace(Some(value).filter(|id| is_id(id)).ok_or_else(|| invalid(name))?.into())
                    .is_none(),
                "ack" => {
                    let known = ["manual", "auto"].into_iter().find(|known| *known == value);
                    parsed.ack.replace(known.ok_or_else(|| invalid(name))?).is_none()
                }
                "limit" => {
                    let limit = number(LIMIT_MAX).filter(|limit| *limit > 0);
                    parsed.limit.replace(limit.ok_or_else(|| invalid(name))?).is_none()
                }
                "wait" => parsed.wait.replace(number(WAIT_MAX).ok_or_else(|| invalid(name))?).is_none(),
                _ => return Err(not_allowed(name)),
            };
            if !is_new {
                return Err(invalid(name));
            }
        }
        Ok(parsed)
    }

    /// Returns true if the controller may wait before it answers.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.wait.is_some_and(|seconds| seconds > 0)
    }
}

impl std::fmt::Display for RelayQuery {
    /// Writes the query with its question mark; nothing if it is empty.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers = [("limit", self.limit), ("wait", self.wait)];
        let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name, number?.to_string())));
        let after = self.after.iter().map(|after| ("after", after.clone()));
        let ack = self.ack.iter().map(|ack| ("ack", (*ack).to_owned()));
        for (at, (name, value)) in after.chain(ack).chain(numbers).enumerate() {
            write!(f, "{}{name}={value}", if at == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

fn is_id(text: &str) -> bool {
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    is_plain && (1..=ID_MAX).contains(&text.len())
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.len() <= 3
}

fn not_allowed(name: &str) -> Refusal {
    let message = "this path takes after, ack, limit and wait in the query of a GET; leave the others out";
    Refusal::new(Reason::ParamNotAllowed, message).param(name)
}

fn invalid(name: &str) -> Refusal {
    let message = "once each: wait is 0 to 25 seconds, limit 1 to 100, ack manual or auto, after an id";
    Refusal::new(Reason::InvalidParam, message).param(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_checked_members_of_a_query_are_written() {
        for (query, written) in [
            ("", Ok("")),
            ("&", Ok("")),
            ("wait=25", Ok("?wait=25")),
            ("wait=0&ack=manual&limit=100&after=msg-0a", Ok("?after=msg-0a&ack=manual&limit=100&wait=0")),
            ("wait=007", Ok("?wait=7")),
            ("wait=26", Err(Reason::InvalidParam)),
            ("wait=+1", Err(Reason::InvalidParam)),
            ("wait=1.5", Err(Reason::InvalidParam)),
            ("wait", Err(Reason::InvalidParam)),
            ("wait=1&wait=2", Err(Reason::InvalidParam)),
            ("limit=0", Err(Reason::InvalidParam)),
            ("limit=101", Err(Reason::InvalidParam)),
            ("ack=yes", Err(Reason::InvalidParam)),
            ("after=a%20b", Err(Reason::InvalidParam)),
            ("after=a/../b", Err(Reason::InvalidParam)),
            ("since=1", Err(Reason::ParamNotAllowed)),
            ("wait=1;x=2", Err(Reason::InvalidParam)),
            ("token=t", Err(Reason::ParamNotAllowed)),
            ("%77ait=1", Err(Reason::ParamNotAllowed)),
            ("service=git-upload-pack", Err(Reason::ParamNotAllowed)),
        ] {
            let parsed = RelayQuery::parse(&Method::GET, Some(query));
            let found = parsed.map(|query| query.to_string()).map_err(|refusal| refusal.reason);
            assert_eq!(found.as_deref().map_err(|reason| *reason), written, "{query}");
        }
        let posted = RelayQuery::parse(&Method::POST, Some("wait=1"));
        assert_eq!(posted.map_err(|refusal| refusal.reason), Err(Reason::ParamNotAllowed));
    }

    #[test]
    fn a_poll_of_no_seconds_waits_for_nothing() {
        let waits = |query| RelayQuery::parse(&Method::GET, query).expect("a query").waits();
        assert_eq!((waits(None), waits(Some("wait=0")), waits(Some("wait=1"))), (false, false, true));
    }
}
