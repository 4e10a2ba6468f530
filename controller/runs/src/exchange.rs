//! The files of a run: its input in the workspace, and its results.
//!
//! A run that may change a repository works on a copy. At its end, when no process of it is left, the copy is compared with
//! the start: the changes become a patch, or are applied to the directory of the host. Files that git on the host would
//! execute are not exported, and git itself is never started. See docs/design/repositories.md.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_contract::Hash;
use sluice_contract::text::error_chain;
use sluice_state::layout::RunPaths;

use crate::{rundir, workspace};

mod apply;
pub(crate) mod artifacts;
mod baseline;
mod changes;
mod copy;
mod diff;
pub mod disk_usage;
mod error;
mod executed;
mod git_config;
pub mod git_names;
mod git_settings;
mod host_directory;
mod interrupt;
mod kept;
mod lines;
mod out;
mod owner;
mod patch;
mod report;
mod restored;
pub mod transcript;
mod tree;
pub mod watch;

pub use error::ExchangeError;
pub use host_directory::{HostDirectory, OutputFile, output_directory};
pub(crate) use interrupt::CancelFlag;
pub use kept::kept as kept_workspace;
pub(crate) use kept::{expects_results, rescue};
pub use report::{ExchangeReport, LeftOutFiles, OutReport, PatchReport, RepositoryReport};
pub use restored::KeptWorkspace;

use apply::Target;
use baseline::Baseline;
use changes::Changes;
use copy::{Age, Allowance, NewEntry, temporary};
use diff::ObjectHash;
use executed::HostConfig;
use kept::{kept, mark, unmark};
use owner::Owner;
use rustix::io::Errno;
use tree::Tree;

/// Name of the copy of the repository in the workspace.
const REPOSITORY: &str = "repo";
/// Name of the directory of `--out` in the workspace.
const OUT: &str = "out";
/// Maximum size of a file of `--file`.
const INPUT_MAX: u64 = 2 << 30;
/// Time that a run waits for others which apply changes to the same directory.
const LOCK_WAIT: Duration = Duration::from_secs(120);

/// The input and result files of a run.
#[derive(Debug, Clone, Default)]
pub struct FileExchange {
    /// Repository that the run gets a copy of.
    pub repository: Option<RepositoryCopy>,
    /// Workspace of an earlier run that the run begins with.
    pub restored: Option<KeptWorkspace>,
    /// Files for the workspace.
    pub inputs: Vec<InputFile>,
    /// File of the patch.
    pub patch: Option<OutputFile>,
    /// Directory for the files in `/workspace/out`: new or empty.
    pub out: Option<HostDirectory>,
    /// Keeps the workspace after the run.
    pub keep: bool,
    /// The workspace has a clone: its commits are collected after the files.
    pub has_clone: bool,
}

/// A repository that a run gets a copy of.
#[derive(Debug, Clone)]
pub struct RepositoryCopy {
    /// Directory.
    pub directory: HostDirectory,
    /// Applies the changes of the run to the directory.
    pub writes_back: bool,
}

/// An open file of the host for the workspace.
#[derive(Debug, Clone)]
pub struct InputFile {
    /// Path on the host, for messages.
    pub path: PathBuf,
    /// The file.
    pub file: Arc<File>,
    /// Path in the workspace.
    pub name: String,
}

/// The files of one run while it exists.
#[derive(Debug, Default)]
pub(crate) struct RunFiles {
    baseline: Option<Baseline>,
    config: HostConfig,
}

/// Results that came out of a run, and the errors.
#[derive(Debug, Default)]
pub struct Collected {
    /// Results.
    pub report: ExchangeReport,
    /// Reasons why some files were not exported.
    pub errors: Vec<String>,
}

impl FileExchange {
    /// Returns whether the run has results that are only in its workspace until they are exported.
    pub(crate) fn has_output(&self) -> bool {
        self.patch.is_some()
            || self.out.is_some()
            || self.keep
            || self.has_clone
            || self.repository.as_ref().is_some_and(|it| it.writes_back)
    }

