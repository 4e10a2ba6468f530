//! Child processes and the scratch directory, which end with the bench.
//!
//! Guards end them whenever the bench returns or unwinds. The release profile aborts on a panic, so a panic hook does
//! the same for all in the list.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::measure;

static LIVE: Mutex<Vec<i32>> = Mutex::new(Vec::new());
static SCRATCH: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Time for a child to end after SIGTERM; under valgrind, on a busy machine, it takes some seconds.
const GRACE: Duration = Duration::from_secs(10);

/// A child process that is ended, with its own children, when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    ended: bool,
}

impl Running {
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        let program = command.get_program().to_owned();
        let child = command
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot start {}: {error}", program.display())))?;
        let running = Self { child, ended: false };
        if let Ok(mut live) = LIVE.lock() {
            live.push(running.pid());
        }
        Ok(running)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Returns the exit status once the process has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.ended |= status.is_some();
        Ok(status)
    }

    fn stop(&mut self) {
        let tree = measure::tree(self.pid());
        if !matches!(self.ended(), Ok(None)) {
            return;
        }
        signal(self.pid(), Signal::SIGTERM);
        let asked = Instant::now();
        while asked.elapsed() < GRACE {
            if !matches!(self.ended(), Ok(None)) {
                return;
            }
            #[allow(clippy::disallowed_methods, reason = "in a drop, outside the runtime")]
            std::thread::sleep(Duration::from_millis(1));
        }
        for pid in tree {
            signal(pid, Signal::SIGKILL);
        }
        // It was killed: this returns at once, and nothing could be done about an error.
        let _status: io::Result<ExitStatus> = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        let pid = self.pid();
        if let Ok(mut live) = LIVE.lock() {
            live.retain(|other| *other != pid);
        }
    }
}

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a directory below the system's directory for temporary files. Its path is short, for the sockets.
    pub(crate) fn create() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("sluice-bench-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        if let Ok(mut scratch) = SCRATCH.lock() {
            *scratch = Some(path.clone());
        }
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Makes a panic of this process remove everything too.
pub(crate) fn sweep_on_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        if let Ok(live) = LIVE.try_lock() {
            for pid in live.iter().flat_map(|root| measure::tree(*root)) {
                signal(pid, Signal::SIGKILL);
            }
        }
        if let Ok(scratch) = SCRATCH.try_lock()
            && let Some(path) = scratch.as_ref()
        {
            // The panic has been printed; this error has no reader.
            let _removed: io::Result<()> = std::fs::remove_dir_all(path);
        }
    }));
}

fn signal(pid: i32, signal: Signal) {
    // A process that has ended already needs no signal.
    let _sent: nix::Result<()> = kill(Pid::from_raw(pid), signal);
}
