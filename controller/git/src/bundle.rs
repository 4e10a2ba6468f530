//! The bundles at the end of a run: one with its commits, and one with its uncommitted changes.

use std::fs::File;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::bundle_header::{BundleError, BundleHeader, HEADER_BYTES};
use crate::directory::Lock;
use crate::error::GitError;
use crate::ingest::Quarantine;
use crate::limits::HOSTILE;
use crate::object_id::ObjectId;
use crate::receive::Push;
use crate::run_repository::RunRepository;
use crate::transfer::update_refs;

/// Maximum time to wait for the lock, which a push of the same run may hold.
const WAIT: Duration = Duration::from_secs(300);

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The change of the branch, if the bundle has commits that were not pushed.
    pub pushed: Option<Push>,
    /// A commit with the uncommitted changes; it is never published.
    pub uncommitted: Option<ObjectId>,
}

impl RunRepository {
    /// Imports the bundle of a file, which the sandbox may have written: the caller opened it without following links.
    /// A bundle that is refused changes nothing.
    ///
    /// # Errors
    /// [`GitError::Refused`], [`GitError::Bundle`]: the bundle is not accepted. Others: a fault of the host.
    pub async fn import_bundle(&self, bundle: File) -> Result<Imported, GitError> {
        let is_file = bundle.metadata().map_err(GitError::file("read a bundle"))?.is_file();
        if !is_file {
            return Err(BundleError::Header.into());
        }
        self.import(crate::file_reader::FileReader::new(bundle)).await
    }

    /// Imports a bundle from a stream.
    ///
    /// # Errors
    /// As [`Self::import_bundle`].
    pub async fn import(&self, mut bundle: impl AsyncRead + Unpin + Send) -> Result<Imported, GitError> {
        let known = self.require_branch()?;
        let (branch, wip) = (known.branch.reference(), self.wip_reference());
        let header = BundleHeader::parse(&header_lines(&mut bundle).await?, &[&branch, &wip])?;
        let _lock = Lock::wait(self.lock_path(), WAIT).await?;
        let old = self.head().await?;
        let quarantine = Quarantine::receive(self, bundle).await?;
        let mut lines = String::new();
        let new = match header.get(&branch) {
            // The local branch may lack commits that the run pushed under another name.
            Some(new) if !quarantine.is_part_of(new, &old).await? => Some(new),
            _ => None,
        };
        if let Some(new) = new {
            quarantine.check_advance(&old, new, &known.identity).await?;
            lines.push_str(&format!("update {branch} {new} {old}\n"));
        }
        if let Some(commit) = header.get(&wip) {
            quarantine.check_complete(commit).await?;
            lines.push_str(&format!("update {wip} {commit}\n"));
        }
        quarantine.keep()?;
        if !lines.is_empty() {
            update_refs(self.program(), self.end(), &format!("start\n{lines}commit\n"), HOSTILE).await?;
        }
        let pushed = new.map(|new| Push { branch: known.branch.clone(), old, new: new.clone() });
        Ok(Imported { pushed, uncommitted: header.get(&wip).cloned() })
    }
}

/// Reads the lines up to the first empty one.
async fn header_lines(bundle: &mut (impl AsyncRead + Unpin)) -> Result<Vec<Vec<u8>>, GitError> {
    let mut lines = vec![Vec::new()];
    for _ in 0..HEADER_BYTES {
        let byte = bundle.read_u8().await.map_err(|_| BundleError::Header)?;
        let line = lines.last_mut().expect("there is a line");
        match byte {
            b'\n' if line.is_empty() => {
                lines.pop();
                return Ok(lines);
            }
            b'\n' => lines.push(Vec::new()),
            byte => line.push(byte),
        }
    }
    Err(BundleError::Header.into())
}
