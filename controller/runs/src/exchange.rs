//! The files of a run: what goes into its workspace, and what comes out of it.
//!
//! A run that may change a repository works on a copy. At its end, when no process of it is left, the copy is compared with
//! the start: the changes become a patch, or are applied to the directory of the host. Nothing that git on the host would
//! execute comes out, and git itself is never started. See docs/design/repositories.md.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use sluice_contract::text::error_chain;
use sluice_state::layout::RunPaths;

use crate::{rundir, workspace};

mod apply;
mod baseline;
mod changes;
mod copy;
mod diff;
mod error;
mod executed;
mod git_config;
pub mod git_names;
mod host_directory;
mod kept;
mod out;
mod patch;
mod report;
mod tree;

pub use error::ExchangeError;
pub use host_directory::{HostDirectory, OutputFile, output_directory};
pub(crate) use kept::rescue;
pub use report::{ExchangeReport, LeftOut, OutReport, PatchReport, RepositoryReport};

use apply::Target;
use baseline::Baseline;
use changes::Changes;
use copy::{Owner, Place};
use diff::ObjectHash;
use executed::HostConfig;
use kept::{keep_marker, keep_workspace, kept};
use tree::Tree;

/// Name of the copy of the repository in the workspace.
const REPOSITORY: &str = "repo";
/// Name of the directory of `--out` in the workspace.
const OUT: &str = "out";
/// Maximum size of a file of `--file`.
const INPUT_MAX: u64 = 2 << 30;

/// The files that go into a run and come out of it.
#[derive(Debug, Clone, Default)]
pub struct FileExchange {
    /// Repository that the run gets a copy of.
    pub repository: Option<RepositoryCopy>,
    /// Files for the workspace.
    pub inputs: Vec<InputFile>,
    /// File of the patch.
    pub patch: Option<OutputFile>,
    /// Directory for the files in `/workspace/out`: new or empty.
    pub out: Option<HostDirectory>,
    /// Keeps the workspace after the run.
    pub keep: bool,
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
    /// Reasons why something did not come out.
    pub errors: Vec<String>,
}

impl FileExchange {
    /// Returns whether something comes out of the run that is in its workspace alone until then.
    pub(crate) fn has_output(&self) -> bool {
        self.patch.is_some()
            || self.out.is_some()
            || self.keep
            || self.repository.as_ref().is_some_and(|it| it.writes_back)
    }

