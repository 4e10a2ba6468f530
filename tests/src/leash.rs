//! A child process that cannot outlive the test process.
//!
//! `tests/python/leash.py` holds it: it kills the child, with its process group, when the pipe from here closes.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::scratch;
use crate::wait::poll;

/// Maximum time of a start. It is long, since importing LiteLLM alone takes six seconds of one core, and tests share
/// it.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(240);

/// A child process that cannot outlive this one, kill -9 included: `tests/python/leash.py` holds it, and kills it
/// with all of its group when the pipe from here closes. It has a directory of its own, removed at the end.
#[derive(Debug)]
pub(crate) struct Leash {
    holder: Child,
    directory: PathBuf,
    // Kept open: the directory is removed when the command ends, and the last lines of the log are needed then.
    log: fs::File,
}

impl Leash {
    /// Starts the command that `command` builds from its directory, and waits until it prints `marker` and its port.
    /// The command sees only `PATH` of this process's environment.
    pub(crate) async fn start_listening(
        command: impl FnOnce(&Path) -> Command,
        marker: &str,
    ) -> Result<(Self, u16), String> {
        Self::start(&[], command, |log| port_after(log, marker)).await
    }

    /// Starts the command that `command` builds from its directory, and waits until `look` finds a value in its log.
    pub(crate) async fn start<T>(
        options: &[&str],
        command: impl FnOnce(&Path) -> Command,
        look: impl Fn(&str) -> Option<T>,
    ) -> Result<(Self, T), String> {
        // This comes first: it panics when the environment is missing, and must not leave a directory.
        let interpreter = python();
        let directory = scratch::directory(0o700)
            .map(TempDir::keep)
            .map_err(|e| format!("cannot make a scratch directory: {e}"))?;
        let command = command(&directory);
        let mut leash = Self::hold(interpreter, options, &command, directory)
            .map_err(|e| format!("cannot start {command:?}: {e}"))?;
        let mut found = None;
        let mut ended = None;
        poll(START_LIMIT, async || {
            ended = leash.holder.try_wait().expect("the holder is our child");
            found = look(&leash.log());
            found.is_some() || ended.is_some()
        })
        .await;
        match (found, ended) {
            (Some(found), None) => Ok((leash, found)),
            (_, Some(status)) => Err(format!("{command:?} ended with {status}; its log:\n{}", leash.log())),
            (None, None) => Err(format!("{command:?} is not ready after {START_LIMIT:?}; its log:\n{}", leash.log())),
        }
    }

    fn hold(interpreter: PathBuf, options: &[&str], command: &Command, directory: PathBuf) -> io::Result<Self> {
        let file = directory.join("log");
        let output = fs::File::create(&file)?;
        let log = fs::File::open(&file)?;
        let mut holder = Command::new(interpreter);
        holder
            .args(["-I", "-S"])
            .arg(python_file("leash.py"))
            .arg("--remove")
            .arg(&directory)
            .args(options)
            .arg(command.get_program())
            .args(command.get_args())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("LANG", "C.UTF-8")
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output);
        Ok(Self { holder: holder.spawn()?, directory, log })
    }

    /// Directory of the child.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Output of the child so far, stdout and stderr.
    pub(crate) fn log(&self) -> String {
        let mut bytes = vec![0; self.log.metadata().map_or(0, |m| m.len().try_into().unwrap_or(0))];
        let read = self.log.read_at(&mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..read]).into_owned()
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        // The holder kills the group immediately, so this does not wait long; afterwards nothing is left.
        let _ = self.holder.wait();
    }
}

/// The interpreter of the test environment.
///
/// # Panics
/// When the environment is missing: a test that cannot run must not pass.
pub(crate) fn python() -> PathBuf {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/venv");
    assert!(
        venv.join(".stamp").exists(),
        "the Python environment of the tests is missing: run `make test`, or tests/setup/venv.sh"
    );
    venv.join("bin/python")
}

/// A file of `tests/python`.
pub(crate) fn python_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(name)
}

/// The number after `marker`, in a complete line.
fn port_after(log: &str, marker: &str) -> Option<u16> {
    let rest = log.split_once(marker)?.1;
    let digits = rest.split_once(|c: char| !c.is_ascii_digit())?.0;
    digits.parse().ok()
}
