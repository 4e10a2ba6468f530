//! Watches the changes of a live workspace from the host, whichever program makes them.
//!
//! Each workspace has a thread. Kernel notices tell it which names to check, and the files themselves show the changes:
//! each name is compared with its last known state, so a lost notice delays a change and hides none. If notices do not
//! cover all directories, the thread walks through the workspace at intervals. Its work is bounded: it rests four times
//! as long as it works. `.sluice` and all metadata of git are left out. See docs/design/workspace-watch.md.

use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::fcntl::{Flock, FlockArg};
use tokio::sync::mpsc;

use super::interrupt::CancelFlag;
use super::tree::Tree;
use crate::exchange::ExchangeError;

mod change;
mod contents;
mod dirty;
mod index;
mod limits;
mod notifier;
mod scanner;
mod sink;
mod thread;

pub use change::{ChangeKind, DiffOmitted, FileChange, ObservedKind, TextDiff};
pub use limits::{OwnerShare, WatchLimits, WatchShare};
pub use sink::{WatchNotice, WatchReport};

use scanner::WorkspaceScanner;
use sink::Sink;
use thread::WatchThread;

/// Maximum number of reports that wait for their reader. With more, the thread waits.
const REPORTS: usize = 2;

/// A workspace to watch.
#[derive(Debug, Clone)]
pub struct WatchSpec {
    /// The workspace.
    pub directory: PathBuf,
    /// Files that changed after this time are reported at once. All others are considered unchanged.
    pub since: Option<SystemTime>,
    /// Limits of this workspace.
    pub limits: WatchLimits,
    /// Share of the owner, for all its workspaces together.
    pub share: OwnerShare,
}

/// The thread that watches one workspace. The thread ends when this value is dropped.
#[derive(Debug)]
pub struct WorkspaceWatch {
    reports: mpsc::Receiver<WatchReport>,
    control: Option<PipeWriter>,
}

/// Reason why a workspace cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The workspace cannot be opened.
    #[error(transparent)]
    Workspace(#[from] ExchangeError),
    /// The host has no thread or no descriptor left.
    #[error("there is no thread or no descriptor to watch a workspace with")]
    Resources(#[from] io::Error),
}

impl WorkspaceWatch {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn start(spec: WatchSpec) -> Result<Self, WatchError> {
        let tree = Tree::open(&spec.directory, &CancelFlag::default())?;
        let kept = hold(&spec.directory)?;
        let (reader, writer) = io::pipe()?;
        let (sender, reports) = mpsc::channel(REPORTS);
        let WatchSpec { since, limits, share, .. } = spec;
        std::thread::Builder::new().name("workspace-watch".to_owned()).spawn(move || {
            let scanner = WorkspaceScanner::new(tree, limits, share, Sink::new(sender));
            WatchThread::new(reader, scanner).run(since);
            // A sweep may remove the directory from here on.
            drop(kept);
        })?;
        Ok(Self { reports, control: Some(writer) })
    }

    /// Waits for the next report; `None` after the last one. Cancel-safe.
    pub async fn next(&mut self) -> Option<WatchReport> {
        self.reports.recv().await
    }

    /// Requests the last check, when no process of the run is left. The last report follows.
    pub fn finish(&mut self) {
        if let Some(mut control) = self.control.take() {
            // If the thread has ended, the pipe has no reader.
            let _ = control.write_all(b"f");
            self.control = Some(control);
        }
    }
}

/// Locks the directory of the run, so that a sweep does not remove it during the last check.
fn hold(workspace: &Path) -> io::Result<Flock<File>> {
    let root = workspace.parent().unwrap_or(workspace);
    Flock::lock(File::open(root)?, FlockArg::LockSharedNonblock).map_err(|(_, error)| error.into())
}

#[cfg(test)]
mod tests;
