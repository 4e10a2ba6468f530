//! A push of the sandbox: the command list is judged first, then the pack is checked, then the branch moves.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::branch::Branch;
use crate::directory::Lock;
use crate::error::GitError;
use crate::ingest::Quarantine;
use crate::ingest_refusal::IngestRefusal;
use crate::limits::{HOSTILE, PACK_BYTES};
use crate::object_id::ObjectId;
use crate::run_repository::{RunBranch, RunRepository};
use crate::transfer::update_refs;

pub(crate) mod command_list;
pub(crate) mod judge;
pub(crate) mod pkt_line;
mod report;

use command_list::{COMMANDS, CommandList, ListError, SHALLOW};
use judge::{Expected, PushRefusal, judge};
use pkt_line::{PktLength, pkt_length};

/// Content type of [`RunRepository::advertise`].
pub const ADVERTISEMENT_TYPE: &str = "application/x-git-receive-pack-advertisement";
/// Content type of the body of a push.
pub const REQUEST_TYPE: &str = "application/x-git-receive-pack-request";
/// Content type of [`PushOutcome::report`].
pub const RESULT_TYPE: &str = "application/x-git-receive-pack-result";

/// Capabilities that clients are offered, in addition to the object format and the agent; no others are accepted.
const CAPABILITIES: &str = "report-status side-band-64k quiet ofs-delta";

/// Maximum number of bytes of a command list.
const LIST_BYTES: usize = 64 * 1024;

/// Maximum time for a client to send its command list, and to send the rest of its body after the decision.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answer to a push.
#[derive(Debug)]
pub struct PushOutcome {
    /// Body of the response to the client.
    pub report: Vec<u8>,
    /// The change of the branch; none if the push was refused or changed nothing.
    pub pushed: Option<Push>,
    /// Reason of a refusal, as reported to the client.
    pub refused: Option<String>,
}

/// A change of the head of the run's branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The branch.
    pub branch: Branch,
    /// Head before the push.
    pub old: ObjectId,
    /// Head after the push.
    pub new: ObjectId,
}

impl RunRepository {
    /// Returns the answer to `GET info/refs?service=git-receive-pack`: the branch of the run and no other ref.
    ///
    /// # Errors
    /// [`GitError`]
    pub async fn advertise(&self) -> Result<Vec<u8>, GitError> {
        let known = self.require_branch()?;
        let head = self.head().await?;
        let format = object_format(&head);
        let agent = concat!("agent=sluice/", env!("CARGO_PKG_VERSION"));
        let line = format!("{head} {}\0{CAPABILITIES} object-format={format} {agent}\n", known.branch.reference());
        let mut body = pkt_line::data(b"# service=git-receive-pack\n");
        body.extend_from_slice(pkt_line::FLUSH);
        body.extend(pkt_line::data(line.as_bytes()));
        body.extend_from_slice(pkt_line::FLUSH);
        Ok(body)
    }

    /// Receives the body of `POST git-receive-pack`, and answers. A push that is refused leaves nothing. The whole body
    /// is read in any case, up to the limit of a pack. The caller records the push with the number of bytes that were
    /// read, and does not begin another push if the bytes of the run are used up.
    ///
    /// # Errors
    /// [`GitError`]: a fault of the host. The client gets no report.
    pub async fn receive(&self, mut body: impl AsyncRead + Unpin + Send) -> Result<PushOutcome, GitError> {
        let known = self.require_branch()?;
        let listed = tokio::time::timeout(PATIENCE, read_list(&mut body)).await.unwrap_or(Err(ListError::Truncated));
        let list = match listed {
            Ok(Some(list)) => list,
            Ok(None) => return Ok(PushOutcome { report: Vec::new(), pushed: None, refused: None }),
            Err(error) => {
                drain(&mut body).await;
                return Ok(refused(&CommandList::default(), &error.to_string()));
            }
        };
        let done = self.take(&known, &list, &mut body).await;
        drain(&mut body).await;
        match done {
            Ok(push) => {
                let report = report::accepted(&list);
                let pushed = (push.old != push.new).then_some(push);
                Ok(PushOutcome { report, pushed, refused: None })
            }
            Err(PushError::Refused(reason)) => Ok(refused(&list, &reason)),
            Err(PushError::Host(error)) => Err(error),
        }
    }

