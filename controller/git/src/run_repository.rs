//! The repository of one run: its base and its pushes, and no data of other runs.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_contract::RunId;

use crate::branch::Branch;
use crate::directory::{Lock, file_bytes, make_private, read_small, remove, replace};
use crate::error::GitError;
use crate::home::{GitHome, RepositoryPaths};
use crate::identity::CommitterIdentity;
use crate::leftovers;
use crate::limits::{HOSTILE, Limits, OPERATOR};
use crate::object_id::ObjectId;
use crate::program::{GitCommand, GitProgram};
use crate::push_history::PushHistory;
use crate::transfer::{TransferEnd, init, resolve, transfer, update_refs};

/// Ref of the commit that the run started from.
pub(crate) const BASE: &str = "refs/sluice/base";
/// Directory of packs.
const PACKS: &str = "objects/pack";

/// Maximum time to wait for the lock.
const WAIT: Duration = Duration::from_secs(300);

/// Held while a push is added to a record: two pushes of a run may end at the same time.
static PUSH_RECORDS: Mutex<()> = Mutex::new(());

/// Bare repository of one run. All values for one run refer to the same repository.
#[derive(Debug, Clone)]
pub struct RunRepository {
    home: GitHome,
    run: RunId,
    paths: RepositoryPaths,
    base_branch: Branch,
    base: ObjectId,
    base_bytes: u64,
}

/// The record of the repository, which the user of git cannot reach.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RepositoryState {
    base_branch: String,
    base: String,
    /// Bytes of the packs of the base.
    #[serde(default)]
    base_bytes: u64,
    branch: Option<String>,
    identity: Option<CommitterIdentity>,
    /// Pushes that have ended.
    #[serde(default)]
    pushes: PushHistory,
}

/// Branch and committer of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunBranch {
    pub(crate) branch: Branch,
    pub(crate) identity: CommitterIdentity,
}

impl GitHome {
    /// Returns the repository of a run, if it has one.
    ///
    /// # Errors
    /// [`GitError::Record`], [`GitError::File`]
    pub fn run_repository(&self, run: &RunId) -> Result<Option<RunRepository>, GitError> {
        RunRepository::open(self, run)
    }
}

impl RunRepository {
    /// Makes the repository, or opens the existing one: a crash leaves none or a complete one.
    pub(crate) async fn make(
        home: &GitHome,
        run: &RunId,
        mirror: TransferEnd<'_>,
        base_branch: Branch,
        base: ObjectId,
    ) -> Result<Self, GitError> {
        home.prepare()?;
        let paths = home.run_paths(run);
        let _lock = Lock::wait(&paths.lock, WAIT).await?;
        if let Some(repository) = Self::open(home, run)? {
            return Ok(repository);
        }
        let program = home.program();
        remove(&paths.repository)?;
        remove(&paths.unfinished)?;
        make_private(&paths.unfinished, program.user())?;
        let at = TransferEnd::bare(&paths.unfinished, program);
        init(program, at, "none", OPERATOR).await?;
        transfer(program, mirror, at, std::slice::from_ref(&base), &[], OPERATOR).await?;
        at.set_boundary(mirror.boundary()?.as_deref())?;
        update_refs(program, at, &format!("create {BASE} {base}\n"), OPERATOR).await?;
        let base_bytes = file_bytes(&paths.unfinished.join(PACKS))?;
        let made = Self { home: home.clone(), run: run.clone(), paths, base_branch, base, base_bytes };
        let paths = &made.paths;
        write_record(paths, &made.record(None))?;
        std::fs::rename(&paths.unfinished, &paths.repository).map_err(GitError::file("rename a repository"))?;
        Ok(made)
    }

    /// Opens the repository of a run, if it has one.
    pub(crate) fn open(home: &GitHome, run: &RunId) -> Result<Option<Self>, GitError> {
        let paths = home.run_paths(run);
        if !paths.repository.is_dir() {
            return Ok(None);
        }
        let Some(record) = read_record(&paths, run)? else { return Ok(None) };
        let wrong = |reason: String| GitError::Record { run: run.to_string(), reason };
        let base = record.base.parse().map_err(|error: crate::NotAnObjectId| wrong(error.to_string()))?;
        let base_branch = record.base_branch.parse()?;
        Ok(Some(Self { home: home.clone(), run: run.clone(), paths, base_branch, base, base_bytes: record.base_bytes }))
    }

    /// Returns the id of the run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the branch that the run started from.
    #[must_use]
    pub fn base_branch(&self) -> &Branch {
        &self.base_branch
    }

    /// Returns the commit that the run started from.
    #[must_use]
    pub fn base(&self) -> &ObjectId {
        &self.base
    }

    /// Returns the branch of the run, once a clone was made.
    ///
    /// # Errors
    /// [`GitError::Record`]
    pub fn branch(&self) -> Result<Option<Branch>, GitError> {
        Ok(self.run_branch()?.map(|known| known.branch))
    }

    /// Returns the committer of the run, once a clone was made.
    ///
    /// # Errors
    /// [`GitError::Record`]
    pub fn identity(&self) -> Result<Option<CommitterIdentity>, GitError> {
        Ok(self.run_branch()?.map(|known| known.identity))
    }

