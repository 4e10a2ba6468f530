//! Removal of run directories: renamed when a run is over, and deleted once its answer is out.
//!
//! A workspace can take any amount of time to delete, and a user waits for the answer. So the directory is first renamed to
//! `.removed-RUN.ATTEMPT`. The name is the record: a later process deletes directories that a killed process, or one without
//! time, has left under such names. A lock on the directory keeps two processes from deleting the same one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::rundir;

const PREFIX: &str = ".removed-";
/// Interval in which a directory that another process removes is checked.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A directory that is not removed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemainingDirectory {
    /// Run and attempt.
    pub name: String,
    /// Reason why it still exists.
    pub reason: String,
}

/// Renames the directory of a run that is over, if it still exists.
///
/// # Errors
/// Errors of the kernel when it can be neither renamed nor removed.
pub fn set_aside(root: &Path) -> io::Result<()> {
    let Some(name) = root.file_name() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut aside = OsString::from(PREFIX);
    aside.push(name);
    match fs::rename(root, root.with_file_name(aside)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // An earlier run of this name has used the new name, so the directory is deleted now.
        Err(_) => rundir::remove(root, None),
        done => done,
    }
}

/// Returns the runs with a renamed directory in `runs` that no process is deleting.
///
/// # Errors
/// When the directory cannot be read.
pub fn set_aside_in(runs: &Path) -> io::Result<Vec<String>> {
    let all = aside(runs)?;
    Ok(all.into_iter().filter(|(_, path)| matches!(claim(path), Ok(Some(_)))).map(|(name, _)| name).collect())
}

/// Deletes all renamed directories in `runs`, or as many as the time allows. A directory that another process
/// deletes is left to that process, except that the call waits for `own`.
#[must_use]
pub fn remove_all(runs: &Path, own: Option<&str>, until: Option<Instant>) -> Vec<RemainingDirectory> {
    let mut all = match aside(runs) {
        Ok(all) => all,
        Err(error) => return vec![RemainingDirectory { name: runs.display().to_string(), reason: error.to_string() }],
    };
    all.sort_by_key(|(name, _)| Some(name.as_str()) != own);
    let mut remaining = Vec::new();
    for (name, path) in all {
        let removed =
            if Some(name.as_str()) == own { remove_own(&path, until) } else { remove(&path, until).map(drop) };
        if let Err(error) = removed {
            remaining.push(RemainingDirectory { name, reason: error.to_string() });
        }
    }
    remaining
}

#[allow(clippy::disallowed_methods, reason = "on a thread of its own, which has no timers")]
fn remove_own(path: &Path, until: Option<Instant>) -> io::Result<()> {
    while !remove(path, until)? {
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Removes a directory. Returns false if another process removes it.
fn remove(path: &Path, until: Option<Instant>) -> io::Result<bool> {
    match claim(path)? {
        Some(_claimed) => rundir::remove(path, until).map(|()| true),
        None => Ok(!path.exists()),
    }
}

/// Takes the lock; `None` if another process has it, or the directory is gone.
fn claim(path: &Path) -> io::Result<Option<Flock<File>>> {
    let directory = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        directory => directory?,
    };
    match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
        Ok(claimed) => Ok(Some(claimed)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, error)) => Err(error.into()),
    }
}

fn aside(runs: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(runs)? {
        let entry = entry?;
        if let Some(name) = entry.file_name().to_str().and_then(|name| name.strip_prefix(PREFIX)) {
            all.push((name.to_owned(), entry.path()));
        }
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct RunsDirectory(PathBuf);

    impl RunsDirectory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sluice-removal-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("it is not there yet");
            Self(path)
        }

        /// Creates and renames the directory of a run with this number of directories in its workspace.
        fn over(&self, name: &str, directories: usize) {
            for n in 0..directories {
                fs::create_dir_all(self.0.join(name).join(format!("work/{n}/{n}"))).expect("it is ours");
            }
            set_aside(&self.0.join(name)).expect("it can be renamed");
        }

        fn names(&self) -> Vec<OsString> {
            fs::read_dir(&self.0).expect("it is there").map(|entry| entry.expect("a name").file_name()).collect()
        }
    }

    impl Drop for RunsDirectory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn renamed_directories_are_deleted_later() {
        let runs = RunsDirectory::new("later");
        runs.over("a.0", 3);
        runs.over("b.0", 3);
        fs::create_dir(runs.0.join("live.0")).expect("it is ours");
        assert_eq!(set_aside_in(&runs.0).expect("it is there"), ["a.0", "b.0"]);

        assert_eq!(remove_all(&runs.0, Some("b.0"), None), []);

        assert_eq!(runs.names(), ["live.0"]);
        set_aside(&runs.0.join("a.0")).expect("what is gone is set aside");
    }

    #[test]
    fn the_next_process_deletes_the_rest() {
        let runs = RunsDirectory::new("time");
        runs.over("a.0", 500);

        let remaining = remove_all(&runs.0, Some("a.0"), Some(Instant::now()));

        assert_eq!(remaining.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a.0"]);
        assert_eq!(remove_all(&runs.0, None, None), []);
        assert!(runs.names().is_empty());
    }

    #[test]
    fn a_locked_directory_is_left_to_its_process() {
        let runs = RunsDirectory::new("claimed");
        runs.over("a.0", 3);
        let path = runs.0.join(".removed-a.0");
        let claimed = claim(&path).expect("it is there").expect("it is not locked");

        assert_eq!(remove_all(&runs.0, None, None), []);
        assert!(path.exists() && set_aside_in(&runs.0).expect("it is there").is_empty());
        let soon = Instant::now() + LOOK_AGAIN * 2;
        assert_eq!(remove_all(&runs.0, Some("a.0"), Some(soon)).len(), 1, "its own process waits for it");

        drop(claimed);
        assert_eq!(remove_all(&runs.0, Some("a.0"), None), []);
        assert!(!path.exists());
    }

    #[test]
    fn a_taken_name_does_not_keep_a_directory() {
        let runs = RunsDirectory::new("taken");
        runs.over("a.0", 2);
        runs.over("a.0", 2);
        assert_eq!(runs.names(), [".removed-a.0"]);
    }
}