    /// Brings the files into the workspace.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub(crate) fn bring_in(&self, paths: &RunPaths) -> Result<RunFiles, ExchangeError> {
        let at_work = |error| ExchangeError::at(paths.work.display().to_string())(error);
        let uid = rundir::sandbox_uid(paths).map_err(at_work)?;
        let user = Owner { uid, gid: uid };
        if self.has_output() {
            // A sweep keeps the workspace of a run that has this file.
            std::fs::write(keep_marker(paths), b"").map_err(at_work)?;
        }
        for input in &self.inputs {
            let (directory, name) = input.name.rsplit_once('/').unwrap_or(("", &input.name));
            let directory = workspace::make_directory(&paths.work, directory).map_err(at_work)?;
            let place = Place { directory: &directory, name: name.as_bytes(), owner: user, mode: 0o644 };
            place.write(&input.file, INPUT_MAX).map_err(ExchangeError::at(input.path.display().to_string()))?;
        }
        if self.out.is_some() {
            workspace::make_directory(&paths.work, OUT).map_err(at_work)?;
        }
        let Some(repository) = &self.repository else { return Ok(RunFiles::default()) };
        workspace::make_directory(&paths.work, REPOSITORY).map_err(at_work)?;
        let host = repository.directory.tree().map_err(|error| repository.directory.error(error))?;
        let owner = repository.directory.owner().map_err(|error| repository.directory.error(error))?;
        let work = Tree::open(&paths.work.join(REPOSITORY))?;
        let base = match &self.patch {
            Some(_) => {
                let path = base(paths);
                std::fs::create_dir(&path).map_err(ExchangeError::at(path.display().to_string()))?;
                Some(Tree::open(&path)?)
            }
            None => None,
        };
        let baseline = baseline::copy_in(&host, &work, base.as_ref(), owner, user)?;
        let config = executed::read(&repository.directory.path, &baseline);
        Ok(RunFiles { baseline: Some(baseline), config })
    }

    /// Brings the results out of the workspace. No process of the run is left. What cannot be brought out is kept.
    pub(crate) fn bring_out(&self, files: &RunFiles, paths: &RunPaths) -> Collected {
        let mut collected = Collected::default();
        if let (Some(repository), Some(baseline)) = (&self.repository, &files.baseline)
            && let Err(error) = self.bring_changes_out(repository, baseline, files, paths, &mut collected)
        {
            collected.errors.push(error_chain(&error));
        }
        if let Some(out) = &self.out {
            match bring_files_out(out, paths) {
                Ok(report) => collected.report.out = Some(report),
                Err(error) => collected.errors.push(error_chain(&error)),
            }
        }
        if self.keep || !collected.errors.is_empty() {
            match keep_workspace(paths) {
                Ok(path) => collected.report.workspace = path.map(|path| path.display().to_string()),
                Err(error) => collected.errors.push(format!("cannot keep the workspace: {error}")),
            }
        } else {
            // Nothing is left in it that a sweep would have to keep.
            let _ = std::fs::remove_file(keep_marker(paths));
        }
        collected
    }

    fn bring_changes_out(
        &self,
        repository: &RepositoryCopy,
        baseline: &Baseline,
        files: &RunFiles,
        paths: &RunPaths,
        collected: &mut Collected,
    ) -> Result<(), ExchangeError> {
        let directory = &repository.directory;
        let path = directory.path.display().to_string();
        let work = Tree::open(&paths.work.join(REPOSITORY)).map_err(|_| ExchangeError::NoRepository(path.clone()))?;
        let changes = changes::changes(baseline, &work)?;
        if let Some(file) = &self.patch {
            let base = Tree::open(&base(paths))?;
            let hash = if files.config.is_sha256 { ObjectHash::Sha256 } else { ObjectHash::Sha1 };
            let patch = patch::patch(&changes.entries, &base, &work, &files.config.executed, hash)?;
            let shown = file.directory.path.join(&file.name).display().to_string();
            file.write(&patch.text).map_err(ExchangeError::at(shown.clone()))?;
            collected.report.patch = Some(PatchReport {
                path: shown,
                files: patch.files,
                insertions: patch.insertions,
                deletions: patch.deletions,
                bytes: patch.text.len() as u64,
                sensitive: patch.sensitive.iter().take(1000).map(|path| tree::show(path)).collect(),
                left_out: LeftOut::first(metadata_of(&changes, baseline)),
            });
        }
        if repository.writes_back {
            let host = directory.tree().map_err(|error| directory.error(error))?;
            let owner = directory.owner().map_err(|error| directory.error(error))?;
            let applied = apply::Applied::default();
            let mut target = Target { host: &host, work: &work, owner, executed: &files.config.executed, applied };
            target.apply(&changes.entries);
            let applied = target.applied;
            let refused: Vec<_> = applied.left_out.iter().map(|(path, why)| LeftOut::new(path, why)).collect();
            if !refused.is_empty() {
                let names: Vec<_> = refused.iter().map(|one| format!("{} ({})", one.path, one.reason)).collect();
                let error = ExchangeError::LeftOut {
                    count: names.len(),
                    path: path.clone(),
                    names: report::names(names.iter().map(String::as_str)),
                    workspace: kept(paths).display().to_string(),
                };
                collected.errors.push(error.to_string());
            }
            collected.report.repo = Some(RepositoryReport {
                path,
                added: applied.added,
                changed: applied.changed,
                deleted: applied.deleted,
                bytes: applied.bytes,
                left_out: LeftOut::first(refused.into_iter().chain(metadata_of(&changes, baseline)).collect()),
            });
        }
        Ok(())
    }
}

/// Returns what a run may make, and what never comes out: metadata of git, devices, FIFOs and sockets.
fn metadata_of(changes: &Changes<'_>, baseline: &Baseline) -> Vec<LeftOut> {
    let git = changes.git.iter().map(|path| LeftOut::new(path, "git on the host would take it for a repository"));
    let special = changes.special.iter().map(|path| LeftOut::new(path, "it is a device, a FIFO or a socket"));
    let skipped =
        baseline.skipped.iter().map(|(path, why)| LeftOut::new(path, format!("the run did not get it: {why}")));
    git.chain(special).chain(skipped).collect()
}

fn bring_files_out(out: &HostDirectory, paths: &RunPaths) -> Result<OutReport, ExchangeError> {
    let from = Tree::open(&paths.work.join(OUT))?;
    let to = out.tree().map_err(|error| out.error(error))?;
    let owner = out.owner().map_err(|error| out.error(error))?;
    let copied = out::copy_out(&from, &to, owner)?;
    let left_out = copied.left_out.iter().map(|(path, why)| LeftOut::new(path, why)).collect();
    Ok(OutReport {
        path: out.path.display().to_string(),
        files: copied.files,
        bytes: copied.bytes,
        left_out: LeftOut::first(left_out),
    })
}

/// Path of the copy of a repository that a run cannot reach.
fn base(paths: &RunPaths) -> PathBuf {
    paths.root.join("base")
}