    async fn take(
        &self,
        known: &RunBranch,
        list: &CommandList,
        body: &mut (impl AsyncRead + Unpin + Send),
    ) -> Result<Push, PushError> {
        // One push of a run at a time: the branch must not move between check and change.
        let Some(_lock) = Lock::take(self.lock_path())? else { return Err(PushRefusal::Busy.into()) };
        let head = self.head().await?;
        let shallow = self.shallow()?;
        let expected = Expected { branch: &known.branch, head: &head, format: object_format(&head), shallow: &shallow };
        let new = judge(list, &expected)?;
        // The byte after the last one that is accepted shows that the pack is too large.
        let mut pack = body.take(self.push_history()?.room().saturating_add(1));
        let received = Quarantine::receive(self, &mut pack).await;
        if pack.limit() == 0 {
            return Err(GitError::from(IngestRefusal::Total).into());
        }
        let quarantine = received?;
        quarantine.check_advance(&head, &new, &known.identity).await?;
        quarantine.keep()?;
        let line = format!("update {} {new} {head}\n", known.branch.reference());
        update_refs(self.program(), self.end(), &line, HOSTILE).await?;
        Ok(Push { branch: known.branch.clone(), old: head, new })
    }

    /// Returns the commits at which the history of the repository begins, if it is not whole.
    fn shallow(&self) -> Result<Vec<ObjectId>, GitError> {
        let text = crate::directory::read_small(&self.path().join("shallow"))?.unwrap_or_default();
        Ok(text.split(|byte| *byte == b'\n').filter_map(|line| ObjectId::from_bytes(line).ok()).collect())
    }
}

/// Reason why a push was not done.
enum PushError {
    /// The client gets the reason.
    Refused(String),
    /// The host has a fault.
    Host(GitError),
}

impl From<GitError> for PushError {
    fn from(error: GitError) -> Self {
        match error {
            GitError::Refused(refusal) => Self::Refused(refusal.to_string()),
            GitError::TimedOut { .. } | GitError::TooMuchOutput { .. } => {
                Self::Refused("the push is too large to be checked; push fewer commits at a time".to_owned())
            }
            error => Self::Host(error),
        }
    }
}

impl From<PushRefusal> for PushError {
    fn from(refusal: PushRefusal) -> Self {
        Self::Refused(refusal.to_string())
    }
}

fn refused(list: &CommandList, reason: &str) -> PushOutcome {
    PushOutcome { report: report::refused(list, reason), pushed: None, refused: Some(reason.to_owned()) }
}

fn object_format(id: &ObjectId) -> &'static str {
    if id.as_str().len() == 64 { "sha256" } else { "sha1" }
}

/// Reads lines up to the first flush; `None` if there are none.
async fn read_list(body: &mut (impl AsyncRead + Unpin)) -> Result<Option<CommandList>, ListError> {
    let mut lines = Vec::new();
    let mut total = 0;
    loop {
        let mut length = [0; 4];
        body.read_exact(&mut length).await.map_err(|_| ListError::Truncated)?;
        let PktLength::Data(bytes) = pkt_length(length)? else { break };
        // The four bytes of the length count too, so empty lines also use up the limit.
        total += length.len() + bytes;
        if total > LIST_BYTES || lines.len() > COMMANDS + SHALLOW {
            return Err(ListError::TooLong);
        }
        let mut line = vec![0; bytes];
        body.read_exact(&mut line).await.map_err(|_| ListError::Truncated)?;
        lines.push(line);
    }
    if lines.is_empty() { Ok(None) } else { CommandList::parse(&lines).map(Some) }
}

/// Reads the rest: a client reads the answer only after it has sent everything.
async fn drain(body: &mut (impl AsyncRead + Unpin)) {
    let mut rest = body.take(PACK_BYTES);
    let _ = tokio::time::timeout(PATIENCE, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn empty_lines_have_a_bound() {
        let body = b"0004".repeat(20_000);
        assert_eq!(read_list(&mut &body[..]).await.err(), Some(ListError::TooLong));
    }
}