    /// Notes, just before the program starts, that the workspace will hold results.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub(crate) fn expect_results(&self, paths: &RunPaths) -> Result<(), ExchangeError> {
        let failed = ExchangeError::at(paths.conf.display().to_string());
        if self.has_output() { mark(paths).map_err(failed) } else { Ok(()) }
    }

    /// Brings the files into the workspace.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub(crate) fn bring_in(&self, paths: &RunPaths, interrupt: &CancelFlag) -> Result<RunFiles, ExchangeError> {
        let at_work = |error| ExchangeError::at(paths.work.display().to_string())(error);
        let uid = rundir::sandbox_uid(paths).map_err(at_work)?;
        let user = Owner { uid, gid: uid };
        if let Some(restored) = &self.restored {
            restored.copy_to(&Tree::open(&paths.work, interrupt)?, user, interrupt)?;
        }
        for input in &self.inputs {
            let (directory, name) = input.name.rsplit_once('/').unwrap_or(("", &input.name));
            let directory = workspace::make_directory(&paths.work, directory).map_err(at_work)?;
            let place = NewEntry { directory: &directory, name: name.as_bytes(), owner: user, mode: 0o644 };
            let copied = place.copy(&input.file, Age::Original, &mut Allowance::new(INPUT_MAX, interrupt));
            copied.map_err(ExchangeError::at(input.path.display().to_string()))?;
        }
        if self.out.is_some() {
            workspace::make_directory(&paths.work, OUT).map_err(at_work)?;
        }
        let Some(RepositoryCopy { directory, .. }) = &self.repository else { return Ok(RunFiles::default()) };
        workspace::make_directory(&paths.work, REPOSITORY).map_err(at_work)?;
        let owner = directory.owner().map_err(|error| directory.error(error))?;
        let host = directory.tree(interrupt).map_err(|error| directory.error(error))?.read_by(owner);
        let work = Tree::open(&paths.work.join(REPOSITORY), interrupt)?;
        let base = match &self.patch {
            Some(_) => {
                let path = base(paths);
                std::fs::create_dir(&path).map_err(ExchangeError::at(path.display().to_string()))?;
                Some(Tree::open(&path, interrupt)?)
            }
            None => None,
        };
        let baseline = baseline::copy_in(&host, &work, base.as_ref(), owner, user, interrupt)?;
        let config = executed::read(&directory.path, owner, &baseline)?;
        Ok(RunFiles { baseline: Some(baseline), config })
    }

    /// Exports the results from the workspace. No process of the run is left. Unless all results are exported and on
    /// their disk, the workspace stays marked as one to keep.
    pub(crate) fn bring_out(&self, files: &RunFiles, paths: &RunPaths, interrupt: &CancelFlag) -> Collected {
        let mut collected = Collected::default();
        if let (Some(repository), Some(baseline)) = (&self.repository, &files.baseline) {
            let outlet = Outlet { repository, baseline, config: &files.config, paths, interrupt };
            if let Err(error) = outlet.bring_changes_out(self.patch.as_ref(), &mut collected) {
                collected.errors.push(error_chain(&error));
            }
        } else if self.repository.is_some() {
            let lost =
                "the start of the repository is not known, as after a restart of the controller; no change came out";
            collected.errors.push(lost.to_owned());
        }
        if let Some(out) = &self.out {
            match bring_files_out(out, paths, interrupt) {
                Ok(report) => collected.report.out = Some(report),
                Err(error) => collected.errors.push(error_chain(&error)),
            }
        }
        // With a clone, the mark stays until the commits are collected. A mark that is left over only keeps too much.
        if !self.has_clone {
            self.release(paths, &collected);
        }
        collected
    }

    /// Removes the mark of the workspace if all results were exported.
    pub(crate) fn release(&self, paths: &RunPaths, collected: &Collected) {
        if self.has_output() && !self.keep && collected.errors.is_empty() {
            let _ = unmark(paths);
        }
    }
}

/// Exports the changes of a run from its copy of a repository.
struct Outlet<'a> {
    repository: &'a RepositoryCopy,
    baseline: &'a Baseline,
    config: &'a HostConfig,
    paths: &'a RunPaths,
    interrupt: &'a CancelFlag,
}