    /// Returns the head of the run's branch: the base, until the run has pushed.
    ///
    /// # Errors
    /// [`GitError`]
    pub async fn head(&self) -> Result<ObjectId, GitError> {
        let Some(known) = self.run_branch()? else { return Ok(self.base.clone()) };
        let head = resolve(self.program(), self.end(), &known.branch.reference(), HOSTILE).await?;
        Ok(head.unwrap_or_else(|| self.base.clone()))
    }

    /// Waits until no other process changes the repository.
    pub(crate) async fn lock(&self) -> Result<Lock, GitError> {
        Lock::wait(&self.paths.lock, WAIT).await
    }

    /// Sets branch and committer of the run. They never change.
    pub(crate) async fn set_branch(&self, branch: &Branch, identity: &CommitterIdentity) -> Result<(), GitError> {
        let _lock = self.lock().await?;
        leftovers::sweep(self.path())?;
        if let Some(known) = self.run_branch()? {
            if known.branch != *branch || known.identity != *identity {
                return Err(GitError::OtherBranch { run: self.run.to_string(), branch: known.branch.to_string() });
            }
        } else {
            write_record(&self.paths, &self.record(Some((branch, identity))))?;
        }
        let reference = branch.reference();
        if resolve(self.program(), self.end(), &reference, HOSTILE).await?.is_none() {
            update_refs(self.program(), self.end(), &format!("create {reference} {}\n", self.base), HOSTILE).await?;
        }
        Ok(())
    }

    fn record(&self, branch: Option<(&Branch, &CommitterIdentity)>) -> RepositoryState {
        RepositoryState {
            base_branch: self.base_branch.to_string(),
            base: self.base.to_string(),
            base_bytes: self.base_bytes,
            branch: branch.map(|(branch, _)| branch.to_string()),
            identity: branch.map(|(_, identity)| identity.clone()),
            // No push is accepted before the branch is set.
            pushes: PushHistory::default(),
        }
    }

    /// Returns the pushes that have ended.
    ///
    /// # Errors
    /// [`GitError::NoRepository`], [`GitError::Record`], [`GitError::File`]
    pub fn push_history(&self) -> Result<PushHistory, GitError> {
        Ok(self.stored()?.pushes)
    }

    /// Records a push that has ended, accepted or refused: the time at which it began, in microseconds since 1970, and the
    /// number of bytes that were read. Times that are not recent are forgotten.
    ///
    /// # Errors
    /// [`GitError::NoRepository`], [`GitError::Record`], [`GitError::File`]
    pub fn record_push(&self, begun_us: i64, bytes: u64, is_recent: impl Fn(i64) -> bool) -> Result<(), GitError> {
        // Nothing panics while it is held.
        let _lock = PUSH_RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = self.stored()?;
        record.pushes.add(begun_us, bytes, is_recent);
        write_record(&self.paths, &record)
    }

    fn stored(&self) -> Result<RepositoryState, GitError> {
        let missing = || GitError::NoRepository { run: self.run.to_string() };
        read_record(&self.paths, &self.run)?.ok_or_else(missing)
    }

    /// Returns the number of bytes of the packs that the run has sent.
    pub(crate) fn received_bytes(&self) -> Result<u64, GitError> {
        Ok(file_bytes(&self.path().join(PACKS))?.saturating_sub(self.base_bytes))
    }

    /// Returns branch and committer.
    pub(crate) fn run_branch(&self) -> Result<Option<RunBranch>, GitError> {
        let record = self.stored()?;
        let (Some(branch), Some(identity)) = (record.branch, record.identity) else { return Ok(None) };
        Ok(Some(RunBranch { branch: branch.parse()?, identity }))
    }

    /// Returns branch and committer, or an error if they are not set yet.
    pub(crate) fn require_branch(&self) -> Result<RunBranch, GitError> {
        self.run_branch()?.ok_or_else(|| GitError::NoBranch { run: self.run.to_string() })
    }

    /// Returns the ref of the uncommitted changes.
    pub(crate) fn wip_reference(&self) -> String {
        format!("refs/sluice/wip/{}", self.run)
    }

    pub(crate) fn home(&self) -> &GitHome {
        &self.home
    }

    pub(crate) fn program(&self) -> &GitProgram {
        self.home.program()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.paths.repository
    }

    pub(crate) fn lock_path(&self) -> &Path {
        &self.paths.lock
    }

    pub(crate) fn publish_lock_path(&self) -> &Path {
        &self.paths.publish_lock
    }

    pub(crate) fn end(&self) -> TransferEnd<'_> {
        TransferEnd::bare(&self.paths.repository, self.program())
    }

    pub(crate) fn command(&self, limits: Limits) -> GitCommand<'_> {
        self.end().command(self.program(), limits)
    }
}

fn write_record(paths: &RepositoryPaths, record: &RepositoryState) -> Result<(), GitError> {
    let text = serde_json::to_vec(record).expect("a record is JSON");
    replace(&paths.record, &text)
}

fn read_record(paths: &RepositoryPaths, run: &RunId) -> Result<Option<RepositoryState>, GitError> {
    let Some(text) = read_small(&paths.record)? else { return Ok(None) };
    let wrong = |error: serde_json::Error| GitError::Record { run: run.to_string(), reason: error.to_string() };
    serde_json::from_slice(&text).map(Some).map_err(wrong)
}
