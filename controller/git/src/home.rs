//! The directory of all repositories of this host.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use sha2::{Digest, Sha256};
use sluice_contract::{RunId, hex};

use crate::directory::{Lock, make_ours, remove};
use crate::error::GitError;
use crate::program::GitProgram;
use crate::repository_url::RepositoryUrl;

/// Directory of mirrors and of the repositories of runs. Clones of this value share one directory.
#[derive(Debug, Clone)]
pub struct GitHome {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    program: GitProgram,
}

/// Files of one repository: the repository, its lock, and its record, which the user of git cannot reach.
#[derive(Debug, Clone)]
pub(crate) struct RepositoryPaths {
    pub(crate) repository: PathBuf,
    pub(crate) unfinished: PathBuf,
    pub(crate) lock: PathBuf,
    pub(crate) publish_lock: PathBuf,
    pub(crate) record: PathBuf,
}

impl GitHome {
    /// Sets the directory; it is made when it is needed.
    #[must_use]
    pub fn new(root: PathBuf, program: GitProgram) -> Self {
        Self { inner: Arc::new(Inner { root, program }) }
    }

    /// Returns the runs that have files here: a repository, or the remains of one that a killed process left.
    ///
    /// # Errors
    /// [`GitError::File`]
    pub fn runs(&self) -> Result<Vec<RunId>, GitError> {
        let names = names(&self.inner.root.join("runs"))?;
        // The name of a run has no dot, so it ends at the first one.
        let runs: BTreeSet<RunId> = names.iter().filter_map(|name| name.split_once('.')?.0.parse().ok()).collect();
        Ok(runs.into_iter().collect())
    }

    /// Removes the repository of a run, unless something works in it. Returns true if it did.
    ///
    /// # Errors
    /// [`GitError::File`]
    pub fn remove_run(&self, run: &RunId) -> Result<bool, GitError> {
        let paths = self.run_paths(run);
        let (repository, publication) = (Lock::take(&paths.lock)?, Lock::take(&paths.publish_lock)?);
        if repository.is_none() || publication.is_none() {
            return Ok(false);
        }
        remove_files(&paths).map(|()| true)
    }

    /// Removes the mirrors that were not used for a run since this time. The next run fetches the whole mirror again.
    ///
    /// # Errors
    /// [`GitError::File`]
    pub fn remove_old_mirrors(&self, before: SystemTime) -> Result<u64, GitError> {
        let directory = self.inner.root.join("mirrors");
        let (names, mut removed) = (names(&directory)?, 0);
        for name in names.iter().filter_map(|name| mirror_name(name)).collect::<BTreeSet<&str>>() {
            let paths = paths(&directory, name);
            let used = std::fs::metadata(&paths.lock).and_then(|lock| lock.modified());
            if used.is_ok_and(|used| used >= before) {
                continue;
            }
            if let Some(_lock) = Lock::take(&paths.lock)? {
                remove_files(&paths)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Returns the path of git.
    #[must_use]
    pub fn program_path(&self) -> &Path {
        self.inner.program.path()
    }

    pub(crate) fn root(&self) -> &Path {
        &self.inner.root
    }

    pub(crate) fn program(&self) -> &GitProgram {
        &self.inner.program
    }

    pub(crate) fn run_paths(&self, run: &RunId) -> RepositoryPaths {
        paths(&self.inner.root.join("runs"), run.as_str())
    }

    /// Returns the paths of a mirror. Each address and scope has its own mirror.
    pub(crate) fn mirror_paths(&self, url: &RepositoryUrl, scope: &str) -> RepositoryPaths {
        let digest = Sha256::digest(format!("{}\n{scope}", url.canonical()));
        paths(&self.inner.root.join("mirrors"), &hex::encode(&digest[..16]))
    }

    /// Makes the directories.
    pub(crate) fn prepare(&self) -> Result<(), GitError> {
        ["runs", "mirrors"].into_iter().try_for_each(|name| make_ours(&self.inner.root.join(name)))
    }
}

/// Returns the names in a directory; none if it does not exist.
fn names(directory: &Path) -> Result<Vec<String>, GitError> {
    let failed = || GitError::file("list the repositories");
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed())?,
    };
    let name = |entry: std::io::Result<std::fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    entries.map(name).collect::<std::io::Result<_>>().map_err(failed())
}

/// Returns the name of a mirror, from the name of its repository or of an unfinished one.
fn mirror_name(file: &str) -> Option<&str> {
    file.strip_suffix(".git").or_else(|| file.strip_suffix(".new"))
}

/// Removes a repository and its other files; the locks last.
fn remove_files(paths: &RepositoryPaths) -> Result<(), GitError> {
    remove(&paths.repository)?;
    remove(&paths.unfinished)?;
    for file in [&paths.record, &paths.publish_lock, &paths.lock] {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(GitError::File { what: "remove the record of a repository", source: error });
            }
            _ => {}
        }
    }
    Ok(())
}

fn paths(parent: &Path, name: &str) -> RepositoryPaths {
    RepositoryPaths {
        repository: parent.join(format!("{name}.git")),
        unfinished: parent.join(format!("{name}.new")),
        lock: parent.join(format!("{name}.lock")),
        publish_lock: parent.join(format!("{name}.publish-lock")),
        record: parent.join(format!("{name}.json")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    /// Bug: a process that was killed while it made a repository left it for ever.
    #[test]
    fn unfinished_repositories_are_found_and_removed() {
        let root = tempfile::tempdir().expect("a directory");
        let home = GitHome::new(root.path().to_owned(), GitProgram::unconfined("/usr/bin/git".into()));
        home.prepare().expect("it is ours");
        let (runs, mirrors) = (root.path().join("runs"), root.path().join("mirrors"));
        for directory in [runs.join("r1.git"), runs.join("r1.new"), runs.join("r2.new"), mirrors.join("ab.new")] {
            fs::create_dir_all(directory.join("objects")).expect("it is ours");
        }
        for file in [runs.join("r2.lock"), runs.join("r3.lock"), runs.join(".tmp1"), mirrors.join("ab.lock")] {
            fs::write(file, "").expect("it is ours");
        }
        let found = home.runs().expect("it is readable");
        assert_eq!(found.iter().map(RunId::as_str).collect::<Vec<_>>(), ["r1", "r2", "r3"]);
        for run in &found {
            assert!(home.remove_run(run).expect("it is ours"), "{run}");
        }
        assert_eq!(names(&runs).expect("it is readable"), [".tmp1"]);
        let later = SystemTime::now() + Duration::from_secs(60);
        assert_eq!(home.remove_old_mirrors(later).expect("it is ours"), 1);
        assert_eq!(names(&mirrors).expect("it is readable"), [""; 0]);
    }
}