impl Outlet<'_> {
    fn bring_changes_out(&self, patch: Option<&OutputFile>, collected: &mut Collected) -> Result<(), ExchangeError> {
        let work = match Tree::open(&self.paths.work.join(REPOSITORY), self.interrupt) {
            Err(ExchangeError::File { source, .. }) if is_gone(&source) => {
                return Err(ExchangeError::NoRepository(self.repository.directory.path.display().to_string()));
            }
            work => work?,
        };
        let changes = changes::changes(self.baseline, &work)?;
        if let Some(file) = patch {
            collected.report.patch = Some(self.write_patch(file, &changes, &work)?);
        }
        if self.repository.writes_back {
            self.apply(&changes, &work, collected)?;
        }
        Ok(())
    }

    fn write_patch(&self, file: &OutputFile, changes: &Changes<'_>, work: &Tree) -> Result<PatchReport, ExchangeError> {
        let base = Tree::open(&base(self.paths), self.interrupt)?;
        let hash = if self.config.is_sha256 { ObjectHash::Sha256 } else { ObjectHash::Sha1 };
        let patch = patch::patch(&changes.entries, &base, work, &self.config.executed, hash, self.interrupt)?;
        file.write(&patch.text, self.paths).map_err(ExchangeError::at(file.path()))?;
        Ok(PatchReport {
            path: file.path(),
            files: patch.files,
            insertions: patch.insertions,
            deletions: patch.deletions,
            bytes: patch.text.len() as u64,
            sha256: Hash::of(&patch.text).to_string(),
            sensitive: patch.sensitive.iter().take(1000).map(|path| tree::show(path)).collect(),
            left_out: LeftOutFiles::first(metadata_of(changes, self.baseline)),
        })
    }

    fn apply(&self, changes: &Changes<'_>, work: &Tree, collected: &mut Collected) -> Result<(), ExchangeError> {
        let directory = &self.repository.directory;
        let path = directory.path.display().to_string();
        let owner = directory.owner().map_err(|error| directory.error(error))?;
        let host = directory.tree(self.interrupt).map_err(|error| directory.error(error))?.read_by(owner);
        let applied = {
            let _lock = directory.lock(LOCK_WAIT, self.interrupt)?;
            let name = temporary(self.paths);
            Target::new(&host, work, owner, &self.config.executed, name, self.interrupt).apply(&changes.entries)
        };
        let refused = || applied.left_out.iter().map(|(path, why)| LeftOutFiles::new(path, why.as_ref()));
        if !applied.left_out.is_empty() {
            let error = ExchangeError::LeftOut {
                count: applied.left_out.len(),
                path: path.clone(),
                names: report::names(refused().map(|one| format!("{} ({})", one.path, one.reason))),
                workspace: kept(self.paths).display().to_string(),
            };
            collected.errors.push(error.to_string());
        }
        collected.report.repo = Some(RepositoryReport {
            path,
            added: applied.added,
            changed: applied.changed,
            deleted: applied.deleted,
            bytes: applied.bytes,
            left_out: LeftOutFiles::first(refused().chain(metadata_of(changes, self.baseline))),
        });
        directory.sync()
    }
}

/// Returns whether an error says that a directory no longer exists.
fn is_gone(error: &std::io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// Returns files that a run may create, and that are never exported: metadata of git, devices, FIFOs and sockets.
fn metadata_of(changes: &Changes<'_>, baseline: &Baseline) -> impl Iterator<Item = LeftOutFiles> {
    let git = changes.git.iter().map(|path| LeftOutFiles::new(path, "git on the host would take it for a repository"));
    let special = changes.special.iter().map(|path| LeftOutFiles::new(path, "it is a device, a FIFO or a socket"));
    let skipped =
        baseline.skipped.iter().map(|(path, why)| LeftOutFiles::new(path, format!("the run did not get it: {why}")));
    git.chain(special).chain(skipped)
}

fn bring_files_out(out: &HostDirectory, paths: &RunPaths, interrupt: &CancelFlag) -> Result<OutReport, ExchangeError> {
    let from = Tree::open(&paths.work.join(OUT), interrupt)?;
    let to = out.tree(interrupt).map_err(|error| out.error(error))?;
    let owner = out.owner().map_err(|error| out.error(error))?;
    let copied = out::copy_out(&from, &to, owner, interrupt)?;
    out.sync()?;
    Ok(OutReport {
        path: out.path.display().to_string(),
        files: copied.files,
        bytes: copied.bytes,
        left_out: LeftOutFiles::first(copied.left_out.iter().map(|(path, why)| LeftOutFiles::new(path, why))),
    })
}

/// Path of the copy of a repository that a run cannot reach.
fn base(paths: &RunPaths) -> PathBuf {
    paths.root.join("base")
}

#[cfg(test)]
mod tests;
